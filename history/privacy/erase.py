"""Erasing one person: sessions for good, keys ended and stripped, the account without a name. Held sessions stay.

First nothing new can come: the account is shut and the keys are revoked. Then everything goes, and the last step is the
receipt: what was removed, what was kept and why, and where the audit chain stands. If it is interrupted, run it
again. The chain keeps its events, which hold ids and the reasons that people gave, because it would be broken without.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.db.models import Q

from history.access import audit, keys
from history.errors import HistoryError
from history.importing import jobs
from history.models import ApiKey, AuditEvent, ImportJob, Message, Session
from history.privacy.registry import holdings
from history.retention.persons import erase_everything_of, held_sessions_of, loose_exchanges_of

ERASED = "erased"
UNDER_HOLD = "under hold"


class LastStaffMember(HistoryError):
    """No other staff member would be left."""


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What an erasure would do."""

    sessions: int
    entries: int
    exchanges: int
    keys: int
    kept: list[UUID]


@dataclass(frozen=True, slots=True)
class Receipt:
    """To be kept by the person who asked for it. `checkpoint` is where the audit chain stood afterwards."""

    person: dict[str, Any]
    at: datetime
    reason: str
    removed: dict[str, int]
    kept: list[dict[str, Any]]
    checkpoint: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_for(person: AbstractUser) -> ErasurePlan:
    going = Session.objects.filter(owner=person.pk, hold=False)
    return ErasurePlan(
        sessions=going.count(),
        entries=Message.objects.filter(session__in=going.values("pk")).count(),
        exchanges=loose_exchanges_of(person).count(),
        keys=ApiKey.objects.filter(owner=person.pk).count(),
        kept=list(held_sessions_of(person).values_list("pk", flat=True)),
    )


def erase_person(person: AbstractUser, *, reason: str, progress: Callable[[int], None] = lambda count: None) -> Receipt:
    """Everything but what is held. The account stays as a number: the audit chain and held sessions refer to it."""
    _check_others_are_left(person)
    name = person.get_username()
    _shut(person)
    gone = erase_everything_of(person, reason=reason, progress=progress)
    removed = {"sessions": gone.sessions, **asdict(gone.rows), "blobs": gone.blobs}
    removed |= {"imports": _erase_imports(person), "keys": _strip_keys(person)}
    removed |= {holding.name: holding.erase(person) for holding in holdings()}
    kept = [
        {"session": session.pk, "entries": session.message_count, "why": UNDER_HOLD}
        for session in held_sessions_of(person).only("pk", "message_count")
    ]
    event = audit.record("person.erased", reason=reason, person=person.pk, removed=removed, kept=len(kept))
    return Receipt(
        person={"id": person.pk, "username": name, "now": _name_now(person)},
        at=event.at,
        reason=reason,
        removed=removed,
        kept=kept,
        checkpoint={"audit_seq": event.seq, "audit_seal": _seal_of(event)},
    )


def _check_others_are_left(person: AbstractUser) -> None:
    others = get_user_model().objects.filter(is_active=True, is_staff=True).exclude(pk=person.pk)
    if person.is_staff and person.is_active and not others.exists():
        raise LastStaffMember("nobody else could let people in: make somebody else staff first")


def _shut(person: AbstractUser) -> None:
    """From here on the user cannot sign in, no key works, no share link shows anything, and what runs is stopped."""
    get_user_model().objects.filter(pk=person.pk).update(is_active=False)
    for key in ApiKey.objects.filter(owner=person.pk, revoked_at=None):
        keys.revoke(key, actor=None)
    for holding in holdings():
        holding.shut(person)


def _strip_keys(person: AbstractUser) -> int:
    """The rows stay, because the audit chain and held sessions refer to them; nothing in them says whose they were."""
    stripped = 0
    for key in ApiKey.objects.filter(~Q(name=ERASED), owner=person.pk):
        mine = ApiKey.objects.filter(pk=key.pk)
        stripped += mine.update(name=ERASED, secret_hash=secrets.token_bytes(32), scopes=[], last_used_at=None)
    return stripped


def _erase_imports(person: AbstractUser) -> int:
    """With the files that were sent."""
    found = list(ImportJob.objects.filter(owner=person.pk))
    for job in found:
        jobs.remove(job)
    return len(found)


def _name_now(person: AbstractUser) -> str:
    return str(get_user_model().objects.values_list(get_user_model().USERNAME_FIELD, flat=True).get(pk=person.pk))


def _seal_of(event: AuditEvent) -> str:
    return bytes(event.seal).hex()
