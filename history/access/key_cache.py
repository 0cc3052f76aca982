"""Authentication of API keys. Each process asks the database at most once a second per key.

While the database is away, keys that were valid in the last ten minutes still pass.
"""

import contextlib
import hashlib
import hmac
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.db.models import Q
from django.utils import timezone

from history.db.transactions import writing
from history.models import ApiKey

logger = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
RENEWED_SECONDS = 0.5
TRUSTED_SECONDS = 600.0
USE_NOTED_EVERY = timedelta(minutes=1)

_FORM = re.compile(r"parley_(?P<prefix>[a-z0-9]{4,16})_[A-Za-z0-9]{32,128}")
_NO_HASH = hashlib.sha256(b"no key has this hash").digest()


class ApiKeyError(Exception):
    """Why a key was not accepted, in words for its holder. `status` is the HTTP status."""

    status: ClassVar[int] = 401
    retry_helps: ClassVar[bool] = False


class MalformedKey(ApiKeyError):
    """Not an API key."""


class UnknownKey(ApiKeyError):
    """No such key."""


class RevokedKey(ApiKeyError):
    """The caller needs a new key."""


class ExpiredKey(ApiKeyError):
    """The caller needs a new key."""


class ScopeMissing(ApiKeyError):
    """The key may not do this."""

    status = 403


class KeysUnavailable(ApiKeyError):
    """The database is away: retry."""

    status = 503
    retry_helps = True


def prefix_of(raw: str) -> str:
    match = _FORM.fullmatch(raw)
    return match["prefix"] if match else ""


def hash_of(raw: str) -> bytes:
    # Plain SHA-256 is enough: keys and share links have 256 random bits.
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).digest()


def bearer_secret(header: str) -> str:
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def has_scope(api_key: ApiKey, scope: str) -> bool:
    """Whether the key has this scope now. `admin` counts only while its owner is staff."""
    return scope in api_key.scopes and (scope != "admin" or api_key.owner.is_staff)


@dataclass(slots=True)
class _Seen:
    """What a process knows of one key. The lock lets many callers wait for one query."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    api_key: ApiKey | None = None
    looked_up: float = float("-inf")
    renewed: float = float("-inf")
    verified: float = float("-inf")
    # The key and a scope that it was accepted for, if the key does not expire.
    passed: tuple[ApiKey | None, str | None] = (None, None)


class KeyRing:
    """The keys that this process has seen, by the hash of the whole key.

    A wrong secret for a known prefix and an unknown prefix take the same time: both ask the database, hash and compare,
    so the time does not tell which prefixes exist. Valid keys are kept apart from others, so that a flood of guesses
    cannot displace them.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = timezone.now,
        size: int = 10_000,
        strangers: int = 1_000,
    ) -> None:
        self._clock, self._now = clock, now
        self._size, self._strangers_size = size, strangers
        self._known: OrderedDict[bytes, _Seen] = OrderedDict()
        self._strangers: OrderedDict[bytes, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def authenticate(self, raw: str, *, scope: str | None = None) -> ApiKey:
        """The key, if it is valid for `scope` now; else an :class:`ApiKeyError`."""
        prefix, digest = self._read(raw)
        seen = self._seen(digest)
        with seen.lock:
            is_old = self._clock() - seen.looked_up >= FRESH_SECONDS
            is_verified = is_old and self._look_up(seen, prefix, digest)
            api_key = self._accepted(seen.api_key, scope)
        if is_verified:
            self._note_use(api_key)
        return api_key

    def recall(
        self, raw: str, *, scope: str | None = None, when_due: Callable[[str], None] | None = None
    ) -> ApiKey | None:
        """Like :meth:`authenticate`, but never waits: None if the database has to be asked. For an event loop.

        `when_due` is called for one of the callers of a key, which should `renew` it, so that no caller has to wait.
        """
        digest = hash_of(raw)
        seen = self._known.get(digest) or self._strangers.get(digest)
        if seen is None:
            self._read(raw)  # refuse a malformed key
            return None
        now = self._clock()
        age = now - seen.looked_up
        if age >= FRESH_SECONDS:
            return None
        api_key, (passed, for_scope) = seen.api_key, seen.passed
        if api_key and when_due and age >= RENEWED_SECONDS and now - seen.renewed >= RENEWED_SECONDS:
            seen.renewed = now
            when_due(raw)
        if api_key is not None and passed is api_key and for_scope == scope:
            return api_key
        accepted = self._accepted(api_key, scope)
        if accepted.expires_at is None:
            seen.passed = (accepted, scope)
        return accepted

    def renew(self, raw: str) -> None:
        prefix, digest = self._read(raw)
        seen = self._seen(digest)
        with seen.lock, contextlib.suppress(KeysUnavailable):
            if self._look_up(seen, prefix, digest) and seen.api_key is not None:
                self._note_use(seen.api_key)

    def forget(self, api_key: ApiKey) -> None:
        with self._lock:
            self._known.pop(api_key.secret_hash, None)

    def _read(self, raw: str) -> tuple[str, bytes]:
        prefix, digest = prefix_of(raw), hash_of(raw)
        if not prefix:
            raise MalformedKey("This is not an API key of Parley. A key looks like parley_<prefix>_<secret>.")
        return prefix, digest

    def _seen(self, digest: bytes) -> _Seen:
        with self._lock:
            for kept in (self._known, self._strangers):
                if digest in kept:
                    kept.move_to_end(digest)
                    return kept[digest]
            seen = self._strangers[digest] = _Seen()
            if len(self._strangers) > self._strangers_size:
                self._strangers.popitem(last=False)
            return seen

    def _look_up(self, seen: _Seen, prefix: str, digest: bytes) -> bool:
        """Ask the database. False if it did not answer and the key, valid in the last ten minutes, passes on trust."""
        looked_up = self._clock()  # before the query, so that a later revocation is found within a second
        try:
            found = ApiKey.objects.select_related("owner").filter(prefix=prefix).first()
        except (OperationalError, InterfaceError) as error:
            # Outside of a request a broken connection would stay. A caller's transaction is left alone.
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()
            if looked_up - seen.verified >= TRUSTED_SECONDS:
                text = "API keys cannot be checked at the moment. Try again in a few seconds."
                raise KeysUnavailable(text) from error
            seen.looked_up = looked_up
            return False
        # Compared in any case, so that a wrong secret takes the same time as an unknown prefix.
        is_right = hmac.compare_digest(found.secret_hash if found else _NO_HASH, digest)
        seen.api_key, seen.looked_up = found if is_right else None, looked_up
        if seen.api_key is not None:
            seen.verified = looked_up
            with self._lock:
                self._strangers.pop(digest, None)
                self._known[digest] = seen
                if len(self._known) > self._size:
                    self._known.popitem(last=False)
        return True

    def _note_use(self, api_key: ApiKey) -> None:
        """Note the last use, at most once a minute for all processes together. A failure must not fail the call."""
        now = self._now()
        if api_key.last_used_at is not None and api_key.last_used_at > now - USE_NOTED_EVERY:
            return
        api_key.last_used_at = now
        is_due = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
        try:
            with writing():
                ApiKey.objects.filter(is_due, pk=api_key.pk).update(last_used_at=now)
        except DatabaseError as error:
            logger.warning("The last use of API key %s was not noted: %s", api_key.prefix, error)

    def _accepted(self, api_key: ApiKey | None, scope: str | None) -> ApiKey:
        if api_key is None:
            raise UnknownKey("Unknown API key. Check that you copied all of it.")
        if api_key.revoked_at is not None:
            raise RevokedKey(f"The API key {api_key.prefix} was revoked. Ask its owner for a new one.")
        if not api_key.owner.is_active:
            raise RevokedKey(f"The owner of the API key {api_key.prefix} is disabled. Use a key of another user.")
        if api_key.expires_at is not None and api_key.expires_at <= self._now():
            raise ExpiredKey(f"The API key {api_key.prefix} has expired. Ask its owner for a new one.")
        if scope is not None and not has_scope(api_key, scope):
            raise ScopeMissing(f"The API key {api_key.prefix} lacks the scope '{scope}'. Use a key with this scope.")
        return api_key
