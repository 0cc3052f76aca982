"""Runs of this process: the task that answers, the frames that it sends, and snapshots of runs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.utils import timezone

from history.answers.assembly import Assembler
from history.answers.events import Event
from history.db.transactions import writing
from history.entries import ModelOutput, ToolRequest, ToolResult
from history.models import Exchange, Message, Session
from history.record import exchanges
from history.record.selectors import entries_of
from relay.agents.turn import TurnInput
from relay.errors import ProviderError
from relay.live import groups
from relay.live.frames import Frame, Piece, RunSnapshot, StoredEntry, merge_pieces, piece_of, pieces_of
from relay.models import Run
from relay.models.agents import RoleName
from relay.runtime.async_db import end_admission, in_database, in_database_after_outages

# Seconds between two frames with text. It grows with the number of sockets, up to the maximum.
MIN_INTERVAL, INTERVAL_PER_SOCKET, MAX_INTERVAL = 0.05, 0.0025, 1.0
MIN_RETRY_NOTICE = 2.0  # shorter waits for the next attempt are not shown: they end before a user has read the notice


_interval = {"until": 0.0, "seconds": MIN_INTERVAL}  # a cache for half a second
local_tasks: "dict[UUID, RunTask]" = {}
MOST_READS = 5  # how often a run is read again that changes while it is read


class RunTask:
    """One run of this process. It observes the turn of its agent, sends frames to viewers, and can be stopped."""

    run_subagent: Callable[[TurnInput], Awaitable[Run]]

    def __init__(self, turn: TurnInput, *, run_id: UUID) -> None:
        self.id, self.turn, self._name = run_id, turn, str(run_id)
        self.n = 0
        self.stop_reason = ""
        self.task: asyncio.Task[Run | None] | None = None
        self.loop = asyncio.get_running_loop()
        self._exchange: UUID | None = None
        self._after = turn.leaf
        self._assembler: Assembler | None = None
        self._retry: Frame | None = None  # the next attempt to call a provider: its error, and when it begins
        self._model = self._role = ""
        self._pending: list[Piece] = []
        self._has_pieces = asyncio.Event()

    # Called by the agent's loop (`relay.agents.turn.TurnObserver`).

    async def on_call(self, exchange: Exchange, assembler: Assembler, *, model: str, role: RoleName) -> None:
        end_admission()
        self._exchange, self._assembler, self._after = exchange.pk, assembler, exchange.after
        self._retry, self._model, self._role = None, model, role
        self._send_next("opened", model=model, role=role)
        exchanges.note_partial(exchange.pk, assembler.snapshot(), n=self.n)

    def on_retry(self, error: ProviderError, seconds: float) -> None:
        """Pages show that the provider is busy. The frame is not part of the answer and does not count in `n`."""
        if seconds < MIN_RETRY_NOTICE:
            return
        self._retry = {"error": error.kind, "at": time.time() + seconds}
        self._send({"kind": "retrying", **self._retry})

    def on_event(self, event: Event) -> None:
        self._retry = None
        piece = piece_of(event)
        if piece is not None:
            if not self._pending:
                self._has_pieces.set()
            self._pending.append(piece)

    async def on_stored(self, *, leaf: int) -> None:
        self._flush()
        self._exchange = self._assembler = None
        self._after = leaf
        self._send_next("stored", leaf=leaf)

    async def on_summarising(self, *, is_on: bool) -> None:
        await in_database_after_outages(_set_summarising, self.id, is_on=is_on)
        self._send_next("summarising", is_on=is_on)

    async def on_tool_calls(self, *, seq: int, requests: Sequence[ToolRequest]) -> None:
        self._send_next("calling", seq=seq, count=len(requests))

    def on_tool_result(self, *, seq: int, index: int, result: ToolResult) -> None:
        self._send_next("result", seq=seq, index=index, status=result.status, duration=result.duration)

    # Called by viewers and by `relay.live.runs`.

    def snapshot(self) -> RunSnapshot:
        """The run up to the last frame; pending pieces are sent first. Call it in the event loop of the run."""
        self._flush()
        assembler = self._assembler
        return RunSnapshot(
            self.n,
            after=self._after,
            exchange=str(self._exchange or ""),
            pieces=pieces_of(assembler.output(), assembler.part_names) if assembler is not None else (),
            model=self._model,
            role=self._role,
            retry=self._retry,
        )

    def stop(self, reason: str) -> None:
        if self.task is not None and not self.stop_reason:
            self.stop_reason = reason
            self.task.cancel()

    def send_end(self, run: Run) -> None:
        self._send_next("ended", outcome=run.outcome, error=run.error, leaf=run.leaf)

    async def send_pieces(self) -> None:
        """Send the first piece at once, and then what has gathered, until cancelled."""
        while True:
            await self._has_pieces.wait()
            self._flush()
            await asyncio.sleep(send_interval())

    def _flush(self) -> None:
        self._has_pieces.clear()
        pieces, self._pending = merge_pieces(self._pending), []
        if not pieces or self._assembler is None or self._exchange is None:
            return
        self.n += 1
        exchanges.note_partial(self._exchange, self._assembler.snapshot(), n=self.n)
        self._send({"kind": "pieces", "pieces": pieces})

    def _send_next(self, kind: str, **fields: Any) -> None:
        self._flush()
        self.n += 1
        self._send({"kind": kind, **fields})

    def _send(self, frame: Frame) -> None:
        """Never waits, so `snapshot` always matches the last frame that was sent."""
        frame |= {"type": "run.frame", "run": self._name, "n": self.n}
        frame |= {"exchange": str(self._exchange or ""), "after": self._after}
        groups.send_to_session(self.turn.session_id, frame)


def _set_summarising(run_id: UUID, *, is_on: bool) -> None:
    with writing():
        Run.objects.filter(pk=run_id).update(summarising_at=timezone.now() if is_on else None)


def send_interval() -> float:
    """Seconds between two frames with text. Computed twice a second: with many runs, counting sockets is expensive."""
    now = time.monotonic()
    if now >= _interval["until"]:
        _interval.update(until=now + 0.5, seconds=_compute_interval())
    return _interval["seconds"]


def _compute_interval() -> float:
    """Sending takes about a quarter of the time of this process, however many sockets there are."""
    receivers = sum(1 + groups.count_local_sockets(task.turn.session_id) for task in local_tasks.values())
    return min(max(MIN_INTERVAL, INTERVAL_PER_SOCKET * receivers), MAX_INTERVAL)


def local_snapshot(run_id: UUID) -> RunSnapshot | None:
    """None: the run is in another process, or has ended."""
    task = local_tasks.get(run_id)
    return task.snapshot() if task else None


async def read_snapshot(run_id: UUID) -> RunSnapshot | None:
    """A run for a viewer that opens its session, from this process or as its own process noted it last."""
    return local_snapshot(run_id) or await in_database(read_start, run_id)


def read_start(run_id: UUID) -> RunSnapshot | None:
    """A run of another process. None: it has ended."""
    run, exchange, _ = _read_run(run_id)
    if run is None or run.ended_at is not None:
        return None
    return _partial_answer(exchange) if exchange else RunSnapshot(0, after=run.leaf)


def read_since(run_id: UUID, leaf: int, local: RunSnapshot | None = None) -> RunSnapshot:
    """A run with its entries after `leaf`. `local` is its snapshot where it is in this process."""
    run, exchange, is_consistent = _read_run(run_id)
    if run is None:
        return RunSnapshot()
    entries = _read_entries(run, leaf, local.after if local else run.leaf)
    if local is not None:
        return replace(local, entries=entries, is_consistent=is_consistent)
    if not is_consistent:
        return RunSnapshot(entries=entries, is_consistent=False)
    if exchange is not None:
        return _partial_answer(exchange, entries)
    ended = {"kind": "ended", "outcome": run.outcome, "error": run.error, "leaf": run.leaf} if run.ended_at else None
    return RunSnapshot(entries=entries, ended=ended)


def _read_run(run_id: UUID) -> tuple[Run | None, Exchange | None, bool]:
    """A run and its open exchange. They belong together if nothing was stored between the two reads."""
    for _ in range(MOST_READS):
        run = Run.objects.filter(pk=run_id).first()
        if run is None or run.ended_at is not None:
            return run, None, True
        exchange = run.find_open_exchange()
        if Run.objects.running().filter(pk=run_id, leaf=run.leaf).exists():
            return run, exchange, True
    return run, None, False


def _partial_answer(exchange: Exchange, entries: Sequence[StoredEntry] = ()) -> RunSnapshot:
    output = exchanges.partial_of(exchange)
    notes: dict[str, Any] = dict(output.metadata) if output else {}
    return RunSnapshot(
        int(notes.get("n", 0)),
        after=exchange.after,
        exchange=str(exchange.pk),
        pieces=pieces_of(output, notes.get("names", ())),
        model=f"{exchange.provider}/{exchange.model}",
        role=exchange.inputs.get("role", "executor"),
        entries=entries,
    )


def _read_entries(run: Run, leaf: int, last: int) -> list[StoredEntry]:
    """The entries of the run after `leaf` up to `last`, oldest first, with the content of answers."""
    path: list[Message] = []
    session, place = Session(pk=run.session_id), last
    while place > (leaf or run.origin) and (message := Message.objects.at(session, place).first()):
        path.append(message)
        place = message.parent_seq
    entries = [(message.seq, entry) for message, entry in zip(path, entries_of(path), strict=True)]
    return [(seq, pieces_of(entry) if isinstance(entry, ModelOutput) else []) for seq, entry in reversed(entries)]
