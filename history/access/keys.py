"""API keys: created, shown once, changed and revoked. A revocation reaches every process within a second.

A key is `parley_<prefix>_<secret>`. The prefix is its public name and finds its row. Of the whole key only a SHA-256 is
stored, which is enough because the secret has 256 random bits. `key_cache` checks keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from string import ascii_letters, ascii_lowercase, digits
from typing import TypedDict, Unpack

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.db import IntegrityError
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.crypto import get_random_string, salted_hmac
from django.utils.translation import gettext as _, gettext_lazy

from history.access import audit
from history.access.key_cache import KeyRing, hash_of, prefix_of
from history.db.transactions import writing
from history.models import ApiKey

SCOPE_LABELS = {
    "relay": gettext_lazy("Call models"),
    "read": gettext_lazy("Read sessions"),
    "write": gettext_lazy("Send messages and change sessions"),
    "delete": gettext_lazy("Delete sessions"),
    "export": gettext_lazy("Export"),
    "import": gettext_lazy("Import"),
    "admin": gettext_lazy("Sessions of all users"),
}
SCOPES = tuple(SCOPE_LABELS)
DEFAULT_SCOPES = ("relay", "read", "export")

PREFIX_CHARS = 10
SECRET_CHARS = 43  # of 62 letters and digits: 256 bits

# The largest value of a limit, if it is not 2,147,483,647.
LARGEST = {
    "tokens_per_day": 2**53, "tokens_per_month": 2**53, "cost_per_day": 99_999_999, "cost_per_month": 99_999_999,
}  # fmt: skip

ring = KeyRing()  # all callers of a process share its keys: never change one
authenticate = ring.authenticate
recall = ring.recall


class CannotCreateError(ValueError):
    """The key was not created; the text says what to write instead."""


class NotAllowedError(CannotCreateError):
    """The request is valid, but this owner may not have such a key, or there is no owner."""


class AlreadyMadeError(CannotCreateError):
    """This form has created its key already, and a key is shown only once."""


class BadLimitError(CannotCreateError):
    """An invalid limit. `field` is its name, `most` the largest valid value."""

    def __init__(self, text: str, *, field: str, most: int) -> None:
        super().__init__(text)
        self.field, self.most = field, most


class KeyLimits(TypedDict, total=False):
    """Limits of a key, and how long its sessions are kept. Absent or None means no limit of its own."""

    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_streams: int | None
    tokens_per_day: int | None
    tokens_per_month: int | None
    cost_per_day: Decimal | None
    cost_per_month: Decimal | None
    keep_days: int | None
    keep_body_days: int | None
    max_messages: int | None
    max_sessions: int | None


LIMITS = tuple(KeyLimits.__annotations__)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key. `secret` is the whole key in clear text, which is never shown again."""

    api_key: ApiKey
    secret: str = field(repr=False)


def create(
    *,
    name: str,
    owner: AbstractUser | None = None,
    scopes: Iterable[str] = DEFAULT_SCOPES,
    recording: str = ApiKey.Recording.REDACTED,
    owner_wide: bool = False,
    expires_at: datetime | None = None,
    actor: AbstractUser | None = None,
    once: str = "",
    **limits: Unpack[KeyLimits],
) -> NewKey:
    """`owner` defaults to the first staff user. A form with the same `once` creates one key only (AlreadyMadeError)."""
    owner = owner or first_staff_user()
    prefix = _prefix_for(once, owner) if once else get_random_string(PREFIX_CHARS, ascii_lowercase + digits)
    secret = f"parley_{prefix}_{get_random_string(SECRET_CHARS, ascii_letters + digits)}"
    api_key = ApiKey(
        name=_checked_name(name),
        prefix=prefix_of(secret),
        secret_hash=hash_of(secret),
        owner_id=owner.pk,
        scopes=_checked_scopes(scopes, owner),
        recording=_checked_recording(recording),
        owner_wide=owner_wide,
        expires_at=expires_at,
        **_checked_limits(limits),
    )
    try:
        with writing():
            api_key.save(force_insert=True)
            audit.record("key.created", actor=actor.pk if actor else None, key=api_key.pk, scopes=api_key.scopes)
    except IntegrityError:
        # Prefixes are unique, so a form that is sent twice cannot create two keys.
        if not (once and ApiKey.objects.filter(prefix=prefix).exists()):
            raise
        raise AlreadyMadeError(_("This form has already created its key. A key is shown only once.")) from None
    return NewKey(api_key, secret)


def change(
    api_key: ApiKey,
    *,
    actor: AbstractUser,
    name: str | None = None,
    recording: str | None = None,
    scopes: Iterable[str] | None = None,
    owner_wide: bool | None = None,
    **limits: Unpack[KeyLimits],
) -> list[str]:
    """Returns the names of the changed fields."""
    wanted: dict[str, object] = {**_checked_limits(limits)}
    wanted |= {"name": _checked_name(name)} if name is not None else {}
    wanted |= {"recording": _checked_recording(recording)} if recording is not None else {}
    wanted |= {"scopes": _checked_scopes(scopes, api_key.owner)} if scopes is not None else {}
    wanted |= {"owner_wide": owner_wide} if owner_wide is not None else {}
    changed = sorted(field for field, value in wanted.items() if getattr(api_key, field) != value)
    if changed:
        with writing():
            ApiKey.objects.filter(pk=api_key.pk).update(**{field: wanted[field] for field in changed})
            audit.record("key.changed", actor=actor.pk, key=api_key.pk, fields=changed)
        api_key.refresh_from_db(fields=changed)
        ring.forget(api_key)
    return changed


def revoke(api_key: ApiKey, *, actor: AbstractUser | None) -> bool:
    """Revoke the key for good. True if this call revoked it."""
    now = timezone.now()
    with writing():
        ended = ApiKey.objects.filter(pk=api_key.pk, revoked_at=None).update(revoked_at=now) == 1
        if ended:
            audit.record("key.revoked", actor=actor.pk if actor else None, key=api_key.pk)
    api_key.refresh_from_db(fields=["revoked_at"])
    ring.forget(api_key)
    return ended


def find(prefix: str) -> ApiKey | None:
    """By its prefix or the whole key."""
    return ApiKey.objects.select_related("owner").filter(prefix=prefix_of(prefix) or prefix).first()


def list_keys(*, include_ended: bool = False) -> QuerySet[ApiKey]:
    keys = ApiKey.objects.select_related("owner").order_by("created_at", "pk")
    if include_ended:
        return keys
    return keys.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)


def first_staff_user() -> AbstractUser:
    found = get_user_model().objects.filter(is_staff=True, is_active=True).order_by("pk").first()
    if found is None:
        raise NotAllowedError(_("There is no staff user to own the key. Name an owner, or create a staff user first."))
    return found


def _prefix_for(once: str, owner: AbstractUser) -> str:
    """The same prefix for the same form of the same user, which the user cannot choose."""
    mark = int.from_bytes(salted_hmac("history.access.keys.once", f"{owner.pk} {once}", algorithm="sha256").digest())
    alphabet = ascii_lowercase + digits
    return "".join(alphabet[mark // len(alphabet) ** place % len(alphabet)] for place in range(PREFIX_CHARS))


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > 100:
        raise CannotCreateError(_("A key needs a name of 1 to 100 characters."))
    return name


def _checked_scopes(scopes: Iterable[str], owner: AbstractUser) -> list[str]:
    wanted = set(scopes)
    known = {"known": ", ".join(SCOPES)}
    if unknown := sorted(wanted - set(SCOPES)):
        refusal = _("Unknown scope %(scope)s. Choose from %(known)s.")
        raise CannotCreateError(refusal % {"scope": ", ".join(unknown), **known})
    if not wanted:
        raise CannotCreateError(_("A key needs at least one scope. Choose from %(known)s.") % known)
    if "admin" in wanted and not owner.is_staff:
        refusal = _("'%(owner)s' is not staff and cannot own a key with the scope admin.")
        raise NotAllowedError(refusal % {"owner": owner.get_username()})
    return [scope for scope in SCOPES if scope in wanted]


def _checked_recording(recording: str) -> str:
    if recording not in ApiKey.Recording.values:
        refusal = _("'%(mode)s' is not a recording mode. Choose from %(known)s.")
        raise CannotCreateError(refusal % {"mode": recording, "known": ", ".join(ApiKey.Recording.values)})
    return recording


def _checked_limits(limits: KeyLimits) -> KeyLimits:
    for name, limit in limits.items():
        most = LARGEST.get(name, 2**31 - 1)
        if isinstance(limit, int | Decimal) and not (Decimal(limit).is_finite() and 0 <= limit <= most):
            refusal = _("%(name)s cannot be %(limit)s. Write 0 to %(most)s, or leave it out for no limit.")
            raise BadLimitError(refusal % {"name": name, "limit": limit, "most": most}, field=name, most=most)
    return limits
