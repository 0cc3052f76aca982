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

from faults.relay.house import House

_WORD = re.compile(rb'"content": ?"([^"]*)"')


@dataclass(slots=True)
class Told:
    """What one client knows of one call. `is_whole`: the reply came to its proper end."""

    number: int
    at: float
    question: str
    exchange: str = ""
    status: int = 0
    text: str = ""
    is_whole: bool = False
    seconds: float = 0.0


def ask(house: House, number: int, *, more: str = "", leave_after: int | None = None) -> Told:
    """One call. `leave_after`: so many words are read, then the client hangs up."""
    told = Told(number, time.monotonic(), f"question {number}{more}")
    connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=30)
    body = {"model": "openai/m", "stream": True, "messages": [{"role": "user", "content": told.question}]}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {house.key}"})
        response = connection.getresponse()
        told.status, told.exchange = response.status, response.getheader("x-parley-exchange-id") or ""
        _read(response, told, leave_after)
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
        told.seconds = time.monotonic() - told.at
    return told


def _read(response: http.client.HTTPResponse, told: Told, leave_after: int | None) -> None:
    words = 0
    while leave_after is None or words < leave_after:
        line = response.readline()
        if not line:
            return
        if b"[DONE]" in line:
            told.is_whole = True
        elif found := _WORD.search(line):
            told.text += found[1].decode()
            words += 1


@dataclass(slots=True)
class Load:
    told: list[Told] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @contextmanager
    def on(self, house: House, *, clients: int = 8) -> Iterator[None]:
        """While inside, so many clients ask one question after the other."""
        ended = threading.Event()
        threads = [threading.Thread(target=self._go_on, args=(house, ended), daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(60)

    def _go_on(self, house: House, ended: threading.Event) -> None:
        while not ended.is_set():
            told = ask(house, next(self._numbers))
            self.told.append(told)
            if not told.status:
                ended.wait(0.05)  # no server listens just now
