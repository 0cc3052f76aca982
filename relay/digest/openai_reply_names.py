"""Answers of another vendor as a client of OpenAI's has them: known by that, too, under a name as those of `prefills`.

In Chat Completions an answer is one text. Texts that were apart, with a thought or a call between them or without, are
paragraphs of it there, and so the client sends them back. A tool that takes plain text is a function to other vendors
(`stand_ins`): whatever the model called it with, the client was given the text, and sends back that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from history.dialects.custom_tools import INPUT, input_of
from history.dialects.encoder import arguments_of
from history.dialects.json_access import compact
from history.dialects.openai_chat.replies import DIALECT
from history.entries import ModelOutput, Part, Text, ToolRequest
from history.record import fingerprints
from relay.digest.calls import RecordedAnswer
from relay.digest.recognisers.prefills import name_of
from relay.digest.requests import RelayedRequest


def names_of(asked: RelayedRequest, answer: RecordedAnswer) -> Iterator[str]:
    for output in (answer.output, *answer.others):
        if output is None or asked.begun is not None:
            continue
        told = _told(asked, output)
        if told != output.parts:
            sent = replace(output, parts=told)
            # After what the client sent, and after what the record has: a client may leave the beginning out.
            for end in {asked.sent[-1] if asked.sent else fingerprints.START, asked.end}:
                yield name_of(asked.mark(sent, after=end))


def _told(asked: RelayedRequest, output: ModelOutput) -> tuple[Part, ...]:
    parts = tuple(_called_with_text(part, asked.of_text) for part in output.parts)
    if asked.record.dialect != DIALECT or sum(isinstance(part, Text) for part in parts) < 2:
        return parts
    return (Text(text=output.text), *(part for part in parts if isinstance(part, ToolRequest)))


def _called_with_text(part: Part, of_text: frozenset[str]) -> Part:
    if not isinstance(part, ToolRequest) or part.name not in of_text:
        return part
    given = {INPUT: input_of(part.arguments)}
    return part if arguments_of(part.arguments) == given else replace(part, arguments=compact(given))
