"""Updates of open pages without Redis: what the digester and `manage.py work` wrote is read once a second.

With Redis those processes notify the pages themselves (`relay.digest.digester`). Several web processes need Redis, so
nothing here looks for what another web process does.
"""

import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from history.db.parameters import among
from history.models import Exchange, Session
from relay.live import groups
from relay.live.sign_outs import local_users

RECENT = timedelta(seconds=60)
MOST_LISTED = 200
MOST_BELOW = 1_000
# A program that has made so many calls in a session since an open one does not wait for that one.
NEWEST_CALLS = 8
MAX_OPEN_CALLS = 2_000


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session at the last look: its version, the sessions below it, and the open calls of programs in it."""

    at: float = field(compare=False)
    version: int
    below: frozenset[UUID] = frozenset()
    open_calls: frozenset[UUID] = frozenset()


_seen: dict[UUID, SessionState] = {}
_listed: dict[UUID, int] = {}  # versions of relayed sessions, as the lists of local users show them


def refresh_open_sessions() -> None:
    """A job of every process: a few small queries, however many sockets are open. None with Redis."""
    opened = {} if settings.REDIS_URL else groups.local_sessions()
    for session_id in _seen.keys() - opened.keys():
        del _seen[session_id]
    if not opened:
        return
    now, below, calls = time.monotonic(), _sessions_below(opened), _open_calls(opened)
    rows = Session.objects.filter(pk__in=among(opened)).values_list("pk", "version", "source")
    for session_id, version, source in rows:
        first = opened[session_id]
        before = _seen.get(session_id) or SessionState(first.at, first.version)
        state = SessionState(now, version, frozenset(below[session_id]), frozenset(calls[session_id]))
        _seen[session_id] = state
        if state == before:
            continue
        # Changes that this process made were sent to its pages already.
        if first.sent_at < before.at:
            groups.refresh_local_sockets(session_id)
        elif source == Session.Source.RELAY:  # perhaps before the digester wrote this: the next look decides
            _seen[session_id] = replace(before, at=now)


def refresh_session_lists() -> None:
    """A job of every process: what was relayed a moment ago appears in the open lists."""
    users = {} if settings.REDIS_URL else local_users()
    if not users:
        _listed.clear()
        return
    relayed = Session.objects.open().filter(
        owner__in=among(users, kind=int),
        source=Session.Source.RELAY,
        parent=None,
        last_activity_at__gte=timezone.now() - RECENT,
    )
    newest = relayed.order_by("-last_activity_at").values_list("pk", "owner", "version")[:MOST_LISTED]
    known = dict(_listed)
    _listed.clear()
    for pk, owner, version in newest:
        _listed[pk] = version
        if known.get(pk) != version:
            groups.notify_sidebar(owner, pk)


def _sessions_below(opened: Collection[UUID]) -> dict[UUID, set[UUID]]:
    """Sessions that agents opened below each session. One query for each level."""
    below: dict[UUID, set[UUID]] = {pk: set() for pk in opened}
    above: dict[UUID, set[UUID]] = {pk: {pk} for pk in opened}  # of one level: the open sessions above each
    for _ in range(settings.PARLEY_AGENT_DEPTH):
        rows = Session.objects.open().filter(parent__in=among(above)).values_list("pk", "parent_id")
        children: dict[UUID, set[UUID]] = defaultdict(set)
        for child, parent in rows[:MOST_BELOW]:
            children[child] |= above[parent]
            for top in above[parent]:
                below[top].add(child)
        if not (above := children):
            break
    return below


def has_open_call(session: Session) -> bool:
    """Whether a program waits for an answer in this session. Only the newest calls: a session may have thousands."""
    if session.source != Session.Source.RELAY:
        return False
    calls = Exchange.objects.filter(session=session).order_by("-started_at", "-id")
    newest = calls.values_list("ended_at", "heartbeat_at")[:NEWEST_CALLS]
    # The heartbeat of relayed calls is in the journal, so `heartbeat_at` is a time in the future.
    return any(ended is None and until > timezone.now() for ended, until in newest)


def _open_calls(session_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
    """Open calls by session. The index of open exchanges is fast; by session, all calls would be read."""
    waiting = Exchange.objects.running().filter(heartbeat_at__gt=timezone.now()).order_by("-heartbeat_at")
    calls: dict[UUID, set[UUID]] = defaultdict(set)
    for session_id, exchange_id in waiting.values_list("session", "pk")[:MAX_OPEN_CALLS]:
        if session_id is not None and session_id in session_ids:
            calls[session_id].add(exchange_id)
    return calls
