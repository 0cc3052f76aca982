"""Owners, keys and ids of restored sessions.

The operator maps them by user name and prefix; for a user they are always their own.

Restored by the operator, sessions go to the user of that name, or to the one it is mapped to, under the same ids.
Restored by a user, everything becomes theirs: no session, key, hold or blob of another user is touched or pointed to.
Restored by a key that sees only its own sessions (`under`), all of it is that key's.

A user must not learn from an import whether another user has a session, a call or a key of a given id. So what a user
restores is never compared with what others have: an id that was not theirs before becomes one that is made from it and
them, the same one each time, whether it is taken here or not; a key that is not theirs becomes a stub of their own.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from history.formats.base import FormatError, Notes, gettext_noop
from history.models import ApiKey, AuditEvent, Blob, Exchange, Message, Session
from history.text.lazy import LazyText

REMEMBERED = 500_000
MOST_KEYS = 100  # that one person brings along


class OwnerMap:
    def __init__(
        self, *, owner: Any = None, owners: Mapping[str, Any] | None = None, under: ApiKey | None = None
    ) -> None:
        self.owner, self.under = owner, under
        self._known: dict[str, Any] = dict(owners or {})
        self._keys: dict[tuple[str, Any], ApiKey | None] = {}
        self._given: set[bytes] = set()

    @property
    def is_operator(self) -> bool:
        return self.owner is None

    def named(self, name: Any) -> Any:
        """Raises FormatError if there is no user of that name."""
        if self.owner is not None:
            return self.owner
        if not isinstance(name, str) or not name:
            raise FormatError(gettext_noop("the session does not say whose it is"))
        if name not in self._known:
            self._known[name] = get_user_model().objects.filter(username=name).first()
        if self._known[name] is None:
            words = gettext_noop("there is no user called %(name)s here: make one, or say who gets these sessions")
            raise FormatError(words, name=name)
        return self._known[name]

    def session_id(self, original: UUID) -> UUID:
        """The id of a session here. Users keep the ids of sessions that are or were theirs."""
        if self.is_operator or self._is_or_was_theirs(original):
            return original
        return self._made_from(original)

    def exchange_ids(self, originals: Iterable[UUID]) -> dict[UUID, UUID]:
        """The ids of calls here."""
        wanted = set(originals)
        if self.is_operator:
            return {one: one for one in wanted}
        own = set(self._own_exchanges().filter(pk__in=wanted).values_list("pk", flat=True))
        return {one: one if one in own else self._made_from(one) for one in wanted}

    def _is_or_was_theirs(self, session_id: UUID) -> bool:
        found = Session.objects.filter(pk=session_id).first()
        if found is not None:
            return self.may_point_to(found)
        removed = AuditEvent.objects.filter(session=session_id, action="remove").order_by("-seq").first()
        return removed is not None and json.loads(removed.details or "{}").get("owner") == self.owner.pk

    def _own_exchanges(self) -> QuerySet[Exchange]:
        own = Exchange.objects.filter(owner=self.owner)
        return own.filter(api_key=self.under) if self.under is not None else own

    def _made_from(self, original: UUID) -> UUID:
        return uuid5(original, f"{self.owner.pk}:{self.under.pk if self.under else ''}")

    def key(self, prefix: Any, *, owner: Any, notes: Notes) -> ApiKey | None:
        """The key with this prefix; another one becomes a stub that opens nothing."""
        if self.under is not None or prefix is None:
            return self.under
        if not isinstance(prefix, str) or not 1 <= len(prefix) <= 16 or not prefix.isascii() or not prefix.isalnum():
            raise FormatError(gettext_noop("%(value)s is no prefix of a key"), value=repr(prefix))
        if (prefix, owner.pk) not in self._keys:
            key = self._known_key(prefix, owner)
            if key is None and not self.is_operator and len(self._keys) >= MOST_KEYS:
                words = gettext_noop("keys that are not yours, after the first %(most)s: sessions have none now")
                notes("lost", LazyText(words, most=MOST_KEYS))
                return None
            self._keys[prefix, owner.pk] = key or self._new_stub(prefix, owner)
        return self._keys[prefix, owner.pk]

    def _known_key(self, prefix: str, owner: Any) -> ApiKey | None:
        if self.is_operator:
            return ApiKey.objects.filter(prefix=prefix).first()
        own = ApiKey.objects.filter(owner=owner)
        return own.filter(prefix=prefix).first() or own.filter(name=_stub_name(prefix), scopes=[]).first()

    def _new_stub(self, prefix: str, owner: Any) -> ApiKey:
        """A user's stub has a prefix of its own: that of the file may be taken."""
        return _stub(owner, name=_stub_name(prefix), prefix=prefix if self.is_operator else secrets.token_hex(5))

    def gave(self, blob: str) -> None:
        """The file itself has the bytes with this hash."""
        if len(self._given) >= REMEMBERED:
            self._given.clear()
        self._given.add(bytes.fromhex(blob))

    def blobs(self, names: Iterable[str]) -> set[str]:
        """Hashes of stored blobs that the user may refer to. Knowing a hash gives no right to its bytes."""
        stored = Blob.objects.filter(pk__in=names)
        if self.is_operator:
            return set(stored.values_list("pk", flat=True))
        said = Message.blobs.through.objects.filter(blob=OuterRef("pk"), message__session__owner=self.owner)
        sent = Exchange.blobs.through.objects.filter(blob=OuterRef("pk"), exchange__owner=self.owner)
        if self.under is not None:
            said = said.filter(message__session__api_key=self.under)
            sent = sent.filter(exchange__api_key=self.under)
        theirs = stored.annotate(is_theirs=Exists(said) | Exists(sent)).values_list("pk", "is_theirs")
        return {name for name, is_theirs in theirs if is_theirs or bytes.fromhex(name) in self._given}

    def may_point_to(self, session: Session) -> bool:
        if self.under is not None and session.api_key_id != self.under.pk:
            return False
        return self.is_operator or session.owner_id == self.owner.pk


def _stub_name(prefix: str) -> str:
    return f"{prefix} (restored)"


def _stub(owner: Any, *, name: str, prefix: str) -> ApiKey:
    """It names the key that wrote, and opens nothing: its hash is that of no key, and it is revoked."""
    return ApiKey.objects.create(
        name=name,
        prefix=prefix,
        secret_hash=os.urandom(32),
        owner=owner,
        scopes=[],
        revoked_at=timezone.now(),
    )
