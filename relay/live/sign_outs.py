"""Who has left: signed out elsewhere, was shut out, has another password. Their open pages are shown nothing more.

A socket is opened with a sign-in that holds at that moment, and stays open for hours. A sign-out tells the person's
pages at once; whatever else ends a sign-in, or a sign-out in a process that we do not hear, is found by looking every
other second. A page is told by the name of its sign-in and not by its key, which is as good as a password.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from channels.auth import get_user
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session as SignInRow
from django.utils import timezone

from history.db.in_list import among
from relay.live import groups


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


def sign_in_of(user: Any, scope: Any) -> SignIn:
    return SignIn(user.pk, scope["session"].session_key or "", user.password)


def register(sign_in: SignIn) -> None:
    with _lock:
        _open[sign_in] += 1


def unregister(sign_in: SignIn) -> None:
    with _lock:
        _open[sign_in] -= 1
        if not _open[sign_in]:
            del _open[sign_in]


async def read_current_user(scope: Any) -> Any:
    """Who that is now. What was read of the sign-in when the socket was opened says nothing about that."""
    fresh = import_module(settings.SESSION_ENGINE).SessionStore(scope["session"].session_key)
    now: Any = {**scope, "session": fresh}
    return await get_user(now)


def on_sign_out(*, request: Any, user: Any, **_: Any) -> None:
    """Django's signal, sent before the sign-in is removed."""
    if user is not None and request.session.session_key:
        _tell(SignIn(user.pk, request.session.session_key, ""))


def notify_ended_sign_ins() -> None:
    """A job of every process. Two queries, however many pages are open; none where there are none."""
    with _lock:
        known = list(_open)
    for sign_in in _ended(known) if known else ():
        _tell(sign_in)


def _ended(known: list[SignIn]) -> Iterable[SignIn]:
    keys = among((one.key for one in known), kind=str)
    rows = SignInRow.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    kept = set(rows.values_list("session_key", flat=True))
    people = get_user_model().objects.filter(pk__in=among({one.user_id for one in known}, kind=int), is_active=True)
    passwords = dict(people.values_list("pk", "password"))
    return [one for one in known if one.key not in kept or passwords.get(one.user_id) != one.password]


def _tell(sign_in: SignIn) -> None:
    message = {"type": "signed.out", "sign_in": sign_in.name}
    groups.send_to_user(sign_in.user_id, message)
