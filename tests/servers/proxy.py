"""A TCP proxy on loopback whose network fails: it goes silent, gets slow, or resets its connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.processes import free_port

# SO_LINGER with 0 seconds: closing sends a reset instead of an orderly end.
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """`port` leads to `target`. New connections fare like those that are open."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, free_port()
        self.delay = 0.0
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", self.port), backlog=64)

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._flows.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self._open |= {client, server}
        threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
        self._carry(server, client)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._flows.wait()
                time.sleep(self.delay)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._open.discard(end)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """A black hole: connections stay open and carry nothing. What was sent meanwhile arrives afterwards."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()

    @contextmanager
    def silent_and_reset(self) -> Iterator[None]:
        """A black hole; what was sent meanwhile is lost."""
        self._flows.clear()
        try:
            yield
        finally:
            self.reset()
            self._flows.set()

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        self.delay = seconds
        try:
            yield
        finally:
            self.delay = 0.0

    def reset(self) -> None:
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()
            self._open.discard(end)

    def close(self) -> None:
        self._server.close()
        self._flows.set()
        self.reset()


@contextmanager
def proxy(target: int) -> Iterator[Proxy]:
    made = Proxy(target)
    threading.Thread(target=made.serve, daemon=True).start()
    try:
        yield made
    finally:
        made.close()
