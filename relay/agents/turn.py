"""A turn of an agent: its input, budget, observer and failure, and what it stores."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from history.answers.assembly import Assembler
from history.answers.events import Event
from history.db.prepared import prepared, prepared_update
from history.db.transactions import writing
from history.entries import Entry, JsonObject, ModelOutput, ToolRequest, ToolResult
from history.models import Exchange, Message, Session
from history.record import recorder
from history.record.paths import behind_notes
from relay.errors import ProviderError
from relay.models import Agent, Run
from relay.models.agents import RoleName
from relay.runtime.async_db import store_once

T = TypeVar("T")


class TurnBudget:
    """Tokens and calls of agents that one turn may use, together with the agents that it calls.

    The agents of a tree run in one process, so a few shared numbers are enough. What an agent uses counts for all its
    callers, each of which may have a limit of its own.
    """

    def __init__(self, *, tokens: int | None = None, calls: int = 0, above: "TurnBudget | None" = None) -> None:
        """`tokens` None: only the limits of the callers; `calls` is for the whole tree, so it counts at its top."""
        self._tokens, self._calls, self._above = tokens, calls, above

    def below(self, *, tokens: int | None) -> "TurnBudget":
        return TurnBudget(tokens=tokens, above=self)

    def spend(self, tokens: int) -> None:
        if self._tokens is not None:
            self._tokens -= tokens
        if self._above is not None:
            self._above.spend(tokens)

    @property
    def is_used_up(self) -> bool:
        own = self._tokens is not None and self._tokens <= 0
        return own or (self._above is not None and self._above.is_used_up)

    def take_call(self) -> bool:
        """Whether one more agent may be called; if so, it counts."""
        if self._above is not None:
            return self._above.take_call()
        self._calls -= 1
        return self._calls >= 0


# Stands for a budget from the limits of the agent. A called agent gets a part of its caller's budget instead.
OWN_BUDGET = TurnBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRequest:
    """A request to summarise older turns: `why`, by which model, and the summary that it replaces."""

    why: Literal["full", "too_long", "asked", "tool", "again"]
    model: str = ""
    instead_of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """What is to be answered: the entry `leaf` of a session, by an agent, on behalf of its owner.

    `answers` are the user's answers to open calls of `ask_user`, by call id; `client` is the address of the connection;
    `callers` are the sessions of the agents that called this one, the user's own first. With `compression` nothing is
    answered: older turns are summarised.
    """

    session_id: UUID
    user: Any
    leaf: int
    agent: Agent
    model: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    client: JsonObject = field(default_factory=dict)
    compression: CompressionRequest | None = None
    callers: tuple[UUID, ...] = ()
    budget: TurnBudget = OWN_BUDGET

    def __post_init__(self) -> None:
        if self.budget is OWN_BUDGET:
            whole = TurnBudget(tokens=self.agent.max_turn_tokens or None, calls=settings.PARLEY_AGENT_CALLS)
            object.__setattr__(self, "budget", whole)


class TurnObserver(Protocol):
    """The run of a turn, which is notified of every step. `stop_reason` says why the turn was cancelled."""

    id: UUID
    stop_reason: str
    # Run the turn of another agent and wait for its end. If this run is stopped, so is that one.
    run_subagent: Callable[[TurnInput], Awaitable[Run]]

    async def on_call(self, exchange: Exchange, assembler: Assembler, *, model: str, role: RoleName) -> None: ...
    def on_retry(self, error: ProviderError, seconds: float) -> None: ...  # of the wait before the next attempt
    def on_event(self, event: Event) -> None: ...
    async def on_stored(self, *, leaf: int) -> None: ...
    async def on_summarising(self, *, is_on: bool) -> None: ...
    async def on_tool_calls(self, *, seq: int, requests: Sequence[ToolRequest]) -> None: ...
    def on_tool_result(self, *, seq: int, index: int, result: ToolResult) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    seq: int
    output: ModelOutput


class TurnFailed(Exception):
    """The turn ended with an error that is stored with its answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


async def store_entries(turn: TurnInput, observer: TurnObserver, *entries: Entry, after: int) -> int:
    leaf = await finish_if_cancelled(store_once(partial(_append, observer.id, turn.session_id, entries, after)))
    await observer.on_stored(leaf=leaf)
    return leaf


def _append(run_id: UUID, session_id: UUID, entries: Sequence[Entry], after: int, *, is_repeated: bool) -> int:
    with writing():
        session = Session.objects.get(pk=session_id)
        last = entries[-1]
        stored = Message.objects.of(session).filter(seq__gt=after, kind=last.kind, created_at=last.at)
        if is_repeated and (seq := stored.values_list("seq", flat=True).last()):
            return set_leaf(run_id, seq)
        return set_leaf(run_id, recorder.append_behind(session, entries, after=after)[-1].seq)


def set_leaf(run_id: UUID, leaf: int) -> int:
    _store_leaf(run_id, leaf)
    return leaf


@prepared_update
def _store_leaf(run_id: UUID, leaf: int) -> tuple[QuerySet[Run], dict[str, Any]]:
    return Run.objects.filter(pk=run_id), {"leaf": leaf}


def request_compression(run_id: UUID) -> bool:
    """Have the run summarise older turns before its next call, or at its end. False: it has ended."""
    waiting = Run.objects.filter(pk=run_id, ended_at=None)
    with writing():
        return bool(waiting.update(compression_asked_at=timezone.now()))


def read_updates(run_id: UUID, session_id: UUID, leaf: int) -> tuple[int, CompressionRequest | None]:
    """The leaf behind notes that were added to the path of the run, and a request to compress, taken once."""
    now = behind_notes(session_id, leaf)
    if now != leaf:
        with writing():
            set_leaf(run_id, now)
    return now, CompressionRequest(why="asked") if _take_compression_request(run_id) else None


def _take_compression_request(run_id: UUID) -> bool:
    if not _compression_requests(run_id):
        return False
    with writing():
        requested = Run.objects.filter(pk=run_id, compression_asked_at__isnull=False)
        return bool(requested.update(compression_asked_at=None))


@prepared
def _compression_requests(run_id: UUID) -> QuerySet[Run, UUID]:
    return Run.objects.filter(pk=run_id, compression_asked_at__isnull=False).values_list("pk", flat=True)


def read_leaf(run_id: UUID) -> int:
    return Run.objects.values_list("leaf", flat=True).get(pk=run_id)


async def finish_if_cancelled(work: Coroutine[Any, Any, T]) -> T:
    """Finish a write before a cancellation takes effect: half a write would leave a run without its leaf."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
