"""The two ways to a server, each within limits: a program on this machine, or streamable HTTP.

A server may be broken or hostile. The SDK's own way to run a program reads lines of any length and logs rubbish.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
from django.conf import settings as django_settings
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from relay.providers.connections import USER_AGENT, is_loopback
from relay.tools.mcp.config import McpFailure, McpSettings

MOST_BYTES = 4 * 1024 * 1024
MOST_RUBBISH = 100
ERROR_OUTPUT_BYTES = 500
SECONDS_TO_END = 2.0
CONNECT_SECONDS = 10.0

Streams = tuple[Any, Any]


@dataclass
class Notes:
    """Why a connection ended: our reason, and the end of the program's error output."""

    problem: str = ""
    error_output: bytes = b""
    has_ended: bool = False


def open_streams(server: McpSettings, notes: Notes) -> AbstractAsyncContextManager[Streams]:
    return _process(server, notes) if server.command else _http(server)


@asynccontextmanager
async def _process(server: McpSettings, notes: Notes) -> AsyncGenerator[Streams]:
    if not django_settings.PARLEY_MCP_COMMANDS:
        raise McpFailure("PARLEY_MCP_COMMANDS is off: programs are not started as MCP servers")
    process = await _start_program(server)
    to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_read_messages, process, to_us, notes)
        group.start_soon(_write_messages, process, from_us)
        group.start_soon(_read_errors, process, notes)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            group.cancel_scope.cancel()
            for stream in (to_us, read, write, from_us):
                stream.close()


async def _start_program(server: McpSettings) -> asyncio.subprocess.Process:
    """In a group of its own, in a folder of its own, and without what our own environment holds."""
    folder = Path(django_settings.PARLEY_DATA_DIR) / "mcp" / server.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return await asyncio.create_subprocess_exec(
            server.command,
            *server.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**get_default_environment(), **server.environment},
            cwd=folder,
            start_new_session=True,
            limit=MOST_BYTES,
        )
    except (OSError, ValueError) as error:
        raise McpFailure(f"the program cannot be started ({getattr(error, 'strerror', '') or error})") from None


async def _read_messages(process: asyncio.subprocess.Process, to_us: Any, notes: Notes) -> None:
    assert process.stdout
    rubbish = 0
    async with to_us:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            try:
                while line := await process.stdout.readline():
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        rubbish += 1
                        if rubbish > MOST_RUBBISH:
                            notes.problem = "it sends invalid JSON-RPC"
                            break
                        continue
                    await to_us.send(SessionMessage(message))
            except ValueError:
                notes.problem = f"it sends a line of more than {MOST_BYTES:,} bytes"
    notes.has_ended = True


async def _write_messages(process: asyncio.subprocess.Process, from_us: Any) -> None:
    assert process.stdin
    with suppress(ConnectionError, anyio.ClosedResourceError):
        async for one in from_us:
            process.stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _read_errors(process: asyncio.subprocess.Process, notes: Notes) -> None:
    assert process.stderr
    while piece := await process.stderr.read(4096):
        notes.error_output = (notes.error_output + piece)[-ERROR_OUTPUT_BYTES:]


async def _end(process: asyncio.subprocess.Process) -> None:
    """As the protocol says: close its input, then SIGTERM, then SIGKILL, for its whole process group."""
    assert process.stdin
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_TO_END):
                await process.wait()
        if process.returncode is not None and number is not None:
            return


@asynccontextmanager
async def _http(server: McpSettings) -> AsyncGenerator[Streams]:
    host = httpx2.URL(server.url).host
    if django_settings.PARLEY_LOOPBACK_ONLY and not is_loopback(host):
        raise McpFailure(f"PARLEY_LOOPBACK_ONLY is on and {host} is another machine")
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=server.seconds)
    headers = {"User-Agent": USER_AGENT, **server.headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_Limited(), trust_env=False) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams


class _Limited(httpx2.AsyncHTTPTransport):
    """No reply is longer than a line of a program may be."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Measured(response.stream)
        return response


class _Measured(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self.stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self.stream:
            size += len(piece)
            if size > MOST_BYTES:
                raise httpx2.ReadError(f"the reply is longer than {MOST_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self.stream.aclose()
