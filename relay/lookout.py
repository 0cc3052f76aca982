"""Processes that share a database but no Redis do not hear each other: each looks once a second for itself.

When a session that sockets of this process have open has grown, or is being answered by another process, they are told
that it has changed; what has changed they read from the database. What was said here they were told already.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from history.models import Session
from relay import broadcast, runs
from relay.models import Run


@dataclass(frozen=True, slots=True)
class Seen:
    """A session as it was at the last look."""

    version: int
    runs_elsewhere: frozenset[UUID]
    at: float


_seen: dict[UUID, Seen] = {}


def look() -> None:
    """A job of every process. Two small queries, however many sockets there are; none where there are none."""
    opened = {} if settings.REDIS_URL else broadcast.opened_here()
    for session_id in _seen.keys() - opened.keys():
        del _seen[session_id]
    if not opened:
        return
    now, elsewhere = time.monotonic(), _runs_elsewhere(opened)
    for session_id, version in Session.objects.filter(pk__in=opened).values_list("pk", "version"):
        first = opened[session_id]
        before = _seen.get(session_id) or Seen(first.version, frozenset(), first.at)
        _seen[session_id] = Seen(version, frozenset(elsewhere[session_id]), now)
        if _has_news(before, _seen[session_id], told_at=first.told_at):
            broadcast.tell_session_from_thread(session_id, broadcast.CHANGED)


def _runs_elsewhere(session_ids: dict[UUID, broadcast.Opened]) -> dict[UUID, set[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for run_id, session_id in Run.objects.filter(session__in=session_ids, ended_at=None).values_list("pk", "session"):
        if not runs.is_here(run_id):
            found[session_id].add(run_id)
    return found


def _has_news(before: Seen, now: Seen, *, told_at: float) -> bool:
    """Somebody else has begun to answer, or it has grown and nobody here was told anything since the last look."""
    is_answered = bool(now.runs_elsewhere - before.runs_elsewhere)
    return is_answered or (now.version != before.version and told_at < before.at)
