"""A conversation with a scripted provider: real database, real channel layer, real runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from channels.layers import channel_layers

from history.db.process_state import process_state
from history.entries import EMPTY, JsonObject
from history.models import Message, Session
from history.record import exchanges
from history.record.selectors import entries_of, messages_of
from project.accounts.models import User
from relay import conversation
from relay.live import run_task, runs
from relay.models import Agent, Run
from relay.providers import connections, registry
from relay.runtime.async_db import in_database
from tests.relay.providers.scripted import Answer, ScriptedProvider
from tests.servers.databases import close_connections

Scripted = Callable[..., ScriptedProvider]


@pytest.fixture(autouse=True)
def _a_channel_layer_of_its_own() -> Iterator[None]:
    """Each test has an event loop of its own, and what a layer holds or waits for belongs to one loop."""
    channel_layers.backends.clear()
    yield
    for layer in channel_layers.backends.values():
        layer.close()  # type: ignore[attr-defined]
    channel_layers.backends.clear()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """Let every model be one that answers what it is given."""

    def use(*answers: Answer, **options: Any) -> ScriptedProvider:
        provider = ScriptedProvider(*answers, **options)
        process_state.set(registry.Router([provider]))
        return provider

    yield use
    process_state.reset(registry.Router)


@pytest.fixture
async def talk(transactional_db: None, ada: User, scripted: Scripted) -> AsyncIterator[Talk]:
    """Ada's conversation, and everything that a test wants to do in it."""
    yield Talk(ada, scripted)
    await runs.stop_all()
    await connections.close()
    await asyncio.to_thread(close_connections)


class Talk:
    def __init__(self, user: User, scripted: Scripted) -> None:
        self.user, self.scripted = user, scripted
        self.session: Session

    async def begin(self, text: str = "Hello?", *, client: JsonObject = EMPTY, **options: Any) -> Session:
        draft = conversation.MessageDraft(text=text, **options)
        self.session = await conversation.start_session(self.user, draft, client=client)
        return self.session

    async def send(self, text: str, *, after: int | None = None, **options: Any) -> conversation.SendResult:
        draft = conversation.MessageDraft(text=text, **{k: options.pop(k) for k in ("agent", "model") if k in options})
        seen = conversation.ViewerPosition(after=await self.head() if after is None else after, **options)
        return await conversation.send(self.user, self.session, draft, seen)

    async def agent(self, **fields: Any) -> Agent:
        """Create or change the default agent."""
        return await in_database(_agent, fields)

    async def until(self, is_true: Callable[[], Any], *, seconds: float = 10) -> Any:
        """Wait for something in the database."""
        end = asyncio.get_running_loop().time() + seconds
        while not (found := await in_database(is_true)):
            assert asyncio.get_running_loop().time() < end, "it did not happen"
            await asyncio.sleep(0.01)
        return found

    async def until_ended(self) -> Run:
        """The newest run of the session, when all of them have ended."""
        here = Run.objects.filter(session=self.session.pk)
        await self.until(lambda: here.exists() and not here.filter(ended_at=None).exists())
        await self.until(lambda: not run_task.local_tasks)
        return await in_database(lambda: here.order_by("-started_at")[0])

    async def head(self) -> int:
        return await in_database(lambda: Session.objects.get(pk=self.session.pk).head)

    async def entries(self, *, leaf: int | None = None) -> list[Any]:
        return await in_database(lambda: entries_of(messages_of(self.session, leaf=leaf, limit=500).messages))

    async def kinds(self, *, leaf: int | None = None) -> list[str]:
        return [entry.kind for entry in await self.entries(leaf=leaf)]

    async def texts(self, *, leaf: int | None = None) -> list[tuple[str, str]]:
        """Who said what, without what surrounds the conversation."""
        return [(entry.role, entry.text) for entry in await self.entries(leaf=leaf) if entry.role != "system"]

    async def messages(self) -> list[Message]:
        return await in_database(lambda: list(Message.objects.filter(session=self.session).order_by("seq")))

    async def flush(self) -> None:
        """What the background does four times a second."""
        await in_database(exchanges.flush_partials)

    async def stop(self, run: UUID | None = None) -> None:
        await conversation.stop(self.session, run=run)


def _agent(fields: dict[str, Any]) -> Agent:
    Agent.objects.all().delete()
    return Agent.objects.create(**{"name": "assistant", "is_default": True, "instruction": "Be brief."} | fields)
