"""The official client, for tests that need one call or two. It takes long to import, so only who asks imports it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

T = TypeVar("T")


def run_with_client(
    url: str, key: str, ask: Callable[[Client], Awaitable[T]], *, mode: str = "auto", **headers: str
) -> T:
    """What `ask` gets from the server, after a handshake in one of the protocol's two ways (`legacy`, `auto`)."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def run_request() -> T:
        sent = {"Authorization": f"Bearer {key}", **headers}
        async with (
            httpx2.AsyncClient(headers=sent, timeout=30) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
        ):
            return await ask(client)

    return asyncio.run(run_request())


def call_tool(url: str, key: str, name: str, **arguments: Any) -> CallToolResult:
    return run_with_client(url, key, lambda client: client.call_tool(name, arguments))


def call_tool_text(url: str, key: str, name: str, **arguments: Any) -> str:
    result = call_tool(url, key, name, **arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    return "\n".join(getattr(part, "text", "") for part in result.content)


def list_tool_names(url: str, key: str, *, mode: str = "auto") -> list[str]:
    async def listed(client: Client) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    return run_with_client(url, key, listed, mode=mode)
