"""Answers of another vendor as a client of Chat Completions has them: in that language an answer is one text.

Texts that were apart, with a thought or a call between them or without, are paragraphs of it there, and so the client
sends them back. The answer is known by that, too, under a name as those of `prefills`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from history import fingerprints
from history.dialects.openai_chat.replies import DIALECT
from history.entries import Text
from relay.gateway.digest.answers import Answer
from relay.gateway.digest.prefills import name_of
from relay.gateway.digest.reading import Asked


def names_of(asked: Asked, answer: Answer) -> Iterator[str]:
    for output in (answer.output, *answer.others):
        if output is None or asked.record.dialect != DIALECT or asked.begun is not None:
            continue
        if sum(isinstance(part, Text) for part in output.parts) > 1:
            sent = replace(output, parts=(Text(text=output.text), *output.tool_requests))
            # After what the client sent, and after what the record has: a client may leave the beginning out.
            for end in {asked.sent[-1] if asked.sent else fingerprints.START, asked.end}:
                yield name_of(asked.mark(sent, after=end))
