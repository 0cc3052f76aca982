"""What the chat benchmark serves: the whole application with a model that speaks at a set pace, and a bare consumer.

The model lives in the server's own process and costs next to nothing, so that what is measured is ours: reading the
history, recording, rendering, and sending it to the page. `/ws/bare/` is what all of that is compared with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import count
from typing import Any

from history.db.process_state import process_state
from project import asgi

# isort: split
# Only now: these need the applications to be set up.
from channels.generic.websocket import AsyncWebsocketConsumer

from bench.chat_text import TOKENS_PER_SECOND, tokens
from history.answers.events import AnswerEnded, AnswerStarted, Event, TextPiece, UsageReported
from history.context.values import Context
from history.dialects import CallOptions
from history.entries import Usage
from relay.providers import registry
from relay.providers.base import CallNotes, Model
from tests.relay.providers.scripted import ScriptedProvider

_answers = count()


async def paced() -> AsyncIterator[str]:
    """Tokens when they are due, whether anybody has time for them or not: a server that lags behind gets several."""
    now = asyncio.get_running_loop().time
    begun = now()
    for number, token in enumerate(tokens(next(_answers)), start=1):
        yield token
        if (early := begun + number / TOKENS_PER_SECOND - now()) > 0:
            await asyncio.sleep(early)


class PacedModel(ScriptedProvider):
    async def call(
        self, context: Context, options: CallOptions, *, notes: CallNotes | None = None
    ) -> AsyncGenerator[Event, None]:
        yield AnswerStarted(model=options.model, provider=self.name)
        async for token in paced():
            yield TextPiece(part="text", text=token)
        yield UsageReported(usage=Usage(input_tokens=1_000, output_tokens=300, source="provider"))
        yield AnswerEnded(reason="stop")


process_state.set(registry.Router([PacedModel(models=[Model(name="bench", window=8192)])]))


class BareConsumer(AsyncWebsocketConsumer):
    """One frame per token, nothing else."""

    task: asyncio.Task[None] | None = None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        self.task = asyncio.get_running_loop().create_task(self.stream())

    async def stream(self) -> None:
        async for token in paced():
            await self.send(text_data=f'<span hx-swap-oob="beforeend:#answer">{token}</span>')
        await self.send(text_data='<div id="announcer"></div>')


bare = BareConsumer.as_asgi()


async def application(scope: Any, receive: Any, send: Any) -> None:
    path = scope.get("path", "")
    if scope["type"] == "websocket" and path == "/ws/bare/":
        await bare(scope, receive, send)
    else:
        await asgi.application(scope, receive, send)
