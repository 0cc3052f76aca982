"""Digesters of other hosts that write into the same database: up to which moment each has filed its journal.

A client's next request may reach another host than the one before, and sooner than that one's digester has filed the
answer which it goes on from. So each says now and then up to when all of its journal is in the record, and who finds an
answer missing asks whether somebody may still have it. One that says nothing for a while is gone, or so far behind that
to wait for it is no use. Who is alone looks every few seconds whether he still is, and says nothing.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from relay.digest import positions

# How often one who is alone looks around, and one who is not tells how far he is.
LOOK_SECONDS, TELL_SECONDS = 5.0, 0.5
GONE_SECONDS = 10.0
# Who has heard nobody for so long is alone.
ALONE_SECONDS = 600.0
# What was asked a moment ago is true enough: many calls may wait in one step.
FRESH_SECONDS = 0.05
# A clock that shows milliseconds is true to one; nobody hears an answer and asks again within that.
BLUR_SECONDS = 0.002
NEVER = float("-inf")


class Neighbours:
    def __init__(self, name: str) -> None:
        self.name = name
        self.are_there = False
        self._digested: list[float] = []  # the moments of those who live, by our clock
        self._clock: tuple[datetime, float] | None = None  # the database's, and ours a little later
        self._looked_at = self._told_at = NEVER

    def look_around(self) -> None:
        """At each step; mostly there is nothing to do."""
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()

    def tell(self, digested_until: float | None) -> None:
        """Once at the beginning, so that others know of us, and then to those who are there."""
        told_at, digested_at = time.monotonic(), self.by_database(digested_until)
        if digested_at is None or told_at - self._told_at < TELL_SECONDS:
            return
        if self.are_there or self._told_at == NEVER:
            positions.tell(self.name, digested_at=digested_at)
            self._told_at = told_at

    def may_have(self, *, before: float) -> bool:
        """Whether one of them may have something from before that moment which is not in the record."""
        if not self.are_there:
            return False
        if time.monotonic() - self._looked_at >= FRESH_SECONDS:
            self._look()
        return any(moment <= before + BLUR_SECONDS for moment in self._digested)

    def by_database(self, moment: float | None) -> datetime | None:
        """A moment by the clock that all hosts share; rather earlier than later, for nobody may be told too much."""
        if moment is None or self._clock is None:
            return None
        now, ours = self._clock
        return now - timedelta(seconds=ours - moment)

    def _look(self) -> None:
        before = time.monotonic()
        now, moments = positions.look_around(self.name)
        self._clock = now, time.monotonic()
        ages = [(now - moment).total_seconds() for moment in moments]
        self.are_there = any(age < ALONE_SECONDS for age in ages)
        self._digested = [before - age for age in ages if age < GONE_SECONDS]
        self._looked_at = before
