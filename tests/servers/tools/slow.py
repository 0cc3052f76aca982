"""A tool that takes its time: so many seconds, or until a test of the same process lets it end."""

from __future__ import annotations

import asyncio

from relay.tools.base import ToolContext, tool


class Gate:
    def __init__(self) -> None:
        self.begun, self.ends = asyncio.Event(), asyncio.Event()


gates: list[Gate] = []


@tool()
async def slow(context: ToolContext, seconds: float = 0) -> str:
    """Wait."""
    if seconds:
        await asyncio.sleep(seconds)
    else:
        gates[-1].begun.set()
        await gates[-1].ends.wait()
    return "It is done."
