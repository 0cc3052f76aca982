"""Digesters of other hosts that write into the same database: up to which moment each has filed its journal.

A client's next request may reach another host than the one before, and sooner than that one's digester has filed the
answer which it goes on from. So each says now and then up to when all of its journal is in the record, and who finds an
answer missing asks whether somebody may still have it. One that says nothing for a while is gone, or so far behind that
to wait for it is no use. Who is alone looks every few seconds whether he still is, and says nothing.
"""

from __future__ import annotations

import time

from history.transactions import writing
from relay.gateway.digest import positions

# How often one who is alone looks around, and one who is not tells how far he is.
LOOK_SECONDS, TELL_SECONDS = 5.0, 0.5
GONE_SECONDS = 10.0
# Who has heard nobody for so long is alone.
ALONE_SECONDS = 600.0
# What was asked a moment ago is true enough: many calls may wait in one step.
FRESH_SECONDS = 0.05
# What was told of a moment is true to a millisecond or two; nobody hears an answer and asks again within that.
BLUR_SECONDS = 0.002
NEVER = float("-inf")


class Neighbours:
    def __init__(self, name: str) -> None:
        self.name = name
        self.are_there = False
        self._digested: list[float] = []  # the moments of those who live, by our clock
        self._looked_at = self._told_at = NEVER

    def look_around(self) -> None:
        """At each step; mostly there is nothing to do."""
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()

    def tell(self, digested_until: float | None) -> None:
        """Once at the beginning, so that others know of us, and then to those who are there."""
        now = time.monotonic()
        if digested_until is None or now - self._told_at < TELL_SECONDS:
            return
        if self.are_there or self._told_at == NEVER:
            with writing():
                positions.tell(self.name, age=now - digested_until)
            self._told_at = now

    def may_have(self, *, before: float) -> bool:
        """Whether one of them may have something from before that moment which is not in the record."""
        if not self.are_there:
            return False
        if time.monotonic() - self._looked_at >= FRESH_SECONDS:
            self._look()
        return any(moment <= before + BLUR_SECONDS for moment in self._digested)

    def _look(self) -> None:
        now = time.monotonic()
        ages = positions.ages_of_others(self.name)
        self.are_there = any(age < ALONE_SECONDS for age in ages)
        self._digested = [now - age for age in ages if age < GONE_SECONDS]
        self._looked_at = now
