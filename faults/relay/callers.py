"""Clients under load: each asks question after question until told to stop, and keeps what it was told."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from faults.relay.installation import Installation

_WORD = re.compile(rb'"content": ?"([^"]*)"')


@dataclass(slots=True)
class ClientCall:
    """What one client knows of one call. `is_whole`: the reply came to its proper end."""

    number: int
    at: float
    question: str
    exchange: str = ""
    status: int = 0
    text: str = ""
    is_whole: bool = False
    seconds: float = 0.0


def call_relay(
    installation: Installation, number: int, *, more: str = "", leave_after: int | None = None
) -> ClientCall:
    """One call. `leave_after`: so many words are read, then the client hangs up."""
    call = ClientCall(number, time.monotonic(), f"question {number}{more}")
    connection = http.client.HTTPConnection("127.0.0.1", installation.port, timeout=30)
    body = {"model": "openai/m", "stream": True, "messages": [{"role": "user", "content": call.question}]}
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {installation.key}"}
        )
        response = connection.getresponse()
        call.status, call.exchange = response.status, response.getheader("x-parley-exchange-id") or ""
        _read(response, call, leave_after)
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
        call.seconds = time.monotonic() - call.at
    return call


def _read(response: http.client.HTTPResponse, call: ClientCall, leave_after: int | None) -> None:
    words = 0
    while leave_after is None or words < leave_after:
        line = response.readline()
        if not line:
            return
        if b"[DONE]" in line:
            call.is_whole = True
        elif found := _WORD.search(line):
            call.text += found[1].decode()
            words += 1


@dataclass(slots=True)
class Load:
    calls: list[ClientCall] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @contextmanager
    def on(self, installation: Installation, *, clients: int = 8) -> Iterator[None]:
        """While inside, so many clients ask one question after the other."""
        ended = threading.Event()
        threads = [
            threading.Thread(target=self._go_on, args=(installation, ended), daemon=True) for _ in range(clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(60)

    def _go_on(self, installation: Installation, ended: threading.Event) -> None:
        while not ended.is_set():
            call = call_relay(installation, next(self._numbers))
            self.calls.append(call)
            if not call.status:
                ended.wait(0.05)  # no server listens just now
