"""Sign-ins of open sockets, which are closed when their sign-in ends.

A socket is opened with a sign-in that is valid at that moment, and stays open for hours. A sign-out closes the pages of
the user at once. Any other end of a sign-in (a deactivation, a new password), or a sign-out in another process, is
found by a query every other second. Messages name a sign-in by its hash, because its key is as good as a password.
"""

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session as SignInRow
from django.db.models import QuerySet
from django.utils import timezone

from history.db.parameters import among
from history.db.prepared import prepared
from relay.live import groups
from relay.models import User


@dataclass(frozen=True, slots=True)
class SignIn:
    """One browser that is signed in; `password` is the hash as it was then."""

    user_id: int
    key: str
    password: str

    @property
    def name(self) -> str:
        return hashlib.sha256(self.key.encode()).hexdigest()


_open: Counter[SignIn] = Counter()
_lock = threading.Lock()


def register(user: User, scope: Any) -> SignIn:
    """The sign-in of a socket that is opened; `unregister` it when the socket ends."""
    sign_in = sign_in_of(user, scope)
    with _lock:
        _open[sign_in] += 1
    return sign_in


def sign_in_of(user: User, scope: Any) -> SignIn:
    return SignIn(user.pk, scope["session"].session_key or "", user.password)


def unregister(sign_in: SignIn) -> None:
    with _lock:
        _open[sign_in] -= 1
        if not _open[sign_in]:
            del _open[sign_in]


def local_users() -> set[int]:
    """Users who have a page of this process open."""
    with _lock:
        return {sign_in.user_id for sign_in in _open}


def read_current_user(sign_in: SignIn) -> User | None:
    """The user of an open socket as of this moment. None: the sign-in has ended, by the rule of the job below."""
    if not _valid_sign_ins(sign_in.key, timezone.now()):
        return None
    return _valid_users.first(sign_in.user_id, sign_in.password)


@prepared
def _valid_sign_ins(key: str, now: datetime) -> QuerySet[SignInRow, str]:
    return SignInRow.objects.filter(session_key=key, expire_date__gt=now).values_list("session_key", flat=True)


@prepared
def _valid_users(user_id: int, password: str) -> QuerySet[User]:
    return get_user_model().objects.filter(pk=user_id, password=password, is_active=True)


def on_sign_out(*, request: Any, user: User, **_: Any) -> None:
    """Django's signal, sent before the sign-in is removed."""
    if user is not None and request.session.session_key:
        _notify(SignIn(user.pk, request.session.session_key, ""))


def notify_ended_sign_ins() -> None:
    """A job of every process. Two queries, however many pages are open; none without pages."""
    with _lock:
        known = list(_open)
    if not known:
        return
    keys = among((one.key for one in known), kind=str)
    rows = SignInRow.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    valid = set(rows.values_list("session_key", flat=True))
    users = get_user_model().objects.filter(pk__in=among({one.user_id for one in known}, kind=int), is_active=True)
    passwords = dict(users.values_list("pk", "password"))
    for sign_in in known:
        if sign_in.key not in valid or passwords.get(sign_in.user_id) != sign_in.password:
            _notify(sign_in)


def _notify(sign_in: SignIn) -> None:
    groups.send_to_user(sign_in.user_id, {"type": "signed.out", "sign_in": sign_in.name})
