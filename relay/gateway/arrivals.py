"""Credentials that arrived with the latest call of each key, and the limits that vendors report for a caller's plan.

The page of a key shows both, so that its owner sees whether a client is set up as intended. Which headers had a
credential is noted, never the credential. Notes wait in memory until a background job writes them, at most once in
`AGAIN_SECONDS` for a client that does not change.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError

from history.clients import client_name
from history.db.process_state import process_state
from history.db.transactions import writing
from history.dialects import DIALECTS
from history.models import ApiKey
from relay.gateway.call.logins import Login
from relay.models import KeyArrival, PlanLimits

AGAIN_SECONDS = 5.0
MOST_NOTED = 10_000
MOST_HEADERS, LONGEST_NAME, LONGEST_VALUE = 40, 100, 200


class Arrival(NamedTuple):
    key_header: str
    has_login: bool
    has_account: bool
    client: str


@dataclass(slots=True)
class ArrivalNotes:
    lock: threading.Lock = field(default_factory=threading.Lock)
    noted: dict[int, tuple[Arrival, float]] = field(default_factory=dict)
    arrivals: dict[int, tuple[Arrival, datetime]] = field(default_factory=dict)
    limits: dict[tuple[int, str], tuple[dict[str, str], datetime]] = field(default_factory=dict)


def note_arrival(key: ApiKey, key_header: str, login: Login | None, headers: Mapping[str, str]) -> Arrival:
    arrival = Arrival(key_header, login is not None, bool(login and login.account), client_name(headers))
    notes, now = process_state.get(ArrivalNotes), time.monotonic()
    known, at = notes.noted.get(key.pk, (None, 0.0))
    if known == arrival and now - at < AGAIN_SECONDS:
        return arrival
    with notes.lock:
        if len(notes.noted) >= MOST_NOTED:
            notes.noted.clear()
        notes.noted[key.pk] = (arrival, now)
        notes.arrivals[key.pk] = (arrival, datetime.now(UTC))
    return arrival


def note_limits(
    key: ApiKey, provider: str, dialect: str, raw: Iterable[tuple[bytes, bytes]], login: Login | None
) -> None:
    """The limits in the headers of a reply to a call with a login."""
    is_limit = DIALECTS[dialect].HTTP_API.limit_headers.match
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]
    found = {
        name: (login.mask(value) if login else value)[:LONGEST_VALUE]
        for name, value in pairs
        if is_limit(name) and len(name) <= LONGEST_NAME and value.isprintable()
    }
    if found:
        notes = process_state.get(ArrivalNotes)
        with notes.lock:
            notes.limits[key.pk, provider] = (dict(sorted(found.items())[:MOST_HEADERS]), datetime.now(UTC))


def flush_arrivals() -> None:
    """A background job, once a second. What cannot be written now is written the next time, unless there is news."""
    notes = process_state.get(ArrivalNotes)
    with notes.lock:
        arrivals, notes.arrivals = notes.arrivals, {}
        limits, notes.limits = notes.limits, {}
    if not arrivals and not limits:
        return
    try:
        _write(arrivals, limits)
    except (DatabaseError, InterfaceError):
        with notes.lock:
            notes.arrivals = arrivals | notes.arrivals
            notes.limits = limits | notes.limits
        raise


def _write(
    arrivals: Mapping[int, tuple[Arrival, datetime]], limits: Mapping[tuple[int, str], tuple[dict[str, str], datetime]]
) -> None:
    keys = {*arrivals, *(key for key, _ in limits)}
    with writing():
        known = set(ApiKey.objects.filter(pk__in=keys).values_list("pk", flat=True))  # others were erased meanwhile
        KeyArrival.objects.bulk_create(
            [KeyArrival(key_id=key, at=at, **one._asdict()) for key, (one, at) in arrivals.items() if key in known],
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["at", *Arrival._fields],
        )
        PlanLimits.objects.bulk_create(
            [
                PlanLimits(key_id=key, provider=provider, headers=headers, at=at)
                for (key, provider), (headers, at) in limits.items()
                if key in known
            ],
            update_conflicts=True,
            unique_fields=["key", "provider"],
            update_fields=["headers", "at"],
        )
