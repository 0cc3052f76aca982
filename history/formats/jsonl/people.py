"""Whose sessions these become: owners by user name, keys by prefix.

Restored by the operator, everything goes to whoever has that name here, or is mapped to. Restored by one person, all of
it becomes theirs: no session, key, hold or blob of anybody else is touched or pointed to. Restored by a key that sees
only its own sessions (`under`), all of it is that key's, and nothing else of its owner is touched either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef
from django.utils import timezone

from history.formats.base import FormatError, Notes, gettext_noop
from history.marked import Said
from history.models import ApiKey, Blob, Exchange, Message, Session

REMEMBERED = 500_000
MOST_KEYS = 100  # that one person brings along


class People:
    def __init__(
        self, *, owner: Any = None, owners: Mapping[str, Any] | None = None, under: ApiKey | None = None
    ) -> None:
        self.owner, self.under = owner, under
        self._known: dict[str, Any] = dict(owners or {})
        self._keys: dict[tuple[str, Any], ApiKey] = {}
        self._given: set[bytes] = set()

    @property
    def is_operator(self) -> bool:
        return self.owner is None

    def named(self, name: Any) -> Any:
        """Raises FormatError where there is nobody of that name."""
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

    def key(self, prefix: Any, *, owner: Any, notes: Notes) -> ApiKey | None:
        """The key with this prefix; one that nobody knows here becomes a stub that opens nothing."""
        if self.under is not None or prefix is None:
            return self.under
        if not isinstance(prefix, str) or not 1 <= len(prefix) <= 16 or not prefix.isascii() or not prefix.isalnum():
            raise FormatError(gettext_noop("%(value)s is no prefix of a key"), value=repr(prefix))
        if (prefix, owner.pk) not in self._keys:
            key = ApiKey.objects.filter(prefix=prefix).first()
            if key is None and not self.is_operator and len(self._keys) >= MOST_KEYS:
                words = gettext_noop("keys that nobody knows here, after the first %(most)s: sessions have none now")
                notes("lost", Said(words, most=MOST_KEYS))
                return None
            self._keys[prefix, owner.pk] = key or _stub(prefix, owner)
        key = self._keys[prefix, owner.pk]
        if key.owner_id == owner.pk or self.is_operator:
            return key
        notes("lost", gettext_noop("the key belongs to somebody else here: the session has none now"), where=prefix)
        return None

    def gave(self, blob: str) -> None:
        """The file itself has the bytes with this hash."""
        if len(self._given) >= REMEMBERED:
            self._given.clear()
        self._given.add(bytes.fromhex(blob))

    def blobs(self, names: Iterable[str]) -> set[str]:
        """Which of these are stored, and theirs to name: whoever knows a hash does not have the bytes for that."""
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


def _stub(prefix: str, owner: Any) -> ApiKey:
    """It names whoever wrote, and opens nothing: its hash is that of no key, and it is revoked."""
    return ApiKey.objects.create(
        name=f"{prefix} (restored)",
        prefix=prefix,
        secret_hash=os.urandom(32),
        owner=owner,
        scopes=[],
        revoked_at=timezone.now(),
    )
