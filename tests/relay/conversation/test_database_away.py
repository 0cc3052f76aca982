"""Sockets while the database is away: a retryable error, no lost socket, and everything that was missed afterwards."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as live_settings
from django.db import OperationalError, connection
from django.db.backends.utils import CursorWrapper

from history.access import keys
from history.entries import ModelInput, Text
from history.record import recorder
from relay.consumers import sockets as base
from relay.live import groups
from relay.routing import sockets
from relay.runtime import async_db
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import cookie_of, empty_session, open_page
from tests.relay.consumers.test_program_socket import Program, key_for
from tests.servers.databases import close_connections

pytestmark = pytest.mark.any_database


@contextmanager
def database_away() -> Iterator[None]:
    """Every statement fails as it does when the server has gone away."""

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    with patch.object(CursorWrapper, "execute", fail), patch.object(CursorWrapper, "executemany", fail):
        keys.ring.__init__()  # type: ignore[misc]  # no key is trusted because of an earlier check
        yield


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "RETRY_SECONDS", 0.05)


@pytest.fixture
async def headers(talk: Talk) -> list[tuple[bytes, bytes]]:
    cookie = f"{live_settings.SESSION_COOKIE_NAME}={await in_database(cookie_of, talk.user)}"
    return [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"cookie", cookie.encode())]


async def test_a_program_is_told_that_it_may_try_again(talk: Talk) -> None:
    key = await in_database(key_for, talk.user, "read", "write", recording="full")
    socket = WebsocketCommunicator(sockets, "/ws/v1/", headers=[(b"x-api-key", key.encode())])
    assert (await socket.connect(timeout=10))[0]
    program = Program(socket)
    await program.event("welcome")
    with database_away():
        for command in ("list", "send", "create", "history"):
            told = await program.request(command, text="Hello?", session="11111111-2222-3333-4444-555555555555")
            assert (told["type"], told["code"]) == ("error", "unavailable"), command
            assert told["retry_after"] > 0
    assert (await program.request("list"))["type"] == "list"
    await socket.disconnect(timeout=10)


@pytest.mark.parametrize("path", ["/ws/v1/", "/ws/lists/", "/ws/s/{session}/"])
async def test_a_handshake_is_closed_with_a_code_to_try_again(
    talk: Talk, headers: list[tuple[bytes, bytes]], path: str
) -> None:
    session = await in_database(empty_session, talk.user)
    key = (await in_database(key_for, talk.user, "read")).encode()
    for sent in [headers, [(b"x-api-key", key)]] if "v1" in path else [headers]:
        socket = WebsocketCommunicator(sockets, path.format(session=session.pk), headers=sent)
        with database_away():
            assert (await socket.connect(timeout=10))[0]
            assert await socket.receive_output(timeout=10) == {"type": "websocket.close", "code": 4013}


async def test_a_page_says_so_and_shows_later_what_it_missed(talk: Talk) -> None:
    talk.session = await in_database(empty_session, talk.user)
    page, _ = await open_page(talk.user, talk.session)
    await page.until('id="composer-after"')
    await in_database(recorder.append, talk.session, ModelInput(parts=(Text(text="Said elsewhere."),)), after=0)
    with database_away():
        await page.send_json("send", text="Hello?", after=0)
        assert "Try again in a few seconds" in await page.until('id="notices"')
        groups.notify_session(talk.session.pk)
        await asyncio.sleep(0.2)
    await page.until("Said elsewhere.")
    await page.send_json("ping")
    await page.until('id="pong"')
    await page.socket.disconnect(timeout=10)


async def test_an_event_that_fails_closes_the_socket_with_a_code(talk: Talk) -> None:
    key = await in_database(key_for, talk.user, "read", "write", recording="full")
    socket = WebsocketCommunicator(sockets, "/ws/v1/", headers=[(b"x-api-key", key.encode())])
    await socket.connect(timeout=10)
    await socket.send_to(json.dumps({"type": "create", "id": "1"}))
    program = Program(socket)
    created = await program.until(lambda told: told.get("id") == "1")
    groups.send_to_session(created["session"]["session_id"], {"type": "run.frame", "run": "no id"})
    assert await socket.receive_output(timeout=10) == {"type": "websocket.close", "code": 4011}


READ_ONLY = {
    "sqlite": ("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
    "postgresql": ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
}


async def test_a_database_that_is_read_only_is_unavailable(talk: Talk) -> None:
    """As after a failover: reading works, and every write is refused."""
    talk.scripted("First", "Second")
    await talk.begin("one")
    await talk.until_ended()
    key = await in_database(key_for, talk.user, "read", "write", "delete", recording="full", owner_wide=True)
    socket = WebsocketCommunicator(sockets, "/ws/v1/", headers=[(b"x-api-key", key.encode())])
    assert (await socket.connect(timeout=10))[0]
    program = Program(socket)
    await program.event("welcome")
    await program.request("open", session=str(talk.session.pk))
    begin, end = READ_ONLY[connection.vendor]
    await asyncio.to_thread(_on_every_thread, begin)
    for kind in ("send", "rename", "delete"):
        told = await program.request(kind, text="two", title="two")
        assert (told["type"], told["code"]) == ("error", "unavailable"), kind
    await asyncio.to_thread(_on_every_thread, end)
    assert (await program.request("send", text="two"))["run"]
    await talk.until_ended()


def _on_every_thread(statement: str) -> None:
    together = threading.Barrier(async_db.THREADS)

    def say() -> None:
        together.wait(10)
        with connection.cursor() as cursor:
            cursor.execute(statement)

    for done in [async_db._pool.submit(async_db._connection()(say)) for _ in range(async_db.THREADS)]:
        done.result(10)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one lock, with a limit of its own")
async def test_a_session_that_stays_locked_holds_up_no_other(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    talk.scripted("First", "Second")
    await talk.begin("one")
    await talk.until_ended()
    monkeypatch.setattr(async_db, "LOCK_SECONDS", 0.3)
    await asyncio.to_thread(close_connections)
    with psycopg.connect(live_settings.DATABASE_URL, dbname=connection.settings_dict["NAME"]) as other:
        other.execute("SELECT 1 FROM history_session WHERE id = %s FOR UPDATE", [talk.session.pk])
        sends = [asyncio.create_task(talk.send(f"{number}", after=0)) for number in range(async_db.THREADS + 1)]
        for send in sends:
            with pytest.raises(OperationalError):
                await asyncio.wait_for(send, 10)
        other.rollback()
    assert (await talk.send("two")).run
    await talk.until_ended()
