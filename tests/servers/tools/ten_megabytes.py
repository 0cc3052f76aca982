"""A tool that says more than anybody reads."""

from __future__ import annotations

from relay.tools.base import ToolContext, tool

CHARS = 10_000_000


@tool(output_chars=2 * CHARS)
def ten_megabytes(context: ToolContext) -> str:
    """Say very much."""
    return "needle " + "x" * (CHARS - 7)
