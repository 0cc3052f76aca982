"""A download takes no more memory than its reader is behind: servers wait for slow clients."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.project.server.large_response_app import PIECE, PIECES
from tests.servers.processes import clean_environment, free_port, run_server, wait_for

pytestmark = pytest.mark.runs_first

ASK = b"GET /all HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def is_waiting(sent: Path) -> bool:
    """However slow the machine is: nothing is sent any more, for half a second."""
    before = sent.read_text()
    time.sleep(0.5)
    return before != "" and sent.read_text() == before


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
def test_a_stream_waits_for_its_reader_and_arrives_whole(server: str, tmp_path: Path) -> None:
    port, sent = free_port(), tmp_path / "sent"
    environment = clean_environment(TORRENT_SENT=str(sent))
    application = "tests.project.server.large_response_app:application"
    with (
        run_server(
            server, application=application, port=port, log=tmp_path / "log", environment=environment
        ) as process,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        sent.touch()
        client.sendall(ASK)
        client.recv(100_000)
        wait_for(lambda: is_waiting(sent), seconds=30, what="the server waiting for its reader")
        assert int(sent.read_text()) * len(PIECE) < 16_000_000  # what the kernel's own buffers take
        received, ending = 0, b""
        while piece := client.recv(1_000_000):
            received += len(piece)
            ending = (ending + piece)[-30:]
        assert b"end" in ending
        assert int(sent.read_text()) == PIECES
        assert received > PIECES * len(PIECE) - 100_000
        assert "Traceback" not in process.output
        assert "not unregistered" not in process.output
