"""What a turn writes: entries after its own leaf, and where its run stands, in one step that nobody cuts in half."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.utils import timezone

from history.db.transactions import writing
from history.entries import Entry
from history.models import Message, Session
from history.record import recorder
from relay.agents.turn import Turn, TurnObserver
from relay.models import Run
from relay.runtime.async_db import in_database_after_outages

T = TypeVar("T")


async def store_entries(turn: Turn, observer: TurnObserver, *entries: Entry, after: int) -> int:
    tries = 0

    def append() -> int:
        nonlocal tries
        tries += 1
        return _append(observer.id, turn.session_id, entries, after, is_repeated=tries > 1)

    leaf = await finish_if_cancelled(in_database_after_outages(append))
    await observer.on_stored(leaf=leaf)
    return leaf


def _append(run_id: UUID, session_id: UUID, entries: Sequence[Entry], after: int, *, is_repeated: bool) -> int:
    """`is_repeated`: an earlier attempt failed, and may have been committed unnoticed."""
    with writing():
        session = Session.objects.get(pk=session_id)
        last = entries[-1]
        stored = Message.objects.of(session).filter(seq__gt=after, kind=last.kind, created_at=last.at)
        if is_repeated and (seq := stored.values_list("seq", flat=True).last()):
            return set_leaf(run_id, seq)
        return set_leaf(run_id, recorder.append_behind(session, entries, after=after)[-1].seq)


def set_leaf(run_id: UUID, leaf: int) -> int:
    Run.objects.filter(pk=run_id).update(leaf=leaf)
    return leaf


def request_compression(run_id: UUID) -> bool:
    """Somebody wants older turns summarised: the run does it before its next call, or at its end. False: it is over."""
    waiting = Run.objects.filter(pk=run_id, ended_at=None)
    with writing():
        return bool(waiting.update(compression_asked_at=timezone.now()))


def take_compression_request(run_id: UUID) -> bool:
    """Whether somebody wants that; told once."""
    asked = Run.objects.filter(pk=run_id, compression_asked_at__isnull=False)
    if not asked.exists():
        return False
    with writing():
        return bool(asked.update(compression_asked_at=None))


def set_summarising(run_id: UUID, *, is_on: bool) -> None:
    """Whoever opens the page meanwhile is told, in whichever process."""
    with writing():
        Run.objects.filter(pk=run_id).update(summarising_at=timezone.now() if is_on else None)


def read_leaf(run_id: UUID) -> int:
    return Run.objects.values_list("leaf", flat=True).get(pk=run_id)


async def finish_if_cancelled(work: Coroutine[Any, Any, T]) -> T:
    """Whoever cancels us meanwhile waits until it is stored: half a write would leave a run without its leaf."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
