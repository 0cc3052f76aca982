"""Who connects in the chat benchmark: people with a cookie, and the sessions that they open."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

QUESTION = '{"type": "send", "text": "Go.", "after": 0}'


@dataclass(frozen=True)
class Address:
    """Where a socket leads, who opens it, and what it says, if anything."""

    path: str
    cookie: str = ""
    says: str = ""


def own_sessions(name: str, count: int) -> list[Address]:
    """A person each, with a session that is empty."""
    return [_address(f"{name} {number}") for number in range(count)]


def one_session(name: str, count: int) -> list[Address]:
    """Many pages of one person, all of the same session; the first one asks."""
    asks = _address(f"{name} together")
    return [asks, *[Address(asks.path, asks.cookie)] * (count - 1)]


def _address(name: str) -> Address:
    from django.conf import settings
    from django.contrib.auth import get_user_model

    from history.record import recorder

    person = get_user_model().objects.create_user(name)
    session = recorder.start_session(owner=person)
    return Address(f"/ws/s/{session.pk}/?shown=0", f"{settings.SESSION_COOKIE_NAME}={_signed_in(person)}", QUESTION)


def _signed_in(person: Any) -> str:
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY], store[BACKEND_SESSION_KEY] = str(person.pk), settings.AUTHENTICATION_BACKENDS[0]
    store[HASH_SESSION_KEY] = person.get_session_auth_hash()
    store.save()
    return str(store.session_key)
