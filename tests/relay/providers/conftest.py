"""Connections of one test do not outlive it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from relay.providers import connections


@pytest_asyncio.fixture(autouse=True)
async def _no_session_left() -> AsyncIterator[None]:
    yield
    await connections.close()
