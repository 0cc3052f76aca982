"""The socket of a page that shows a list of sessions: it is told that one of its person's has changed, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as live_settings

from history.entries import ModelInput, Text
from history.models import Session
from history.record import recorder
from project.accounts.models import User
from relay.live import groups, relayed_updates, sign_outs
from relay.routing import sockets
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import cookie_of

Headers = list[tuple[bytes, bytes]]
HERE: Headers = [(b"origin", b"http://localhost"), (b"host", b"localhost")]


async def cookie(user: User) -> tuple[bytes, bytes]:
    return b"cookie", f"{live_settings.SESSION_COOKIE_NAME}={await in_database(cookie_of, user)}".encode()


def relayed(user: User) -> Session:
    session = recorder.start_session(owner=user, source=Session.Source.RELAY)
    recorder.append(session, ModelInput(parts=(Text(text="Say hello."),)), after=0)
    return session


@pytest.fixture
async def page(talk: Talk) -> AsyncIterator[WebsocketCommunicator]:
    socket = WebsocketCommunicator(sockets, "/ws/lists/", headers=[*HERE, await cookie(talk.user)])
    assert (await socket.connect(timeout=10))[0]
    yield socket
    await socket.disconnect(timeout=10)


async def test_news_of_a_program_arrive_once_and_never_at_other_users(
    talk: Talk, bob: User, page: WebsocketCommunicator, settings: Any
) -> None:
    settings.REDIS_URL = ""
    session = await in_database(relayed, talk.user)
    await in_database(relayed, bob)
    await in_database(relayed_updates.refresh_session_lists)
    assert await page.receive_from(timeout=10) == str(session.pk)
    await in_database(relayed_updates.refresh_session_lists)
    assert await page.receive_nothing(timeout=0.2)


async def test_what_is_said_to_it_changes_nothing_and_a_closed_one_is_forgotten(
    talk: Talk, page: WebsocketCommunicator
) -> None:
    await page.send_to("not even JSON")
    name = str(uuid4())
    groups.send_to_user(talk.user.pk, {"type": "sidebar.changed", "session": name})
    assert await page.receive_from(timeout=10) == name
    await page.disconnect(timeout=10)
    assert not sign_outs.local_users()


async def test_a_page_whose_sign_in_is_over_is_told_so_and_nothing_else(talk: Talk) -> None:
    socket = WebsocketCommunicator(sockets, "/ws/lists/", headers=HERE)
    assert (await socket.connect(timeout=10))[0]
    assert await socket.receive_output(timeout=10) == {"type": "websocket.close", "code": 4401}
    assert not sign_outs.local_users()
    await socket.disconnect(timeout=10)


async def test_a_foreign_page_is_refused(talk: Talk) -> None:
    """Programs: `test_origins.py`."""
    foreign = [(b"origin", b"https://elsewhere.example"), (b"host", b"localhost"), await cookie(talk.user)]
    for headers in (foreign, foreign[:2]):
        socket = WebsocketCommunicator(sockets, "/ws/lists/", headers=headers)
        assert not (await socket.connect(timeout=10))[0]
