"""Requests that are on the wire just as they were given, towards a server that is nothing but a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from relay.errors import AccessRefused
from relay.providers import connections
from relay.providers.connections import RawRequest, Response
from tests.vendors.raw_upstream import RawUpstream, streamed_reply

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LONG = b"x" * 300_000


@dataclass
class Upstream:
    """What it got, one text for each request; and what it says to each connection's next one, or that it hangs up."""

    port: int = 0
    replies: list[bytes] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while reply := await self._next(reader):
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((line[15:] for line in head.lower().split("\r\n") if line.startswith("content-length:")), "0")
        self.heads.append(head)
        self.bodies.append(await reader.readexactly(int(length)))
        return self.replies.pop(0) if self.replies else OK

    async def ask(self, method: str = "POST", *, body: bytes = b"", **given: Any) -> Response:
        request = RawRequest(
            url=f"http://127.0.0.1:{self.port}/v1/x?a=%2F", headers=given.pop("headers", {}), body=body
        )
        given = {"keeps_alive": True, "connect_seconds": 5.0, **given}
        return await connections.ask(request, method=method, loop=asyncio.get_running_loop(), **given)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    found = Upstream()
    server = await asyncio.start_server(found.talk, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    await connections.close()
    server.close()


async def read(response: Response) -> bytes:
    whole = await response.content.read()
    response.close()
    return whole


async def test_nothing_is_added_that_http_does_not_demand(upstream: Upstream) -> None:
    response = await upstream.ask(body=b"{}", headers={"x-Name": "Zoë"})
    assert (response.status, await read(response)) == (200, b"ok")
    lines = ["POST /v1/x?a=%2F HTTP/1.1", f"Host: 127.0.0.1:{upstream.port}", "x-Name: Zoë", "Content-Length: 2"]
    assert upstream.heads == ["\r\n".join(lines) + "\r\n\r\n"]


@pytest.mark.parametrize(("method", "has_length"), [("POST", True), ("GET", False), ("DELETE", True)])
async def test_methods_with_a_body_send_a_length_of_zero(upstream: Upstream, method: str, has_length: bool) -> None:
    await read(await upstream.ask(method))
    assert ("Content-Length: 0" in upstream.heads[0]) is has_length


async def test_a_long_body_arrives_whole(upstream: Upstream) -> None:
    await read(await upstream.ask(body=LONG))
    assert upstream.bodies == [LONG]


async def test_a_connection_whose_reply_was_read_is_used_again_and_no_other(upstream: Upstream) -> None:
    await read(await upstream.ask())
    await read(await upstream.ask())
    assert upstream.connections == 1
    upstream.replies = [b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\nthe beginning"]
    half = await upstream.ask()
    assert await half.content.readany() == b"the beginning"
    half.close()
    await read(await upstream.ask())
    assert upstream.connections == 2


async def test_what_came_before_the_connection_broke_is_read() -> None:
    loop = asyncio.get_running_loop()
    with RawUpstream() as bare:
        bare.says.append(streamed_reply(b"the ", b"beginning", ends=False))
        request = RawRequest(url=bare.url, headers={}, body=b"")
        half = await connections.ask(request, method="POST", loop=loop, keeps_alive=True, connect_seconds=5)
        while half.content.exception() is None:  # noqa: ASYNC110 (aiohttp has no event for it)
            await asyncio.sleep(0.01)
    assert await connections.read_available(half.content) == b"the beginning"
    with pytest.raises(aiohttp.ClientPayloadError):
        await connections.read_available(half.content)
    half.close()
    await connections.close()


async def test_where_connections_are_not_kept_the_upstream_is_told(upstream: Upstream) -> None:
    for _ in range(2):
        await read(await upstream.ask(keeps_alive=False))
    assert upstream.connections == 2
    assert all("Connection: close" in head for head in upstream.heads)


async def test_what_comes_before_the_answer_is_passed_over(upstream: Upstream) -> None:
    upstream.replies = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK]
    assert await read(await upstream.ask()) == b"ok"


async def test_head_reply_has_no_body_despite_its_length(upstream: Upstream) -> None:
    upstream.replies = [b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n"]
    assert await read(await upstream.ask("HEAD")) == b""


@pytest.mark.parametrize(("method", "again"), [("POST", 1), ("GET", 2), ("DELETE", 2)])
async def test_only_what_may_be_done_twice_is_asked_again_where_a_kept_connection_was_closed(
    upstream: Upstream, method: str, again: int
) -> None:
    async def hang_up(reader: asyncio.StreamReader) -> bytes:
        upstream.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        upstream._next = real  # type: ignore[method-assign]
        return b""

    real, upstream._next = upstream._next, hang_up  # type: ignore[method-assign]
    if again == 1:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await upstream.ask(method)
    else:
        assert await read(await upstream.ask(method)) == b"ok"
    assert len(upstream.heads) == again


@pytest.mark.parametrize(
    "reply", [b"what is this?\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: one\r\n\r\n", b"HTTP/1.1 200 OK\r\nab"]
)
async def test_what_is_no_reply_is_an_error_of_the_network_and_ends_the_connection(
    upstream: Upstream, reply: bytes
) -> None:
    async def last_words(reader: asyncio.StreamReader) -> bytes:
        await reader.readuntil(b"\r\n\r\n")
        return reply

    upstream._next = _once(last_words)  # type: ignore[assignment]
    with pytest.raises(aiohttp.ClientError):
        await upstream.ask()
    assert not connections.connector(asyncio.get_running_loop(), keeps_alive=True)._acquired


def _once(function: Callable[[asyncio.StreamReader], Any]) -> Callable[[asyncio.StreamReader], Any]:
    """The first time; then it has nothing more to say."""
    functions = [function]

    async def call(reader: asyncio.StreamReader) -> bytes:
        said: bytes = await functions.pop()(reader) if functions else b""
        return said

    return call


@pytest.mark.parametrize("value", ["a\r\nx-admin: yes", "a\nb", "a\rb", "a\0b"])
async def test_no_header_can_begin_another_one(upstream: Upstream, value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        await upstream.ask(headers={"x-name": value})
    assert upstream.connections == 0


async def test_a_caller_that_gives_up_leaves_no_connection_behind(upstream: Upstream) -> None:
    waiting = asyncio.Event()

    async def wait(reader: asyncio.StreamReader) -> bytes:
        waiting.set()
        await reader.read()
        return b""

    upstream._next = wait  # type: ignore[method-assign]
    asking = asyncio.create_task(upstream.ask())
    await waiting.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert not connections.connector(asyncio.get_running_loop(), keeps_alive=True)._acquired


async def test_refused_connection_is_reported_as_such() -> None:
    from tests.servers.processes import free_port

    with pytest.raises(aiohttp.ClientConnectorError):
        await Upstream(port=free_port()).ask()
    await connections.close()


async def test_no_request_leaves_the_machine_where_that_is_forbidden() -> None:
    request = RawRequest(url="http://192.0.2.1/v1", headers={}, body=b"")
    with pytest.raises(AccessRefused, match=r"192\.0\.2\.1"):
        await connections.ask(
            request, method="GET", loop=asyncio.get_running_loop(), keeps_alive=True, connect_seconds=1.0
        )
