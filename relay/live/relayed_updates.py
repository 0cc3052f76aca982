"""Processes that share a database but no Redis do not hear each other: each looks once a second for itself.

When a session that sockets of this process have open has grown, is being answered by another process, or has agents who
begin or end below it, they are told that it has changed; what has changed they read from the database. What was said
here they were told already. The same for the lists beside them: what programs say through the relay is stored by a
process that has no sockets at all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from history.db.in_list import among
from history.models import Exchange, Session
from relay.live import groups
from relay.live.run_task import local_tasks
from relay.models import Run


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as it was at the last look."""

    version: int
    runs_elsewhere: frozenset[UUID]
    at: float
    below: frozenset[tuple[UUID, bool]] = frozenset()
    """Sessions that agents opened from it, and whether somebody is at work there."""
    waited_for: frozenset[UUID] = frozenset()
    """Calls of programs that have no answer yet."""


_seen: dict[UUID, SessionState] = {}
_listed: dict[UUID, int] = {}  # versions of relayed sessions, as the lists of people here show them

RECENT = timedelta(seconds=60)
MOST_LISTED = 200
MOST_BELOW = 1_000
# A program that has made so many calls in a session since an open one does not wait for that one.
NEWEST_CALLS = 8
MAX_OPEN_CALLS = 2_000


def refresh_open_sessions() -> None:
    """A job of every process. Four small queries, however many sockets there are; none where there are none."""
    opened = {} if settings.REDIS_URL else groups.local_sessions()
    for session_id in _seen.keys() - opened.keys():
        del _seen[session_id]
    if not opened:
        return
    now, elsewhere, below, waited_for = time.monotonic(), _runs_elsewhere(opened), _below(opened), _open_calls(opened)
    for session_id, version in Session.objects.filter(pk__in=among(opened)).values_list("pk", "version"):
        first = opened[session_id]
        before = _seen.get(session_id) or SessionState(first.version, frozenset(), first.at)
        _seen[session_id] = SessionState(
            version, frozenset(elsewhere[session_id]), now, below[session_id], frozenset(waited_for[session_id])
        )
        if _has_news(before, _seen[session_id], sent_at=first.sent_at):
            groups.refresh_local_sockets(session_id)


def refresh_session_lists() -> None:
    """A job of every process: what was relayed a moment ago appears in the lists that are open here."""
    people = {} if settings.REDIS_URL else groups.local_users()
    if not people:
        _listed.clear()
        return
    relayed = Session.objects.not_hidden().filter(
        owner__in=among(people, kind=int),
        source=Session.Source.RELAY,
        parent=None,
        last_activity_at__gte=timezone.now() - RECENT,
    )
    found = relayed.order_by("-last_activity_at").values_list("pk", "owner", "version")[:MOST_LISTED]
    known, now = dict(_listed), {pk: version for pk, _owner, version in found}
    _listed.clear()
    _listed.update(now)
    for pk, owner, version in found:
        if known.get(pk) != version:
            groups.notify_sidebar(owner, pk)


def _runs_elsewhere(session_ids: dict[UUID, groups.OpenSession]) -> dict[UUID, set[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    others = Run.objects.filter(session__in=among(session_ids), ended_at=None).exclude(pk__in=among(list(local_tasks)))
    for run_id, session_id in others.values_list("pk", "session"):
        if run_id not in local_tasks:  # it has begun since we asked
            found[session_id].add(run_id)
    return found


def _below(session_ids: dict[UUID, groups.OpenSession]) -> dict[UUID, frozenset[tuple[UUID, bool]]]:
    """The agents at work below each session. One query where there is none, and one more for each level."""
    children: dict[UUID, list[UUID]] = defaultdict(list)
    level = list(session_ids)
    for _ in range(settings.PARLEY_AGENT_DEPTH):
        rows = Session.objects.not_hidden().filter(parent__in=among(level)).values_list("pk", "parent")[:MOST_BELOW]
        level = [child for child, _parent in rows]
        for child, parent in rows:
            if parent is not None:
                children[parent].append(child)
        if not level:
            break
    working = Run.objects.sessions_running(child for those in children.values() for child in those)
    return {one: frozenset((pk, pk in working) for pk in _all_below(one, children)) for one in session_ids}


def _all_below(session_id: UUID, children: dict[UUID, list[UUID]]) -> set[UUID]:
    found: set[UUID] = set()
    level = [session_id]
    while level:
        level = [child for parent in level for child in children.get(parent, ()) if child not in found]
        found.update(level)
    return found


def _has_news(before: SessionState, now: SessionState, *, sent_at: float) -> bool:
    """Somebody else has begun to answer, or it has grown and nobody here was told anything since the last look."""
    is_answered = bool(now.runs_elsewhere - before.runs_elsewhere)
    has_grown = (now.version, now.below, now.waited_for) != (before.version, before.below, before.waited_for)
    return is_answered or (has_grown and sent_at < before.at)


# Open calls of programs. Their heartbeat is in the journal, so `heartbeat_at` is a time in the future.


def has_open_call(session: Session) -> bool:
    """Whether a program waits for an answer in this session. Only the newest calls: a session may have thousands."""
    if session.source != Session.Source.RELAY:
        return False
    calls = Exchange.objects.of(session).order_by("-started_at", "-id")
    newest = calls.values_list("ended_at", "heartbeat_at")[:NEWEST_CALLS]
    return any(ended is None and until > timezone.now() for ended, until in newest)


def _open_calls(session_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
    """Open calls by session. The index of open exchanges is fast; by session, all calls would be read."""
    waiting = Exchange.objects.running().filter(heartbeat_at__gt=timezone.now()).order_by("-heartbeat_at")
    calls: dict[UUID, set[UUID]] = defaultdict(set)
    for session_id, exchange_id in waiting.values_list("session", "pk")[:MAX_OPEN_CALLS]:
        if session_id is not None and session_id in session_ids:
            calls[session_id].add(exchange_id)
    return calls
