"""Same-origin check of sockets that are opened with a cookie, on every socket path."""

from __future__ import annotations

from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as live_settings

from history.models import Session
from project.accounts.models import User
from relay.consumers.authentication import is_same_origin
from relay.routing import sockets
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import cookie_of, empty_session
from tests.relay.consumers.test_program_socket import key_for

HOST = "chat.example"


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = [HOST, "localhost", "[::1]", "192.0.2.7", "parley.example.org", "xn--mnchen-3ya.example"]
    settings.PARLEY_URL = "https://parley.example.org"


def scope(origin: str | None, *, host: str = HOST, scheme: str = "ws", **headers: str) -> dict[str, Any]:
    sent = {"host": host, **({} if origin is None else {"origin": origin}), **headers}
    encoded = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in sent.items()]
    return {"type": "websocket", "path": "/ws/v1/", "scheme": scheme, "headers": encoded}


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://chat.example", "chat.example"),
        ("http://chat.example:80", "chat.example"),
        ("http://chat.example", "chat.example:80"),
        ("HTTP://Chat.EXAMPLE", "CHAT.example"),
        ("http://chat.example:8000", "chat.example:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://[0:0:0:0:0:0:0:1]:8000", "[::1]:8000"),
        ("http://192.0.2.7:8000", "192.0.2.7:8000"),
        ("http://chat.example.", "chat.example."),
        ("https://parley.example.org", "chat.example"),
        ("https://parley.example.org:443", "parley.example.org"),
    ],
)
def test_a_page_of_our_own_origin_is_accepted(origin: str, host: str) -> None:
    assert is_same_origin(scope(origin, host=host))


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "chat.example"),
        ("", "chat.example"),
        ("null", "chat.example"),
        ("file://", "chat.example"),
        ("http://chat.example:9000", "chat.example:8000"),
        ("http://chat.example", "chat.example:8000"),
        ("https://chat.example:8000", "chat.example:8000"),
        ("http://chat.example.", "chat.example"),
        ("http://chat.example@evil.example", "chat.example"),
        ("http://evil.example@chat.example", "chat.example"),
        ("http://chat.example:80@evil.example", "chat.example"),
        ("http://chat.example/", "chat.example"),
        ("http://chat.example#evil.example", "chat.example"),
        ("http://chat.example\\.evil.example", "chat.example"),
        ("http://chat.example.evil.example", "chat.example"),
        ("http://evilchat.example", "chat.example"),
        ("http://chat.example http://evil.example", "chat.example"),
        ("http://chat.example,http://evil.example", "chat.example"),
        ("http://chat.example:080000", "chat.example"),
        ("http://chat.example:99999", "chat.example"),
        ("http://[::1]:9000", "[::1]:8000"),
        ("http://[::2]:8000", "[::1]:8000"),
        ("http://[::1:8000", "[::1]:8000"),
        ("http://localhost:8000", "[::1]:8000"),
        ("ws://chat.example", "chat.example"),
        ("chrome-extension://chat.example", "chat.example"),
        ("http://chät.example", "chat.example"),
        # The host has to be allowed, or a name that an attacker points at this machine would do.
        ("http://evil.example:8000", "evil.example:8000"),
        # PARLEY_URL says https: the same host over plain http is another origin.
        ("http://parley.example.org", "parley.example.org"),
        ("https://parley.example.org:8443", "chat.example"),
    ],
)
def test_a_page_of_any_other_origin_is_refused(origin: str | None, host: str) -> None:
    assert not is_same_origin(scope(origin, host=host))


def test_two_origin_headers_are_refused() -> None:
    asked = scope("http://chat.example")
    asked["headers"].append((b"origin", b"http://chat.example"))
    assert not is_same_origin(asked)


def test_the_scheme_is_the_one_of_the_connection() -> None:
    assert is_same_origin(scope("https://chat.example", scheme="wss"))
    assert not is_same_origin(scope("http://chat.example", scheme="wss"))
    without = scope("http://chat.example")
    del without["scheme"]  # as Daphne does
    assert is_same_origin(without)


def test_a_proxy_is_believed_about_https_where_it_is_trusted(settings: Any) -> None:
    asked = scope("https://chat.example", x_forwarded_proto="https")
    assert not is_same_origin(asked)
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert is_same_origin(asked)
    assert not is_same_origin(scope("http://chat.example", x_forwarded_proto="https"))
    assert not is_same_origin(scope("https://chat.example", x_forwarded_proto="http"))


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://münchen.example/parley", "https://xn--mnchen-3ya.example"),
        ("http://[0:0::1]:8000", "http://[::1]:8000"),
        ("http://Parley.example.org:80", "http://parley.example.org"),
    ],
)
def test_the_configured_address_may_be_written_in_any_way(settings: Any, url: str, origin: str) -> None:
    settings.PARLEY_URL = url
    assert is_same_origin(scope(origin, host="localhost"))


PATHS = ("/ws/v1/", "/ws/lists/", "/ws/s/{session}/")


async def is_opened(path: str, session: Session, **headers: str) -> tuple[bool, dict[str, Any] | None]:
    """Whether the handshake succeeds, and the first thing that comes then, unless it is text."""
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    socket = WebsocketCommunicator(sockets, path.format(session=session.pk), headers=encoded)
    is_open, _ = await socket.connect(timeout=10)
    first = await socket.receive_output(timeout=10) if is_open and "lists" not in path else None
    await socket.disconnect(timeout=10)
    return is_open, first


@pytest.mark.parametrize("path", PATHS)
async def test_every_cookie_socket_refuses_other_origins(talk: Talk, path: str) -> None:
    session = await in_database(empty_session, talk.user)
    sent = {"cookie": f"{live_settings.SESSION_COOKIE_NAME}={await in_database(cookie_of, talk.user)}"}
    sent["host"] = "localhost:8000"
    assert (await is_opened(path, session, **sent, origin="http://localhost:8000"))[0]
    for origin in ("http://localhost:9000", "https://localhost:8000", "null"):
        assert not (await is_opened(path, session, **sent, origin=origin))[0], origin
    assert not (await is_opened(path, session, **sent))[0]


@pytest.mark.parametrize("path", PATHS[1:])
async def test_page_sockets_tell_programs_to_use_their_own(talk: Talk, path: str) -> None:
    session = await in_database(empty_session, talk.user)
    for key in (await in_database(key_for, talk.user, "read", "write", recording="full"), "parley_no_no"):
        encoded = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
        socket = WebsocketCommunicator(sockets, path.format(session=session.pk), headers=encoded)
        assert (await socket.connect(timeout=10))[0]
        closed = await socket.receive_output(timeout=10)
        assert (closed["type"], closed["code"]) == ("websocket.close", 4403)
        assert "/ws/v1/" in closed["reason"]
        await socket.disconnect(timeout=10)


async def test_a_program_with_a_key_needs_no_origin(talk: Talk, ada: User) -> None:
    session = await in_database(empty_session, talk.user)
    key = await in_database(key_for, ada, "read")
    for headers in ({}, {"origin": "null"}, {"origin": "http://elsewhere.example"}):
        is_open, first = await is_opened(PATHS[0], session, authorization=f"Bearer {key}", **headers)
        assert is_open
        assert first is not None
