"""A program at `/ws/v1/` that checks the numbers of what it is told: nothing is missing, nothing comes twice."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from websockets.sync.client import ClientConnection

Told = dict[str, Any]


class Program:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[Told] = []
        self.largest = 0
        self.texts: dict[str, str] = {}
        self._last: dict[str, int] = {}
        self.welcome = self.until(lambda told: told["type"] == "welcome")

    def ask(self, kind: str, **what: Any) -> Told:
        asked = f"{kind}-{len(self.heard)}"
        self.socket.send(json.dumps({"type": kind, "id": asked, **what}))
        answer = self.until(lambda told: told.get("id") == asked)
        assert answer["type"] == kind, answer
        return answer

    def until(self, is_it: Callable[[Told], Any], *, seconds: float = 60) -> Told:
        """The next thing that it is told of which this is true."""
        end = time.monotonic() + seconds
        while True:
            try:
                told = self.hear(timeout=max(0.01, end - time.monotonic()))
            except TimeoutError:
                raise AssertionError(f"it did not come, but: {self.heard[-5:]}") from None
            if is_it(told):
                return told

    def until_text(self, run: str, has: Callable[[str], bool], *, seconds: float = 60) -> None:
        if not has(self.texts.get(run, "")):
            self.until(lambda told: has(self.texts.get(run, "")), seconds=seconds)

    def ended(self, run: str, *, seconds: float = 60) -> Told:
        return self.until(lambda told: told["type"] == "run.ended" and told["run"] == run, seconds=seconds)

    def hear(self, *, timeout: float) -> Told:
        frame = str(self.socket.recv(timeout=timeout))
        self.largest = max(self.largest, len(frame))
        told: Told = json.loads(frame)
        self.heard.append(told)
        for running in told.get("running", ()):
            self.texts[running["run"]] = text_in(running["pieces"])
            self._last[running["run"]] = running["n"]
        if told["type"].startswith("run."):
            self._count(told)
        return told

    def _count(self, told: Told) -> None:
        run, last = told["run"], self._last.get(told["run"], 0)
        if "n" in told:
            assert told.get("since", told["n"] - 1) == last, f"after {last} came {told}"
            self._last[run] = told["n"]
        if told["type"] == "run.pieces":
            self.texts[run] = self.texts.get(run, "") + text_in(told["pieces"])

    def words(self, run: str) -> list[str]:
        return words_in(self.texts.get(run, ""))

    def close(self) -> None:
        self.socket.close()


def text_in(pieces: list[list[str]]) -> str:
    return "".join(piece[2] for piece in pieces if piece[0] == "text")


def words_in(text: str) -> list[str]:
    return re.findall(r"\bw\d+\b", text)
