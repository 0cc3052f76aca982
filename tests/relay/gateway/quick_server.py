"""Uvicorn for tests that begin and end one each: it naps for a tenth of a second wherever it waits, this one hardly."""

import asyncio
import time
from typing import Any

import uvicorn

NAP = 0.005
SHUTDOWN_SECONDS = 1.0


class QuickServer(uvicorn.Server):
    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(NAP)

    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        state, end = self.server_state, time.monotonic() + SHUTDOWN_SECONDS
        for connection in list(state.connections):
            connection.shutdown()
        while (state.connections or state.tasks) and time.monotonic() < end:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(NAP)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()
