"""Processes that share a database but no Redis do not hear each other: each looks once a second for itself.

When a session that sockets of this process have open has grown, is being answered by another process, or has agents who
begin or end below it, they are told that it has changed; what has changed they read from the database. What was said
here they were told already. The same for the lists beside them: what programs say through the relay is stored by a
process that has no sockets at all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from history.db.in_list import among
from history.models import Session
from relay.live import groups, runs
from relay.live.running import answering, calls_waited_for
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


def look() -> None:
    """A job of every process. Four small queries, however many sockets there are; none where there are none."""
    opened = {} if settings.REDIS_URL else groups.opened_here()
    for session_id in _seen.keys() - opened.keys():
        del _seen[session_id]
    if not opened:
        return
    now, elsewhere, below, waited_for = time.monotonic(), _runs_elsewhere(opened), _below(opened), _waited_for(opened)
    for session_id, version in Session.objects.filter(pk__in=among(opened)).values_list("pk", "version"):
        first = opened[session_id]
        before = _seen.get(session_id) or SessionState(first.version, frozenset(), first.at)
        _seen[session_id] = SessionState(
            version, frozenset(elsewhere[session_id]), now, below[session_id], frozenset(waited_for[session_id])
        )
        if _has_news(before, _seen[session_id], told_at=first.told_at):
            groups.have_session_looked_at(session_id)


def look_at_lists() -> None:
    """A job of every process: what was relayed a moment ago appears in the lists that are open here."""
    people = {} if settings.REDIS_URL else groups.persons_here()
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
            groups.tell_person_from_thread(owner, {"type": "rail.changed", "session": str(pk)})


def _runs_elsewhere(session_ids: dict[UUID, groups.Opened]) -> dict[UUID, set[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    others = Run.objects.filter(session__in=among(session_ids), ended_at=None).exclude(pk__in=among(runs.all_here()))
    for run_id, session_id in others.values_list("pk", "session"):
        if not runs.is_here(run_id):  # it has begun since we asked
            found[session_id].add(run_id)
    return found


def _waited_for(session_ids: dict[UUID, groups.Opened]) -> dict[UUID, set[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for session_id, exchange_id in calls_waited_for(session_ids.keys()):
        found[session_id].add(exchange_id)
    return found


def _below(session_ids: dict[UUID, groups.Opened]) -> dict[UUID, frozenset[tuple[UUID, bool]]]:
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
    working = answering(child for those in children.values() for child in those)
    return {one: frozenset((pk, pk in working) for pk in _all_below(one, children)) for one in session_ids}


def _all_below(session_id: UUID, children: dict[UUID, list[UUID]]) -> set[UUID]:
    found: set[UUID] = set()
    level = [session_id]
    while level:
        level = [child for parent in level for child in children.get(parent, ()) if child not in found]
        found.update(level)
    return found


def _has_news(before: SessionState, now: SessionState, *, told_at: float) -> bool:
    """Somebody else has begun to answer, or it has grown and nobody here was told anything since the last look."""
    is_answered = bool(now.runs_elsewhere - before.runs_elsewhere)
    has_grown = (now.version, now.below, now.waited_for) != (before.version, before.below, before.waited_for)
    return is_answered or (has_grown and told_at < before.at)
