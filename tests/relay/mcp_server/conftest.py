"""Parley's MCP server under a real server, in a thread of the test's own process, shared by all tests of a file."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import uvicorn

from relay.mcp_server import application
from tests.servers.databases import close_connections
from tests.servers.processes import wait_for


@pytest.fixture(scope="module")
def listening() -> Iterator[str]:
    config = uvicorn.Config(application.application, port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="mcp", daemon=True)
    thread.start()
    wait_for(lambda: server.started, seconds=10, what="the MCP server listening")
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def url(listening: str, transactional_db: None) -> Iterator[str]:
    yield listening
    close_connections()
