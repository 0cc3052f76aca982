"""Erasure of one user: sessions removed, keys revoked and stripped, the account anonymised. Held sessions remain.

First the account is disabled and keys are revoked, so nothing new can come. Then everything is removed, and the
last step is the receipt. An interrupted erasure can be run again. The audit chain keeps its events, which hold ids and
reasons, because it would break without them.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.db.models import Q

from history.access import audit, keys
from history.entries import JsonObject
from history.errors import HistoryError
from history.importing import jobs
from history.models import ApiKey, ImportJob, Message, Session
from history.privacy.personal_data import registered_data
from history.retention.removal import erase_everything_of, held_sessions_of, loose_exchanges_of

ERASED = "erased"
UNDER_HOLD = "under hold"


class LastStaffMember(HistoryError):
    """The only active staff member cannot be erased."""


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    sessions: int
    entries: int
    exchanges: int
    keys: int
    kept: list[UUID]


@dataclass(frozen=True, slots=True)
class Receipt:
    """For the user. `checkpoint` is the position of the audit chain afterwards."""

    person: JsonObject
    at: datetime
    reason: str
    removed: dict[str, int]
    kept: list[JsonObject]
    checkpoint: JsonObject = field(default_factory=dict)


def plan_for(person: AbstractUser) -> ErasurePlan:
    unheld = Session.objects.filter(owner=person.pk, hold=False)
    return ErasurePlan(
        sessions=unheld.count(),
        entries=Message.objects.filter(session__in=unheld.values("pk")).count(),
        exchanges=loose_exchanges_of(person).count(),
        keys=ApiKey.objects.filter(owner=person.pk).count(),
        kept=list(held_sessions_of(person).values_list("pk", flat=True)),
    )


def erase_person(person: AbstractUser, *, reason: str, progress: Callable[[int], None] = lambda count: None) -> Receipt:
    """Erase all but held sessions. The account row remains, because the audit chain and held sessions refer to it."""
    others = get_user_model().objects.filter(is_active=True, is_staff=True).exclude(pk=person.pk)
    if person.is_staff and person.is_active and not others.exists():
        raise LastStaffMember("this is the last active staff user: make another user staff first")
    name = person.get_username()
    _shut(person)
    with_sessions = {one.name: sum(1 for _ in one.rows(person)) for one in registered_data() if one.of_sessions}
    removed = erase_everything_of(person, reason=reason, progress=progress)
    imports = list(ImportJob.objects.filter(owner=person.pk))
    for job in imports:
        jobs.remove(job)  # also the uploaded files
    removed |= {"imports": len(imports), "keys": _strip_keys(person)}
    removed |= {one.name: one.erase(person) for one in registered_data()} | with_sessions
    kept: list[JsonObject] = [
        {"session": session.pk, "entries": session.message_count, "why": UNDER_HOLD}
        for session in held_sessions_of(person).only("pk", "message_count")
    ]
    event = audit.record("person.erased", reason=reason, person=person.pk, removed=removed, kept=len(kept))
    return Receipt(
        person={"id": person.pk, "username": name, "now": get_user_model().objects.get(pk=person.pk).get_username()},
        at=event.at,
        reason=reason,
        removed=removed,
        kept=kept,
        checkpoint={"audit_seq": event.seq, "audit_seal": bytes(event.seal).hex()},
    )


def _shut(person: AbstractUser) -> None:
    """Afterwards the user cannot sign in, no key and no share link works, and runs are stopped."""
    get_user_model().objects.filter(pk=person.pk).update(is_active=False)
    for key in ApiKey.objects.filter(owner=person.pk, revoked_at=None):
        keys.revoke(key, actor=None)
    for data in registered_data():
        data.shut(person)


def _strip_keys(person: AbstractUser) -> int:
    """The rows remain, because the audit chain and held sessions refer to them, but without a link to the user."""
    stripped = 0
    for key in ApiKey.objects.filter(~Q(name=ERASED), owner=person.pk):
        mine = ApiKey.objects.filter(pk=key.pk)
        stripped += mine.update(name=ERASED, secret_hash=secrets.token_bytes(32), scopes=[], last_used_at=None)
    return stripped
