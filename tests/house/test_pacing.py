"""A download takes no more memory than its reader is behind: servers wait for slow clients."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.house.processes import clean_environment, free_port, serving
from tests.house.torrent import PIECE, PIECES

ASK = b"GET /all HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
def test_a_stream_waits_for_whoever_reads_it_and_arrives_whole(server: str, tmp_path: Path) -> None:
    port, sent = free_port(), tmp_path / "sent"
    environment = clean_environment(TORRENT_SENT=str(sent))
    application = "tests.house.torrent:application"
    with (
        serving(server, application=application, port=port, log=tmp_path / "log", environment=environment) as process,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.sendall(ASK)
        client.recv(100_000)
        time.sleep(1)
        behind = int(sent.read_text())
        assert behind * len(PIECE) < 16_000_000  # what the kernel's own buffers take
        time.sleep(0.5)
        assert int(sent.read_text()) == behind
        received, ending = 0, b""
        while piece := client.recv(1_000_000):
            received += len(piece)
            ending = (ending + piece)[-30:]
        assert b"end" in ending
        assert int(sent.read_text()) == PIECES
        assert received > PIECES * len(PIECE) - 100_000
        assert "Traceback" not in process.output
        assert "not unregistered" not in process.output
