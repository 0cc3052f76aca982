"""Turns that are being answered here: they outlive the socket that asked for them.

A run is a task of this process and a row that every process can read. It tells whoever watches the session how it goes
by numbered frames (`relay.live`), notes the answer so far for everybody else, and ends with an outcome, whatever
happens: done, waiting for a person, stopped, failed, or lost with its process. To stop it, ask its row: whichever
process it lives in looks there once a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from history import exchanges
from history.assembly import Assembler
from history.entries import ModelOutput, ToolRequest, ToolResult
from history.events import Event
from history.models import Exchange, Session
from history.transactions import writing
from relay import broadcast
from relay.agent import loop
from relay.agent.calls import Prepared
from relay.agent.settings import RoleName
from relay.agent.turn import Turn, TurnFailed
from relay.database import in_database
from relay.errors import RelayError
from relay.live import Frame, Piece, merged, piece_of
from relay.models import QueuedMessage, Run

logger = logging.getLogger(__name__)

LIVES_FOR = timedelta(seconds=30)  # without a sign of life, a run counts as lost
PATIENCE = timedelta(minutes=1)
KEPT_FOR = timedelta(days=7)
DRAIN_SECONDS = 5.0
# Pieces are gathered before they are shown: longer the more there is to tell, to whomever.
SHORTEST_PACE, PACE_PER_TELLING, LONGEST_PACE = 0.05, 0.0015, 0.5

OnEnd = Callable[[Run], Awaitable[None]]


@dataclass(slots=True)
class _Paced:
    until: float = 0.0
    seconds: float = SHORTEST_PACE


_paced = _Paced()
_running: dict[UUID, LiveRun] = {}
_tasks: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class SoFar:
    """An answer on its way, up to and including frame `n`."""

    exchange: str
    n: int
    output: ModelOutput | None
    names: tuple[str, ...] = ()


class LiveRun:
    """One run of this process: tells its watchers, and can be stopped."""

    def __init__(self, turn: Turn, *, run_id: UUID) -> None:
        self.id, self.turn = run_id, turn
        self.n = 0
        self.stop_reason = ""
        self.task: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()
        self._exchange: UUID | None = None
        self._assembler: Assembler | None = None
        self._shown: ModelOutput | None = None
        self._names: tuple[str, ...] = ()
        self._pending: list[Piece] = []
        self._has_news = asyncio.Event()
        self._order = asyncio.Lock()

    # What the agent's loop tells us.

    async def opened(self, prepared: Prepared, assembler: Assembler, *, role: RoleName) -> None:
        self._exchange, self._assembler = prepared.exchange.pk, assembler
        await self._tell("opened", model=prepared.route.name, role=role, after=prepared.exchange.after)
        exchanges.note_partial(prepared.exchange.pk, assembler.output(metadata={"n": self.n}))

    def fed(self, event: Event) -> None:
        piece = piece_of(event)
        if piece is not None:
            self._pending.append(piece)
            self._has_news.set()

    async def stored(self, *, leaf: int) -> None:
        await self._flush()
        self._exchange = self._assembler = self._shown = None
        await self._tell("stored", leaf=leaf)

    async def calling(self, *, seq: int, requests: Sequence[ToolRequest]) -> None:
        await self._tell("calling", seq=seq, count=len(requests))

    def result(self, *, seq: int, index: int, result: ToolResult) -> None:
        told = self._tell("result", seq=seq, index=index, status=result.status, duration=result.duration)
        _keep(self.loop.create_task(told))

    # What watchers ask us.

    def so_far(self) -> SoFar:
        """Everything up to the last frame; what is gathered for the next one is not in it."""
        return SoFar(str(self._exchange or ""), self.n, self._shown, self._names)

    def stop(self, reason: str) -> None:
        if self.task is not None and not self.stop_reason:
            self.stop_reason = reason
            self.task.cancel()

    # Frames.

    async def pump(self) -> None:
        """The first piece at once, then what has gathered."""
        while True:
            await self._has_news.wait()
            await self._flush()
            await asyncio.sleep(pace())

    async def _flush(self) -> None:
        async with self._order:
            await self._flush_in_order()

    async def _flush_in_order(self) -> None:
        self._has_news.clear()
        pieces, self._pending = merged(self._pending), []
        if not pieces or self._assembler is None or self._exchange is None:
            return
        self.n += 1
        self._names = self._assembler.part_names
        self._shown = self._assembler.output(metadata={"n": self.n, "names": list(self._names)})
        exchanges.note_partial(self._exchange, self._shown)
        await self._send({"kind": "pieces", "pieces": pieces})

    async def _tell(self, kind: str, **what: Any) -> None:
        async with self._order:
            await self._flush_in_order()
            if kind == "opened":
                self._shown, self._names = None, ()
            self.n += 1
            await self._send({"kind": kind, **what})

    async def _send(self, frame: Frame) -> None:
        frame |= {"type": "run.frame", "run": str(self.id), "n": self.n, "exchange": str(self._exchange or "")}
        await broadcast.tell_session(self.turn.session_id, frame)

    async def ended(self, run: Run) -> None:
        await self._tell("ended", outcome=run.outcome, error=run.error, leaf=run.leaf)


def pace() -> float:
    """How long pieces are gathered. Looked at twice a second: with many runs, counting them is work of its own."""
    now = time.monotonic()
    if now >= _paced.until:
        _paced.until, _paced.seconds = now + 0.5, _pace()
    return _paced.seconds


def _pace() -> float:
    """The more there is to tell at once, the longer: all of it together takes no more than a part of our time."""
    tellings = sum(1 + broadcast.sockets_of(live.turn.session_id) for live in _running.values())
    return min(max(SHORTEST_PACE, PACE_PER_TELLING * tellings), LONGEST_PACE)


# Beginning and ending.


async def start(turn: Turn, *, on_end: OnEnd | None = None) -> UUID:
    """Begin to answer; returns as soon as that is written down. The answer comes when it comes."""
    live = LiveRun(turn, run_id=uuid4())
    await in_database(_write_down, live)
    _running[live.id] = live
    live.task = _keep(asyncio.get_running_loop().create_task(_carry(live, on_end)))
    await _tell_person(turn)
    return live.id


def _write_down(live: LiveRun) -> None:
    turn = live.turn
    with writing():
        Run.objects.create(
            pk=live.id,
            session=turn.session_id,
            owner=turn.user,
            agent=turn.agent.name,
            model=turn.model,
            origin=turn.leaf,
            leaf=turn.leaf,
        )


async def _carry(live: LiveRun, on_end: OnEnd | None) -> None:
    pump = asyncio.get_running_loop().create_task(live.pump())
    outcome, error = Run.Outcome.FAILED, ""
    try:
        outcome = await loop.answer(live.turn, live)
    except asyncio.CancelledError:
        outcome = Run.Outcome.LOST if live.stop_reason == "server_stopped" else Run.Outcome.STOPPED
    except TurnFailed as failed:
        error = f"{type(failed.error).__name__}:{failed.error.kind}"
    except RelayError as refused:
        error = type(refused).__name__
        await loop.refuse(live.turn, live, refused)
    except Exception:
        logger.exception("A run failed.")
        error = "internal"
    finally:
        pump.cancel()
    await _end(live, outcome, error, on_end)


async def _end(live: LiveRun, outcome: Run.Outcome, error: str, on_end: OnEnd | None) -> None:
    try:
        run = await in_database(_write_end, live.id, outcome, error)
    finally:
        _running.pop(live.id, None)
    await live.ended(run)
    await _tell_person(live.turn)
    if on_end is not None and live.stop_reason != "server_stopped":
        await on_end(run)


def _write_end(run_id: UUID, outcome: Run.Outcome, error: str) -> Run:
    with writing():
        Run.objects.filter(pk=run_id, ended_at=None).update(ended_at=timezone.now(), outcome=outcome, error=error)
    return Run.objects.get(pk=run_id)


async def _tell_person(turn: Turn) -> None:
    await broadcast.tell_person(turn.user.pk, {"type": "rail.changed", "session": str(turn.session_id)})


def _keep(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """A loop holds its tasks loosely: one that nobody holds may vanish in the middle."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


# Watching and stopping, from any process.


def is_here(run_id: UUID) -> bool:
    return run_id in _running


async def so_far(run_id: UUID) -> SoFar | None:
    """The answer of a run up to now: from this process, or as its own last noted it. None: no answer is on its way."""
    return so_far_here(run_id) or await in_database(_so_far_elsewhere, run_id)


def so_far_here(run_id: UUID) -> SoFar | None:
    live = _running.get(run_id)
    return live.so_far() if live else None


def _so_far_elsewhere(run_id: UUID) -> SoFar | None:
    run = Run.objects.filter(pk=run_id, ended_at=None).first()
    exchange = open_exchange_of(run) if run else None
    return noted(exchange) if exchange else None


def open_exchange_of(run: Run) -> Exchange | None:
    """The call that this run waits for, if it does. Another run may have begun at the same place after it."""
    waiting = Exchange.objects.filter(session_id=run.session, ended_at=None, after=run.leaf)
    return waiting.filter(started_at__gte=run.started_at).order_by("started_at").first()


def noted(exchange: Exchange) -> SoFar:
    """The answer so far, as the process that writes it noted it last."""
    output = exchanges.partial_of(exchange)
    told = output.metadata if output else {}
    return SoFar(str(exchange.pk), int(told.get("n", 0)), output, tuple(told.get("names", ())))


def running_in(session_id: UUID) -> list[Run]:
    return list(Run.objects.filter(session=session_id, ended_at=None).order_by("started_at"))


def request_stop(run_id: UUID) -> None:
    """Ask whichever process it lives in; ours at once."""
    with writing():
        Run.objects.filter(pk=run_id, ended_at=None, stop_requested_at=None).update(stop_requested_at=timezone.now())
    if live := _running.get(run_id):
        live.loop.call_soon_threadsafe(live.stop, "stopped")


def request_stop_session(session_id: UUID) -> None:
    for run in running_in(session_id):
        request_stop(run.pk)


# The house looks after us.


def beat() -> None:
    """A sign of life of every run here, and a look whether somebody wants one to stop. Once a second."""
    here = dict(_running)
    if not here:
        return
    with writing():
        Run.objects.filter(pk__in=here, ended_at=None).update(heartbeat_at=timezone.now())
    stops = Run.objects.filter(pk__in=here, stop_requested_at__isnull=False).values_list("pk", flat=True)
    for run_id in stops:
        here[run_id].loop.call_soon_threadsafe(here[run_id].stop, "stopped")


def sweep() -> None:
    """Runs whose process is gone have ended, as soon as what they had of an answer has become a message."""
    try:
        exchanges.sweep()
    finally:
        now = timezone.now()
        for run in Run.objects.filter(ended_at=None, heartbeat_at__lt=now - LIVES_FOR):
            if not _is_being_kept(run) and _end_lost(run):
                broadcast.tell_session_from_thread(run.session, broadcast.CHANGED)
        with writing():
            Run.objects.filter(ended_at__lt=now - KEPT_FOR).delete()
            # What waits in a session that is gone for good waits for nothing.
            forgotten = QueuedMessage.objects.filter(created_at__lt=now - KEPT_FOR)
            forgotten.exclude(session__in=Session.objects.values("pk")).delete()


def _is_being_kept(run: Run) -> bool:
    """Whether its answer will be a message soon. If it cannot, its run waits a minute, not for ever."""
    exchange = open_exchange_of(run)
    return exchange is not None and exchange.heartbeat_at > timezone.now() - exchanges.LIVES_FOR - PATIENCE


def _end_lost(run: Run) -> bool:
    """False where it has come to life again meanwhile."""
    swept = Exchange.objects.filter(session_id=run.session, after=run.leaf, started_at__gte=run.started_at)
    leaf = swept.filter(end_reason=exchanges.SERVER_LOST).values_list("message__seq", flat=True).first()
    silent = Run.objects.filter(pk=run.pk, ended_at=None, heartbeat_at=run.heartbeat_at)
    with writing():
        return bool(silent.update(ended_at=timezone.now(), outcome=Run.Outcome.LOST, leaf=leaf or run.leaf))


async def drain() -> None:
    """End every run of this process in good order: what there is of an answer is kept."""
    tasks = [live.task for live in _running.values() if live.task is not None]
    for live in list(_running.values()):
        live.stop("server_stopped")
    if tasks:
        await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
