"""Which key is this? Checked on every call, asked of the database at most once a second per process.

While the database is away, keys that were right in the last ten minutes still pass. Every refusal says whose fault it
is and what to do:

    ApiKeyError
    ├── MalformedKey      the caller sent something else        401
    ├── UnknownKey        the caller's: no such key             401
    ├── RevokedKey        the caller's: ask for a new one       401
    ├── ExpiredKey        the caller's: ask for a new one       401
    ├── ScopeMissing      the caller may not do this            403
    └── KeysUnavailable   ours: the database is away; retry     503
"""

from __future__ import annotations

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
_NOBODY = hashlib.sha256(b"no key has this hash").digest()


class ApiKeyError(Exception):
    """Why a key was not accepted, in words for its holder. `status` is the answer that HTTP has for it."""

    status: ClassVar[int] = 401
    retry_helps: ClassVar[bool] = False


class MalformedKey(ApiKeyError):
    pass


class UnknownKey(ApiKeyError):
    pass


class RevokedKey(ApiKeyError):
    pass


class ExpiredKey(ApiKeyError):
    pass


class ScopeMissing(ApiKeyError):
    status = 403


class KeysUnavailable(ApiKeyError):
    status = 503
    retry_helps = True


def prefix_of(raw: str) -> str:
    """The public part of a whole key; nothing if it is none."""
    match = _FORM.fullmatch(raw)
    return match["prefix"] if match else ""


def hash_of(raw: str) -> bytes:
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).digest()


def has_scope(api_key: ApiKey, scope: str) -> bool:
    """Whether the key has this scope now. `admin` counts only as long as its owner is staff."""
    return scope in api_key.scopes and (scope != "admin" or api_key.owner.is_staff)


@dataclass(slots=True)
class _Seen:
    """What a process knows of one key it was shown. The lock makes many callers wait for one look-up."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    api_key: ApiKey | None = None
    looked_up: float = float("-inf")
    renewed: float = float("-inf")
    verified: float = float("-inf")
    # The key as it was read, and a scope that it was accepted for, where that is no question of the time.
    passed: tuple[ApiKey | None, str | None] = (None, None)


class KeyRing:
    """The keys that this process has seen, under the hash of the whole key.

    A wrong secret for a known prefix is thus as new to it as an unknown prefix: both go to the database, both are
    hashed and compared, and the time that takes tells nobody which prefixes exist. Keys that were right once are kept
    apart from strangers, so a flood of guesses cannot push them out.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = timezone.now,
        size: int = 10_000,
        strangers: int = 1_000,
    ) -> None:
        self._clock = clock
        self._now = now
        self._size = size
        self._strangers_size = strangers
        self._known: OrderedDict[bytes, _Seen] = OrderedDict()
        self._strangers: OrderedDict[bytes, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def authenticate(self, raw: str, *, scope: str | None = None) -> ApiKey:
        """The key, if it is good for `scope` now; else an :class:`ApiKeyError` that says why not."""
        prefix, digest = self._read(raw)
        seen = self._seen(digest)
        with seen.lock:
            asked = not self._is_fresh(seen) and self._look_up(seen, prefix, digest)
            api_key = self._accepted(seen.api_key, scope)
        if asked:
            self._note_use(api_key)
        return api_key

    def recall(
        self, raw: str, *, scope: str | None = None, when_due: Callable[[str], None] | None = None
    ) -> ApiKey | None:
        """Like :meth:`authenticate`, but never waits: None when the database has to be asked. For an event loop.

        `when_due` is called, with the key, for one of its callers: it should `renew` it, so that nobody has to wait.
        """
        digest = hash_of(raw)
        seen = self._known.get(digest) or self._strangers.get(digest)
        if seen is None:
            self._read(raw)  # whatever is no key need not be looked for
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
        """Ask the database ahead of time. What it says is told to whoever comes next; here nobody waits for it."""
        prefix, digest = self._read(raw)
        seen = self._seen(digest)
        with seen.lock, contextlib.suppress(KeysUnavailable):
            if self._look_up(seen, prefix, digest) and seen.api_key is not None:
                self._note_use(seen.api_key)

    def forget(self, api_key: ApiKey) -> None:
        """Ask the database the next time this key comes by, however lately it was asked."""
        with self._lock:
            self._known.pop(api_key.secret_hash, None)

    def _read(self, raw: str) -> tuple[str, bytes]:
        prefix, digest = prefix_of(raw), hash_of(raw)
        if not prefix:
            raise MalformedKey("This is not an API key of Parley: it looks like parley_<prefix>_<secret>.")
        return prefix, digest

    def _seen(self, digest: bytes) -> _Seen:
        with self._lock:
            for kept in (self._known, self._strangers):
                if digest in kept:
                    kept.move_to_end(digest)
                    return kept[digest]
            seen = self._strangers[digest] = _Seen()
            _trim(self._strangers, self._strangers_size)
            return seen

    def _is_fresh(self, seen: _Seen) -> bool:
        return self._clock() - seen.looked_up < FRESH_SECONDS

    def _look_up(self, seen: _Seen, prefix: str, digest: bytes) -> bool:
        """Ask the database; False if it did not answer and the key passes on trust."""
        asked = self._clock()  # before the query: a revocation after it must be found a second from here
        try:
            api_key = _row(prefix, digest)
        except (OperationalError, InterfaceError) as error:
            _drop_broken_connection()
            self._trust(seen, asked, error)
            return False
        seen.api_key, seen.looked_up = api_key, asked
        if api_key is not None:
            seen.verified = asked
            self._promote(digest, seen)
        return True

    def _trust(self, seen: _Seen, asked: float, error: Exception) -> None:
        """The database is away: a key that was right in the last ten minutes still is."""
        if asked - seen.verified >= TRUSTED_SECONDS:
            raise KeysUnavailable("Keys cannot be checked at the moment: please try again in a few seconds.") from error
        seen.looked_up = asked

    def _promote(self, digest: bytes, seen: _Seen) -> None:
        with self._lock:
            self._strangers.pop(digest, None)
            self._known[digest] = seen
            _trim(self._known, self._size)

    def _note_use(self, api_key: ApiKey) -> None:
        """Once a minute is enough to see which keys are in use."""
        now = self._now()
        if api_key.last_used_at is None or api_key.last_used_at <= now - USE_NOTED_EVERY:
            api_key.last_used_at = now
            _write_use(api_key, now)

    def _accepted(self, api_key: ApiKey | None, scope: str | None) -> ApiKey:
        if api_key is None:
            raise UnknownKey("There is no such API key: check that it was copied as a whole.")
        if api_key.revoked_at is not None:
            raise RevokedKey(f"The API key {api_key.prefix} was revoked: ask its owner for a new one.")
        if not api_key.owner.is_active:
            raise RevokedKey(f"The owner of the API key {api_key.prefix} is not active any more: ask for another key.")
        if api_key.expires_at is not None and api_key.expires_at <= self._now():
            raise ExpiredKey(f"The API key {api_key.prefix} has expired: ask its owner for a new one.")
        if scope is not None and not has_scope(api_key, scope):
            raise ScopeMissing(f"The API key {api_key.prefix} lacks the scope '{scope}': use a key that has it.")
        return api_key


def _row(prefix: str, digest: bytes) -> ApiKey | None:
    """The key with this prefix and hash. Compared whether there is one or not, so that both take the same time."""
    found = ApiKey.objects.select_related("owner").filter(prefix=prefix).first()
    is_right = hmac.compare_digest(found.secret_hash if found else _NOBODY, digest)
    return found if is_right else None


def _drop_broken_connection() -> None:
    """It would stay broken: outside of a request nobody else closes it. A caller's transaction is the caller's."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()


def _write_use(api_key: ApiKey, now: datetime) -> None:
    """Conditional, so that many processes together still write once a minute. A failure must not fail the call."""
    is_due = Q(last_used_at=None) | Q(last_used_at__lte=now - USE_NOTED_EVERY)
    try:
        with writing():
            ApiKey.objects.filter(is_due, pk=api_key.pk).update(last_used_at=now)
    except DatabaseError as error:
        logger.warning("The last use of API key %s was not noted: %s", api_key.prefix, error)


def _trim(kept: OrderedDict[bytes, _Seen], size: int) -> None:
    while len(kept) > size:
        kept.popitem(last=False)
