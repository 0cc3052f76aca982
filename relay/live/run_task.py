"""Answers that this process is writing, published to their viewers as numbered frames (`relay.live.frames`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from history.answers.assembly import Assembler
from history.answers.events import Event
from history.entries import ModelOutput, ToolRequest, ToolResult
from history.record import exchanges
from relay.agents.requests import Prepared
from relay.agents.settings import RoleName
from relay.agents.turn import Turn
from relay.errors import ProviderError
from relay.live import groups
from relay.live.frames import Frame, Piece, merged, piece_of
from relay.models import Run

# Pieces are gathered before they are shown: longer the more there is to tell, to whomever.
SHORTEST_PACE, PACE_PER_TELLING, LONGEST_PACE = 0.05, 0.0025, 1.0
# A shorter wait for the next attempt is over before a person has read about it.
SHORTEST_RETRY_NOTICE = 2.0


@dataclass(slots=True)
class _Paced:
    until: float = 0.0
    seconds: float = SHORTEST_PACE


_paced = _Paced()
running: dict[UUID, LiveRun] = {}
_tasks: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt to call a provider: the kind of error that caused it, and when it begins (UNIX time)."""

    kind: str
    at: float


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """An answer of `model` on its way, up to and including frame `n`; it will be stored after the entry `after`.

    Without an `exchange` no answer is being written, and `after` is the last entry of the run.
    """

    exchange: str
    n: int
    output: ModelOutput | None
    names: tuple[str, ...] = ()
    after: int = 0
    retry: Retry | None = None
    model: str = ""


AnswerBelow = Callable[["LiveRun", Turn], Awaitable[Run]]


class LiveRun:
    """One run of this process: tells its watchers, and can be stopped; `below` answers the turns that it asks for."""

    def __init__(self, turn: Turn, *, run_id: UUID, below: AnswerBelow) -> None:
        self.id, self.turn, self._below = run_id, turn, below
        self.n = 0
        self.stop_reason = ""
        self.task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._exchange: UUID | None = None
        self._after = turn.leaf
        self._assembler: Assembler | None = None
        self._retry: Retry | None = None
        self._model = ""
        self._pending: list[Piece] = []
        self._has_news = asyncio.Event()

    # What the agent's loop tells us.

    async def opened(self, prepared: Prepared, assembler: Assembler, *, role: RoleName) -> None:
        self._exchange, self._assembler, self._after = prepared.exchange.pk, assembler, prepared.exchange.after
        self._retry, self._model = None, prepared.route.name
        self._tell("opened", model=self._model, role=role)
        exchanges.note_partial(prepared.exchange.pk, assembler.snapshot(), n=self.n)

    def retrying(self, error: ProviderError, seconds: float) -> None:
        """Pages show that the provider is busy. The frame is not part of the answer and does not count in `n`."""
        if seconds < SHORTEST_RETRY_NOTICE:
            return
        self._retry = Retry(error.kind, time.time() + seconds)
        self._send({"kind": "retrying", "error": error.kind, "at": self._retry.at})

    def fed(self, event: Event) -> None:
        self._retry = None
        piece = piece_of(event)
        if piece is not None:
            if not self._pending:
                self._has_news.set()
            self._pending.append(piece)

    async def stored(self, *, leaf: int) -> None:
        self._flush()
        self._exchange = self._assembler = None
        self._after = leaf
        self._tell("stored", leaf=leaf)

    async def summarising(self, *, is_on: bool) -> None:
        self._tell("summarising", is_on=is_on)

    async def calling(self, *, seq: int, requests: Sequence[ToolRequest]) -> None:
        self._tell("calling", seq=seq, count=len(requests))

    async def answer_below(self, turn: Turn) -> Run:
        return await self._below(self, turn)

    def result(self, *, seq: int, index: int, result: ToolResult) -> None:
        self._tell("result", seq=seq, index=index, status=result.status, duration=result.duration)

    # What watchers ask us.

    def so_far(self) -> PartialAnswer:
        """Everything up to now. What has gathered is sent first, so that this is the answer up to the last frame.

        Called in the event loop, as everything that feeds or sends.
        """
        self._flush()
        assembler = self._assembler
        output, names = (assembler.output(), assembler.part_names) if assembler is not None else (None, ())
        return PartialAnswer(str(self._exchange or ""), self.n, output, names, self._after, self._retry, self._model)

    def stop(self, reason: str) -> None:
        if self.task is not None and not self.stop_reason:
            self.stop_reason = reason
            self.task.cancel()

    # Frames.

    async def pump(self) -> None:
        """The first piece at once, then what has gathered."""
        while True:
            await self._has_news.wait()
            self._flush()
            await asyncio.sleep(pace())

    def _flush(self) -> None:
        self._has_news.clear()
        pieces, self._pending = merged(self._pending), []
        if not pieces or self._assembler is None or self._exchange is None:
            return
        self.n += 1
        exchanges.note_partial(self._exchange, self._assembler.snapshot(), n=self.n)
        self._send({"kind": "pieces", "pieces": pieces})

    def _tell(self, kind: str, **what: Any) -> None:
        self._flush()
        self.n += 1
        self._send({"kind": kind, **what})

    def _send(self, frame: Frame) -> None:
        """Never waits, so `so_far` always fits the last frame that was sent."""
        frame |= {"type": "run.frame", "run": str(self.id), "n": self.n}
        frame |= {"exchange": str(self._exchange or ""), "after": self._after}
        groups.tell_session_from_thread(self.turn.session_id, frame)

    async def ended(self, run: Run) -> None:
        self._tell("ended", outcome=run.outcome, error=run.error, leaf=run.leaf)


def pace() -> float:
    """How long pieces are gathered. Looked at twice a second: with many runs, counting them is work of its own."""
    now = time.monotonic()
    if now >= _paced.until:
        _paced.until, _paced.seconds = now + 0.5, _pace()
    return _paced.seconds


def _pace() -> float:
    """The more there is to tell at once, the longer: all of it together takes about a quarter of our time."""
    tellings = sum(1 + groups.sockets_of(live.turn.session_id) for live in running.values())
    return min(max(SHORTEST_PACE, PACE_PER_TELLING * tellings), LONGEST_PACE)


def keep(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """A loop holds its tasks loosely: one that nobody holds may vanish in the middle."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task
