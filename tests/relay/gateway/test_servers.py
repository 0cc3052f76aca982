"""The relay under every server, as a process of its own: whole, streamed, cut by the upstream, left by the caller.

And the MCP server beside it in the same process, for the official client.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from relay.gateway.journal.reader import read
from relay.gateway.journal.records import CallEnded
from tests.relay.mcp_server.mcp_client import call_tool_text, list_tool_names
from tests.servers.databases import copy_migrated_file
from tests.servers.processes import SERVERS, Process, clean_environment, free_port, run_manage, run_server, wait_for
from tests.vendors import KEYS, Vendors, says

pytestmark = pytest.mark.runs_first

BODY = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
HOLDER = """
from history.access import keys
from project.accounts.models import User
ada = User.objects.create_user("ada")
print(keys.create(name="k", owner=ada, recording="full", scopes=["relay", "read", "write"]).secret)
"""


def post(port: int, body: dict[str, object], key: str, *, only: int | None = None) -> tuple[bytes, bool]:
    """What came, and whether it was cut."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
    connection.request("POST", f"/v1/messages?key={key}", json.dumps(body), headers)
    try:
        return connection.getresponse().read(only), False
    except http.client.IncompleteRead as error:
        return error.partial, True
    finally:
        connection.close()


def reasons(folder: Path) -> list[str]:
    return [record.reason for _, record in read(folder / "journal") if isinstance(record, CallEnded)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database with Ada's key in it, to be copied; the key."""
    folder = tmp_path_factory.mktemp("made")
    variables = {"PARLEY_DATA_DIR": str(folder), "DATABASE_URL": copy_migrated_file(folder / "parley.sqlite3")}
    return folder, run_manage("shell", "--no-imports", "--command", HOLDER, **variables).stdout.strip()


@contextmanager
def serving(
    server: str, made: tuple[Path, str], vendors: Vendors, folder: Path, *, stop_seconds: int
) -> Iterator[tuple[int, Process]]:
    """Its port and its process."""
    shutil.copytree(made[0], folder, dirs_exist_ok=True)
    environment = clean_environment(
        PARLEY_DATA_DIR=str(folder),
        DATABASE_URL=f"sqlite:///{folder}/parley.sqlite3",
        ANTHROPIC_BASE_URL=vendors.url,
        ANTHROPIC_API_KEY=KEYS["anthropic"],
        PARLEY_BACKGROUND="off",
        PARLEY_RELAY_STOP_SECONDS=str(stop_seconds),
    )
    port, log = free_port(), folder / "log"
    with run_server(
        server, application="project.asgi:application", port=port, log=log, environment=environment
    ) as process:
        yield port, process


def open_stream(port: int, key: str, vendors: Vendors) -> http.client.HTTPResponse:
    """A reply that takes four seconds."""
    vendors.plays("anthropic-messages", replace(says(*["word "] * 40), delay=0.1))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({**BODY, "stream": True})
    connection.request("POST", f"/v1/messages?key={key}", body, {"anthropic-version": "2023-06-01"})
    return connection.getresponse()


@pytest.mark.parametrize("server", SERVERS)
def test_the_relay_carries_and_mcp_answers_under_every_server(
    server: str, made: tuple[Path, str], vendors: Vendors, tmp_path: Path
) -> None:
    """After SIGTERM new calls are refused, and a stream may end."""
    key = made[1]
    with serving(server, made, vendors, tmp_path, stop_seconds=20) as (port, process):
        assert json.loads(post(port, BODY, key)[0])["content"][0]["text"] == "Hello."
        assert post(port, {**BODY, "stream": True}, key)[0].endswith(b'{"type":"message_stop"}\n\n')
        vendors.plays("anthropic-messages", replace(says("Hel", "lo."), cut_at=300))
        cut, is_cut = post(port, {**BODY, "stream": True}, key)
        assert (len(cut), is_cut) == (300, True)
        vendors.plays("anthropic-messages", replace(says(*["word "] * 60), delay=0.1))
        post(port, {**BODY, "stream": True}, key, only=100)
        assert vendors.requests[-1].left.wait(15)
        url = f"http://127.0.0.1:{port}"
        assert len(list_tool_names(url, key)) == 4
        call_tool_text(url, key, "append_note", text="Quokkas are small.")
        assert "Notes: k" in call_tool_text(url, key, "search_history", query="quokkas")
        wait_for(lambda: len(reasons(tmp_path)) == 4, seconds=15, what="the journal")
        assert reasons(tmp_path) == ["done", "done", "upstream_cut", "client_gone"]
        stream = open_stream(port, key, vendors)
        beginning = stream.read(100)
        process.popen.send_signal(signal.SIGTERM)
        wait_for(lambda: json.loads(post(port, BODY, key)[0])["type"] == "error", seconds=10, what="a refusal")
        assert (beginning + stream.read()).endswith(b'{"type":"message_stop"}\n\n')
        assert process.popen.wait(20) in (0, -signal.SIGTERM)
    assert reasons(tmp_path)[4] == "done"
    assert key not in process.output
    assert "Traceback" not in process.output


@pytest.mark.parametrize("server", SERVERS)
def test_a_websocket_to_the_relay_is_refused_at_once(
    server: str, made: tuple[Path, str], vendors: Vendors, tmp_path: Path
) -> None:
    """Clients that prefer a websocket use POST at once after a 426. Other paths have sockets, and refuse with 403."""
    with serving(server, made, vendors, tmp_path, stop_seconds=1) as (port, process):
        assert handshake(port, "/v1/responses", authorization="Bearer of-a-vendor") == 426
        assert handshake(port, "/ws/v1/", authorization="Bearer of-a-vendor") == 403
        assert json.loads(post(port, BODY, made[1])[0])["content"][0]["text"] == "Hello."
        assert "Traceback" not in process.output


def handshake(port: int, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "openai-beta": "responses_websockets=2026-02-06",
    }
    try:
        connection.request("GET", path, headers={**upgrade, **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("server", SERVERS)
def test_a_stream_is_cut_when_the_time_after_sigterm_is_over(
    server: str, made: tuple[Path, str], vendors: Vendors, tmp_path: Path
) -> None:
    with serving(server, made, vendors, tmp_path, stop_seconds=1) as (port, process):
        stream = open_stream(port, made[1], vendors)
        stream.read(100)
        process.popen.send_signal(signal.SIGTERM)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            stream.read()
        assert process.popen.wait(20) in (0, -signal.SIGTERM)
    assert reasons(tmp_path)[0] == "stopped"
