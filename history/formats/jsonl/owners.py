"""Owners, keys and ids of restored sessions.

Restored by the operator, sessions go to the user of that name, under the same ids. Restored by a user, everything
becomes theirs (or their `recording_key`'s), and an import does not reveal what other users have:
docs/decisions/015-imports-reveal-nothing-about-other-users.md.
"""

import json
import os
import secrets
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid5

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef
from django.utils import timezone

from history.formats.base import FormatError, Notes
from history.models import ApiKey, AuditEvent, Blob, Exchange, Message, Session
from history.text.lazy import LazyText, gettext_noop as _

MAX_FILE_BLOBS = 500_000
MAX_KEYS = 100  # that one user adds


class OwnerMap:
    def __init__(self, *, owner: Any = None, recording_key: ApiKey | None = None) -> None:
        self.owner, self.recording_key = owner, recording_key
        self._users: dict[str, Any] = {}
        self._keys: dict[tuple[str, Any], ApiKey | None] = {}
        self._file_blobs: set[bytes] = set()

    @property
    def is_operator(self) -> bool:
        return self.owner is None

    def find_owner(self, name: Any) -> Any:
        """Raises FormatError if there is no user of that name."""
        if self.owner is not None:
            return self.owner
        if not isinstance(name, str) or not name:
            raise FormatError(_("the session has no owner"))
        if name not in self._users:
            self._users[name] = get_user_model().objects.filter(username=name).first()
        if self._users[name] is None:
            words = _("there is no user %(name)s: create one, or choose an owner for these sessions")
            raise FormatError(words, name=name)
        return self._users[name]

    def session_id(self, original: UUID) -> UUID:
        """The id of a session here. Users keep the ids of sessions that are or were theirs."""
        if self.is_operator:
            return original
        if (session := Session.objects.filter(pk=original).first()) is not None:
            was_own = self.can_link_to(session)
        else:
            removed = AuditEvent.objects.filter(session=original, action="remove").order_by("-seq").first()
            was_own = removed is not None and json.loads(removed.details or "{}").get("owner") == self.owner.pk
        return original if was_own else self._derive_id(original)

    def exchange_ids(self, originals: Iterable[UUID]) -> dict[UUID, UUID]:
        wanted = set(originals)
        if self.is_operator:
            return {one: one for one in wanted}
        rows = Exchange.objects.filter(owner=self.owner, pk__in=wanted)
        rows = rows if self.recording_key is None else rows.filter(api_key=self.recording_key)
        own = set(rows.values_list("pk", flat=True))
        return {one: one if one in own else self._derive_id(one) for one in wanted}

    def _derive_id(self, original: UUID) -> UUID:
        return uuid5(original, f"{self.owner.pk}:{self.recording_key.pk if self.recording_key else ''}")

    def key(self, prefix: Any, *, owner: Any, notes: Notes) -> ApiKey | None:
        """The key with this prefix, or a revoked stub for it."""
        if self.recording_key is not None or prefix is None:
            return self.recording_key
        if not isinstance(prefix, str) or not 1 <= len(prefix) <= 16 or not prefix.isascii() or not prefix.isalnum():
            raise FormatError(_("%(value)s is not a key prefix"), value=repr(prefix))
        if (prefix, owner.pk) not in self._keys:
            known, stub_name = ApiKey.objects.filter(prefix=prefix), f"{prefix} (restored)"
            if self.is_operator:
                key = known.first()
            else:
                stubs = ApiKey.objects.filter(owner=owner, name=stub_name, scopes=[])
                key = known.filter(owner=owner).first() or stubs.first()
                if key is None and len(self._keys) >= MAX_KEYS:
                    words = _("keys of other users beyond the first %(most)s: their sessions have no key now")
                    notes("lost", LazyText(words, most=MAX_KEYS))
                    return None
            if key is None:  # revoked and with a random hash: it names the writer and cannot be used
                # A user's stub has a prefix of its own: that of the file may be taken.
                own_prefix = prefix if self.is_operator else secrets.token_hex(5)
                facts = {"secret_hash": os.urandom(32), "scopes": [], "revoked_at": timezone.now()}
                key = ApiKey.objects.create(name=stub_name, prefix=own_prefix, owner=owner, **facts)
            self._keys[prefix, owner.pk] = key
        return self._keys[prefix, owner.pk]

    def add_file_blob(self, blob: str) -> None:
        if len(self._file_blobs) >= MAX_FILE_BLOBS:
            self._file_blobs.clear()
        self._file_blobs.add(bytes.fromhex(blob))

    def blobs(self, names: Iterable[str]) -> set[str]:
        """Hashes of stored blobs that the user may refer to. Knowing a hash gives no right to its bytes."""
        stored = Blob.objects.filter(pk__in=names)
        if self.is_operator:
            return set(stored.values_list("pk", flat=True))
        in_messages = Message.blobs.through.objects.filter(blob=OuterRef("pk"), message__session__owner=self.owner)
        in_exchanges = Exchange.blobs.through.objects.filter(blob=OuterRef("pk"), exchange__owner=self.owner)
        if self.recording_key is not None:
            in_messages = in_messages.filter(message__session__api_key=self.recording_key)
            in_exchanges = in_exchanges.filter(exchange__api_key=self.recording_key)
        theirs = stored.annotate(is_theirs=Exists(in_messages) | Exists(in_exchanges)).values_list("pk", "is_theirs")
        return {name for name, is_theirs in theirs if is_theirs or bytes.fromhex(name) in self._file_blobs}

    def can_link_to(self, session: Session) -> bool:
        if self.recording_key is not None and session.api_key_id != self.recording_key.pk:
            return False
        return self.is_operator or session.owner_id == self.owner.pk
