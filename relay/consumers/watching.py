"""What one page knows of the answer that it watches, and the answers that several pages of this process share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from relay.live.frames import Change, LiveAnswer
from relay.live.run_task import PartialAnswer

# By run: as long as a page watches it. All of them live in the one event loop of the server.
_shared: WeakValueDictionary[str, LiveAnswer] = WeakValueDictionary()


class Watch:
    """`run` is followed; `seen` is the frame that the page shows; `element` is the live answer's id on the page."""

    def __init__(self) -> None:
        self.run = ""
        self.answer: LiveAnswer | None = None
        self.seen = 0
        self.element = ""
        self.heard_at = 0.0
        self.others: set[str] = set()

    def follow(self, run: str) -> None:
        """The page shows what is stored; whatever was live on it is not there any more."""
        self.run, self.answer, self.element = run, None, ""

    def concerns(self, run: str) -> bool:
        """Whether frames of this run are for us, as far as we know."""
        return run == self.run or (not self.run and run not in self.others)

    def shows(self, frame: dict[str, Any]) -> bool:
        """Whether the page has the answer that this frame begins: it may have been there when we looked."""
        return self.answer is not None and self.answer.exchange == frame["exchange"]

    def open(self, frame: dict[str, Any]) -> LiveAnswer:
        """A new answer begins with this frame."""
        found = _shared.get(frame["run"])
        if found is None or found.exchange != frame["exchange"]:
            found = LiveAnswer(run=frame["run"], exchange=frame["exchange"], n=frame["n"], label=frame["model"])
        return found

    async def resume(self, so_far: PartialAnswer) -> LiveAnswer:
        """An answer that began before we came, or went on without our hearing it."""
        found = _shared.get(self.run)
        if found is None or found.exchange != so_far.exchange or found.n < so_far.n:
            before = found if found is not None and found.exchange == so_far.exchange else None
            found = await LiveAnswer.so_far(
                so_far.output,
                run=self.run,
                exchange=so_far.exchange,
                n=so_far.n,
                names=so_far.names,
                label=so_far.model,
            )
            for frame in list(before.ahead.values()) if before else ():
                await found.hear(frame)
        return found

    @asynccontextmanager
    async def showing(self, answer: LiveAnswer) -> AsyncIterator[None]:
        """Inside, the page is sent all of this answer, which no frame changes meanwhile."""
        async with answer.order:
            _shared[answer.run] = answer
            self.answer, self.seen, self.element = answer, answer.n, f"run-{answer.run}"
            self.heard_at = time.monotonic()
            yield

    async def take(self, frame: dict[str, Any]) -> list[Change] | None:
        """What the page has to change for this frame: nothing for a repetition; None: something was missed."""
        answer = self.answer
        if answer is None or answer.exchange != frame["exchange"]:
            return None
        self.heard_at = time.monotonic()
        if frame["n"] <= self.seen:
            return []
        await answer.hear(frame)
        changes = answer.between(self.seen, answer.n) if answer.n >= frame["n"] else None
        self.seen = answer.n if changes is not None else self.seen
        return changes

    @property
    def has_gap(self) -> bool:
        """Frames came, and one before them did not."""
        return self.answer is not None and bool(self.answer.ahead)

    def has_been_silent(self, seconds: float) -> bool:
        return time.monotonic() - self.heard_at >= seconds
