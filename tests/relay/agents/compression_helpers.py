"""Small words for tests of compression: models that answer and summarise, and what they were told."""

from __future__ import annotations

from typing import Any

from history.answers.events import ToolCallPiece
from history.dialects import CallOptions
from history.entries import Summary
from relay.providers.base import Model
from relay.runtime.async_db import in_database
from tests.factories import create_chat
from tests.relay.conftest import Talk
from tests.relay.providers.scripted import ScriptedProvider

LONG = "a word or two " * 60  # some 200 tokens
SMALL = (Model(name="script", window=2_000),)
SUMMARY = "## Goal\nTo answer {n} questions in a row.\n## Next step\nAnswer the next question."


def is_summariser(context: Any) -> bool:
    return "<record>" in context.system


def scripted_model(answer: Any = f"Here it is: {LONG}", summary: Any = SUMMARY) -> Any:
    """A model that answers questions with one text and writes summaries with another."""

    def answer_call(context: Any, options: CallOptions) -> Any:
        reply = summary if is_summariser(context) else answer
        return reply(context, options) if callable(reply) else reply

    return answer_call


def contexts_sent(provider: ScriptedProvider, *, summaries: bool = False) -> list[Any]:
    return [call.context for call in provider.calls if is_summariser(call.context) == summaries]


async def create_conversation(talk: Talk, count: int) -> None:
    """So many questions were answered already."""
    texts = [text for n in range(1, count + 1) for text in (f"Question {n}?", f"Here it is: {LONG}")]
    talk.session = await in_database(create_chat, talk.user, *texts)


async def send_questions(talk: Talk, count: int, *, first: int = 1) -> None:
    for number in range(first, first + count):
        await talk.send(f"Question {number}?")
        await talk.until_ended()


async def summaries(talk: Talk) -> list[Summary]:
    return [entry for entry in await talk.entries() if isinstance(entry, Summary)]


def context_text(context: Any) -> str:
    return "\n".join(entry.content for entry in context.entries)


def call(name: str, call_id: str) -> ToolCallPiece:
    return ToolCallPiece(part=call_id, call_id=call_id, name=name, arguments="{}")


async def compress_and_wait(talk: Talk) -> int:
    """The number of what came of it."""
    await talk.send("/compress")
    await talk.until_ended()
    return await talk.head()
