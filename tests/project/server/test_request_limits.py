"""Hostile, slow and large request bodies under every server.

Beside each hostile body another client polls /healthz, and the slowest poll is compared with polls of the same server
while nothing else happens. Without the limits 4 MB of small form parts stopped the server for more than 4 seconds.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zstandard
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from project.server.limits import FRAMES_AT_ONCE, FrameMeter
from tests.servers.databases import copy_migrated_file
from tests.servers.processes import SERVERS, Process, clean_environment, free_port, run_manage, run_server
from tests.vendors import KEYS, Vendors

APPLICATION = "tests.project.server.short_timeouts_app:application"
MEGABYTE = 1024 * 1024
# Allowed beside an attack: this much more than the slowest poll without one. The machine may be busy otherwise.
FACTOR, SECONDS, TRIES = 5, 0.7, 3
SENDER = """
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from history.access import keys
from project.accounts.models import User
ada = User.objects.create_user("ada")
session = SessionStore()
session[SESSION_KEY], session[HASH_SESSION_KEY] = str(ada.pk), ada.get_session_auth_hash()
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session.create()
print(keys.create(name="k", owner=ada, scopes=["relay", "read", "import"]).secret, session.session_key)
"""
TOKEN = "a" * 32


@dataclass
class Site:
    """One server with its database, one user and the vendors that are played for it."""

    server: str
    port: int
    process: Process
    vendors: Vendors
    key: str
    session: str
    idle: list[float] = field(default_factory=list)

    def ask(
        self, method: str, path: str, body: bytes | Iterator[bytes] = b"", **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        is_chunked = not isinstance(body, bytes)
        try:
            with suppress(ConnectionError):  # refused while the body was on its way: the answer is there all the same
                connection.request(method, path, body, named, encode_chunked=is_chunked)
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()

    def poll(self) -> float:
        start = time.monotonic()
        assert self.ask("GET", "/healthz")[0] == 200
        return time.monotonic() - start

    def slowest_beside(self, attack: Callable[[], object]) -> float:
        """The slowest poll while the attack runs."""
        running = threading.Thread(target=attack)
        running.start()
        polls = [self.poll()]
        while running.is_alive():
            polls.append(self.poll())
        return max(polls)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A database with one user; a key and a browser session of hers."""
    folder = tmp_path_factory.mktemp("sender")
    variables = {"PARLEY_DATA_DIR": str(folder), "DATABASE_URL": copy_migrated_file(folder / "parley.sqlite3")}
    key, session = run_manage("shell", "--no-imports", "--command", SENDER, **variables).stdout.split()
    return folder, key, session


@pytest.fixture(scope="module", params=SERVERS)
def site(
    request: pytest.FixtureRequest, sender: tuple[Path, str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder, key, session = sender
    port, log = free_port(), tmp_path_factory.mktemp("served") / "log"
    with Vendors() as vendors:
        environment = clean_environment(
            PARLEY_DATA_DIR=str(folder),
            DATABASE_URL=f"sqlite:///{folder}/parley.sqlite3",
            ANTHROPIC_BASE_URL=vendors.url,
            ANTHROPIC_API_KEY=KEYS["anthropic"],
            PARLEY_BACKGROUND="off",
            PARLEY_RELAY_BODY_MB="8",
            PARLEY_IMPORT_MB="16",
        )
        with run_server(request.param, application=APPLICATION, port=port, log=log, environment=environment) as process:
            site = Site(request.param, port, process, vendors, key, session)
            site.poll()
            site.idle = [site.poll() for _ in range(20)]
            yield site


# Bodies.

PARTS = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * (2 * MEGABYTE // 50) + b"--b--\r\n"
FORM = "multipart/form-data; boundary=b"
ENCODED = "application/x-www-form-urlencoded"


def in_pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


def with_fields() -> bytes:
    fields = ",".join(f'"f{number}":"{"x" * 1_000}"' for number in range(900))
    return f'{{"sessionId":"é",{fields},"model":"nowhere","max_tokens":9,"messages":[]}}'.encode()


# For a model that does not exist: the vendors are played in this process, and to parse it would slow the polls down.
OBJECTS = b'{"model":"nowhere","max_tokens":9,"x":NaN,"messages":[' + b'{"a":[]},' * (3 * MEGABYTE // 9) + b"{}]}"
MODEL_FORM = b'--b\r\nname="model"' + b'\r\nname="model"' * (2 * MEGABYTE // 14)

Answer = tuple[int, bytes, dict[str, str]]
Attack = Callable[[Site], Answer]
ANONYMOUS: dict[str, tuple[Attack, set[int]]] = {
    "form parts": (lambda site: site.ask("POST", "/healthz", PARTS, content_type=FORM), {401}),
    "form parts in chunks": (
        lambda site: site.ask("POST", "/healthz", in_pieces(PARTS, 60_000), content_type=FORM),
        {413},
    ),
    "form fields": (
        lambda site: site.ask("POST", "/accounts/signin/", b"a=1&" * (MEGABYTE // 2), content_type=ENCODED),
        {401},
    ),
    "an import without signing in": (lambda site: site.ask("POST", "/import/", PARTS, content_type=FORM), {401}),
    "an import with a wrong cookie": (
        lambda site: site.ask("POST", "/import/", PARTS, content_type=FORM, cookie="parley_session=unknown"),
        {401},
    ),
    "an import by a wrong key": (
        lambda site: site.ask("POST", "/api/history/import", PARTS, authorization="Bearer parley_x_y"),
        {401},
    ),
    "a relayed call without a key": (lambda site: site.ask("POST", "/v1/messages", PARTS), {401}),
    "a relayed call by a wrong key": (lambda site: site.ask("POST", "/v1/messages", PARTS, x_api_key="wrong"), {401}),
    # On a busy machine so many pieces may take longer than the body of an impatient server is allowed to.
    "tiny chunks": (lambda site: site.ask("POST", "/healthz", in_pieces(b"x" * 20_000, 1)), {403, 408}),
    # Django's own parser: without the cookie the request ends before it.
    "a small form with a token": (
        lambda site: site.ask(
            "POST",
            "/accounts/signin/",
            PARTS[:50_000],
            content_type=FORM,
            cookie=f"parley_csrf={TOKEN}",
            x_csrftoken=TOKEN,
        ),
        {400, 200},
    ),
}
BY_KEY: dict[str, tuple[Attack, set[int]]] = {
    "NaN": (lambda site: relayed(site, OBJECTS), {404}),
    "fields beside a letter": (lambda site: relayed(site, with_fields()), {404}),
    "a form of model names": (
        lambda site: site.ask("POST", "/v1/audio/speech", MODEL_FORM, x_api_key=site.key, content_type=FORM),
        {400, 404},
    ),
    "a large call of MCP": (lambda site: mcp_call(site, b'"' + b"x" * 900_000 + b'"'), {200}),
    "tiny lists for MCP": (lambda site: mcp_call(site, b"[" + b"[]," * 300_000 + b"0]"), {413}),
    "more than the limit": (lambda site: relayed(site, b" " * (9 * MEGABYTE)), {413}),
    "a gzip bomb": (
        lambda site: relayed(site, gzip.compress(b" " * (64 * MEGABYTE), 1), content_encoding="gzip"),
        {413},
    ),
    "a zstd bomb": (
        lambda site: relayed(site, zstandard.compress(b" " * (64 * MEGABYTE)), content_encoding="zstd"),
        {413},
    ),
}


def mcp_call(site: Site, query: bytes) -> Answer:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_history","arguments":{"query":'
    accept = "application/json, text/event-stream"
    headers = {"authorization": f"Bearer {site.key}", "content_type": "application/json", "accept": accept}
    return site.ask("POST", "/mcp", call + query + b"}}}", **headers)


def relayed(site: Site, body: bytes | Iterator[bytes], **headers: str) -> Answer:
    return site.ask(
        "POST",
        "/v1/messages",
        body,
        x_api_key=site.key,
        anthropic_version="2023-06-01",
        content_type="application/json",
        **headers,
    )


@pytest.mark.parametrize("name", [*ANONYMOUS, *BY_KEY])
def test_a_hostile_body_does_not_keep_others_waiting(site: Site, name: str) -> None:
    attack, statuses = (ANONYMOUS | BY_KEY)[name]
    waited = []
    # A body that stops the server does so each time. Another program on a busy machine does not.
    for _ in range(TRIES):
        answered: list[int] = []
        slowest = site.slowest_beside(lambda: answered.append(attack(site)[0]))  # noqa: B023 - called at once
        assert set(answered) <= statuses, answered
        assert answered, "no answer"
        if slowest <= FACTOR * max(site.idle) + SECONDS:
            return
        waited.append(f"{slowest:.2f} s")
        site.idle = [site.poll() for _ in range(20)]
    pytest.fail(f"polls waited {waited}; alone {max(site.idle):.2f} s")


MANY = 1_500
CSRF = f"cookie: parley_csrf={TOKEN}\r\nx-csrftoken: {TOKEN}\r\n"
# Path, headers and body of requests that Django or a server cannot read. Each is the sender's mistake.
MALFORMED: dict[str, tuple[str, str, bytes]] = {
    "form fields for no page": ("/s/x/", f"{CSRF}content-type: {ENCODED}\r\n", b"a&" * MANY),
    "form parts for no page": ("/nowhere/", f"{CSRF}content-type: {FORM}\r\n", PARTS[:60_000]),
    "a form in another charset": ("/accounts/signin/", f"{CSRF}content-type: {ENCODED}; charset=utf-7\r\n", b"a=1"),
    "a form in a codec that fails": ("/accounts/signin/", f"{CSRF}content-type: {FORM}; charset=idna\r\n", PARTS[:500]),
    "a charset of compressed data": ("/api/history/sessions", "content-type: application/json; charset=bz2\r\n", b"{}"),
    "a parameter of an unknown charset": ("/accounts/signin/", "content-type: text/plain; a*=no-such''x\r\n", b"a"),
    "part headers without end": ("/accounts/signin/", f"{CSRF}content-type: {FORM}\r\n", b"--b\r\nX: " + b"y" * 60_000),
    "many query fields": (f"/accounts/signin/?{'a&' * MANY}", "", b""),
    "many cookies": ("/accounts/signin/", f"cookie: {'; '.join(f'a{n}=1' for n in range(MANY))}\r\n", b""),
    "a cookie of backslashes": ("/accounts/signin/", f'cookie: parley_session="{"x" * 10}{chr(92) * 5_000}\r\n', b""),
    "many languages": ("/accounts/signin/", f"accept-language: {','.join(f'x{n}' for n in range(MANY))}\r\n", b""),
    "a path beside a page": ("//accounts//signin/%2e%2e/", CSRF, b"a=1"),
    "an encoded path of the relay": ("/%76%31/messages", "", b"{}"),
    "a nul in the path": ("/v1/messages%00", "", b"{}"),
    "half a character in the query": ("/accounts/signin/?next=%ff%fe", "", b""),
}


def test_malformed_requests_are_refused_without_an_error_of_ours(site: Site) -> None:
    statuses = {}
    for name, (path, headers, body) in MALFORMED.items():
        with site.connect() as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            statuses[name] = int(read_all(connection).split(b" ", 2)[1])
    assert {name: status for name, status in statuses.items() if not 400 <= status < 500 and status != 200} == {}
    assert statuses["a form in another charset"] == statuses["a form in a codec that fails"] == 415
    assert "Traceback" not in site.process.output


def test_a_body_of_gigabytes_is_refused_by_its_length_alone(site: Site) -> None:
    for path in ("/healthz", "/import/", "/v1/messages", "/api/history/import", "/mcp"):
        with site.connect() as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000000\r\n"
            connection.sendall(f"{head}x-api-key: wrong\r\n\r\n".encode())
            assert connection.recv(100).split()[1] in (b"401", b"413"), path


def test_a_client_that_asks_first_is_not_told_to_send_what_is_refused(site: Site) -> None:
    with site.connect() as connection:
        head = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).split()[1] in (b"401", b"413")


def test_what_follows_a_refused_body_is_not_taken_for_a_request(site: Site) -> None:
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with site.connect() as connection:
        head = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n"
        connection.sendall(head + hidden)
        assert read_all(connection).count(b"HTTP/1.1 ") == 1


def read_all(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError):
        while piece := connection.recv(10_000):
            received += piece
    return received


def test_headers_that_never_end_are_not_waited_for(site: Site) -> None:
    if site.server == "granian":
        pytest.skip("Granian has its own deadline of 30 seconds, and silent connections are left to the proxy")
    with site.connect() as silent, site.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        ends = time.monotonic() + 20
        with suppress(ConnectionError):
            while not ready(slow, 0.1) and time.monotonic() < ends:
                slow.sendall(b"X: y\r\n")
        assert b" 408 " in read_all(slow)[:20]
        assert b" 200 " not in read_all(silent)


def ready(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(1, socket.MSG_PEEK) is not None
    except TimeoutError:
        return False
    finally:
        connection.settimeout(20)


@pytest.mark.parametrize("path", ["/accounts/signin/", "/v1/messages"])
def test_a_body_that_comes_drop_by_drop_is_not_waited_for(site: Site, path: str) -> None:
    with site.connect() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {site.key}\r\nContent-Length: 10000\r\n\r\n"
        connection.sendall(head.encode())
        ends = time.monotonic() + 20
        with suppress(ConnectionError):
            while not ready(connection, 0.1) and time.monotonic() < ends:
                connection.sendall(b"x")
        assert b" 408 " in read_all(connection)[:20]


def test_a_connection_is_kept_after_a_short_body_that_is_not_read(site: Site) -> None:
    with site.connect() as connection:
        ask = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
        for _ in range(2):
            connection.sendall(ask)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert (answer.status, bool(answer.read())) == (401, True)


def test_large_bodies_of_known_senders_arrive_whole(site: Site) -> None:
    said = {"role": "user", "content": "嗨" * (2 * MEGABYTE)}
    body = json.dumps({"model": "claude-x", "max_tokens": 9, "messages": [said]}, ensure_ascii=False).encode()
    for content in (body, in_pieces(body, 100_000)):
        assert relayed(site, content)[0] == 200
        assert site.vendors.requests[-1].body["messages"] == [said]
    file = b"x" * (12 * MEGABYTE)
    for content in (file, in_pieces(file, 100_000)):
        status, answer, _ = site.ask(
            "POST", "/api/history/import?name=a.jsonl", content, authorization=f"Bearer {site.key}"
        )
        assert status == 202, answer
    picture = b"\x89PNG\r\n\x1a\n" + b"\0" * (8 * MEGABYTE)
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + picture + b"\r\n--b--\r\n"
    status, answer, _ = site.ask(
        "POST",
        "/attachments/",
        form,
        content_type=FORM,
        cookie=f"parley_session={site.session}; parley_csrf={TOKEN}",
        x_csrftoken=TOKEN,
        origin=f"http://127.0.0.1:{site.port}",
    )
    assert (status, b"8.0" in answer) == (200, True), answer[:2000]


def test_a_message_of_a_socket_that_is_too_large_closes_it(site: Site) -> None:
    url = f"ws://127.0.0.1:{site.port}/ws/v1/"
    with connect(url, additional_headers={"x-api-key": site.key}, max_size=None) as websocket:
        assert json.loads(websocket.recv(timeout=20))["type"] == "welcome"
        websocket.send(json.dumps({"type": "nothing", "id": "1", "x": [[]] * 100_000}))
        assert json.loads(websocket.recv(timeout=20))["type"] == "error"
        with suppress(ConnectionClosed):
            websocket.send("x" * (2 * MEGABYTE))
        with pytest.raises(ConnectionClosed):
            read_until_closed(websocket)
    site.poll()


def read_until_closed(websocket: ClientConnection) -> None:
    while True:
        websocket.recv(timeout=20)


def test_refusals_have_the_form_that_callers_expect(site: Site) -> None:
    large = b"x" * 100_000
    status, body, headers = site.ask("POST", "/api/history/import", large)
    assert (status, json.loads(body)["error"]["code"], headers["connection"]) == (401, "not_authenticated", "close")
    status, body, _ = site.ask("PATCH", "/api/history/sessions/x", b"x" * (4 * MEGABYTE), authorization="Bearer x")
    assert (status, json.loads(body)["error"]["code"]) == (413, "too_large")
    status, body, _ = site.ask("POST", "/healthz", large)
    assert (status, body.startswith(b"Sign in")) == (401, True)
    assert "Traceback" not in site.process.output


# Websocket frames.


def frame(code: int, payload: bytes = b"", *, is_last: bool = True) -> bytes:
    """One masked frame; a mask of zeros changes nothing."""
    return bytes([code | (0x80 if is_last else 0), 0x80 | len(payload)]) + b"\0\0\0\0" + payload


FLOODS = {
    "fragments": frame(1, b"{", is_last=False) + frame(0, b" ", is_last=False) * 300_000,
    "empty fragments": frame(1, b"{", is_last=False) + frame(0, is_last=False) * 300_000,
    "pings": frame(9, b"x") * 300_000,
    "pongs": frame(10) * 300_000,
}


@contextmanager
def websocket_of(site: Site, headers: str) -> Iterator[socket.socket]:
    with site.connect() as connection:
        head = f"GET /ws/v1/ HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        upgrade = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        connection.sendall(f"{head}{upgrade}x-api-key: {site.key}\r\n{headers}\r\n".encode())
        yield connection


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_small_frames_does_not_keep_others_waiting(site: Site, name: str) -> None:
    ends: list[bytes] = []

    def flood() -> None:
        with websocket_of(site, "") as connection:
            assert b" 101 " in connection.recv(100)
            with suppress(ConnectionError):
                connection.sendall(FLOODS[name])
            ends.append(read_all(connection) if site.server != "granian" else b"")

    slowest = site.slowest_beside(flood)
    assert ends, "the socket stays open"
    assert slowest <= FACTOR * max(site.idle) + SECONDS, f"{slowest:.2f} s; alone {max(site.idle):.2f} s"


def test_a_handshake_that_is_refused_is_not_waited_for(site: Site) -> None:
    with websocket_of(site, f"x: {'y' * 9_000}\r\n") as connection:
        assert connection.recv(100).split(b" ")[1:2] in ([], [b"101"], [b"400"], [b"431"])


def test_frames_are_counted_however_they_arrive() -> None:
    payload = b"x" * 70_000
    long = bytes([0x81, 0x80 | 127]) + len(payload).to_bytes(8, "big") + b"\0\0\0\0" + payload
    middle = bytes([0x81, 0x80 | 126]) + (300).to_bytes(2, "big") + b"\0\0\0\0" + b"y" * 300
    sent = b"GET / HTTP/1.1\r\n\r\n" + (long + middle + frame(9) + frame(1, b"abc")) * 3
    for size in (len(sent), 1, 7, 1_000):
        meter = FrameMeter()
        assert meter.allows(sent[: max(size, 18)])
        assert all(meter.allows(sent[start : start + size]) for start in range(max(size, 18), len(sent), size))
        assert FRAMES_AT_ONCE - 12 <= meter._left <= FRAMES_AT_ONCE
        assert not meter.allows(frame(9) * (FRAMES_AT_ONCE + 100))
