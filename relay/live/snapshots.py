"""Snapshots of a run, read from its task in this process or from the database."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from history.entries import ModelOutput
from history.models import Exchange, Message, Session
from history.record import exchanges
from history.record.selectors import entries_of
from relay.live.frames import RunSnapshot, StoredEntry, pieces_of
from relay.live.run_task import local_tasks
from relay.models import Run
from relay.runtime.async_db import in_database

# How often a run is read again that changes while it is read.
MOST_READS = 5


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
