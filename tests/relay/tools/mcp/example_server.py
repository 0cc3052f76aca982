"""A small server made with the official SDK, as a process of its own: `stdio`, or `http PORT`."""

from __future__ import annotations

import asyncio
import os
import sys
from base64 import b64encode
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent

server = MCPServer("example")
# One black dot.
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


@server.tool()
def add(first: int, second: int) -> str:
    """Add two numbers."""
    return str(first + second)


@server.tool()
def environment() -> str:
    """The names of the variables that this process has, and one value."""
    return f"{' '.join(sorted(os.environ))} EXAMPLE_TOKEN={os.environ.get('EXAMPLE_TOKEN')}"


@server.tool()
def fail(reason: str) -> str:
    """Raise an error."""
    raise ToolError(reason)


@server.tool(name="notes/read.all")
async def read_notes(hidden: bool = False) -> str:
    """Text with invisible characters."""
    await asyncio.sleep(0)
    return "plain\U000e0041\u202e text\x07" if hidden else "plain text"


@server.tool()
def draw(word: str) -> list[Any]:
    """A picture, a file that only claims to be one, and a word."""
    lie = ImageContent(type="image", data=b64encode(b"#!/bin/sh").decode(), mime_type="image/png")
    return [word, ImageContent(type="image", data=DOT, mime_type="image/png"), lie]


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
