"""The audit chain: sealed events of who read, exported, held or removed what, and why.

Events have ids, not names, so that users can be erased. They outlive their session: only they know of its removal.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.utils import timezone

from history.access.permissions import Viewer
from history.db.packing import clean, dump
from history.db.transactions import writing
from history.models import ApiKey, AuditEvent
from history.models.seals import audit_seal_of

_LOCK = 0x5061726C6579  # any number that no other advisory lock uses


class Flaw(NamedTuple):
    seq: int
    problem: str


def record(action: str, *, session: UUID | None = None, **facts: Any) -> AuditEvent:
    """Append one event, in the caller's transaction. `record_each` has the names of the facts."""
    return record_each(action, [session], **facts)[0]


def record_each(
    action: str,
    sessions: Iterable[UUID | None],
    *,
    actor: int | None = None,
    key: int | None = None,
    reason: str = "",
    **details: Any,
) -> list[AuditEvent]:
    payload = {"action": action, "actor": actor, "key": key, "reason": clean(reason)}
    with writing():
        if connection.vendor == "postgresql":  # the chain has one end; SQLite has one writer anyway
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        last = AuditEvent.objects.order_by("-seq").only("seq", "seal").first()
        first, seal, events = (last.seq + 1, last.seal, []) if last else (1, b"", [])
        for seq, session in enumerate(sessions, first):
            event = AuditEvent(seq=seq, at=timezone.now(), session=session, **payload)
            event.details = dump(details) if details else ""
            event.seal = seal = _seal(event, seal)
            events.append(event)
        return AuditEvent.objects.bulk_create(events)


def who(viewer: Viewer | None) -> dict[str, Any]:
    """The user or the key of an event. None is the server."""
    if isinstance(viewer, ApiKey):
        return {"actor": None, "key": viewer.pk}
    return {"actor": viewer.pk if viewer else None, "key": None}


def flaws() -> Iterator[Flaw]:
    """The first flaw of the chain, if it has one."""
    previous, expected = b"", 1
    for event in AuditEvent.objects.order_by("seq").iterator(chunk_size=2_000):
        if event.seq != expected:
            yield Flaw(expected, "missing")
            return
        if event.seal != _seal(event, previous):
            yield Flaw(event.seq, "altered")
            return
        previous, expected = event.seal, expected + 1


def _seal(event: AuditEvent, previous: bytes) -> bytes:
    at, facts = event.at.astimezone(UTC).isoformat(), (event.session, event.reason, event.details)
    return audit_seal_of(previous, event.seq, at, event.action, event.actor, event.key, *facts)
