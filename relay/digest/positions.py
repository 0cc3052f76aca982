"""Journal positions in the database: how far the digesters of this host and of others have come.

Everything before a position that belongs to no pending call is in the record, or must not be: it is never read again.
A request may reach another host before the answer that it continues is filed. So each digester writes, by the clock of
the database, up to which moment all of its journal is in the record. A host that is silent for a while is gone, or too
far behind to wait for.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError
from django.db.models import F
from django.db.models.functions import Now

from history.db.transactions import writing
from history.entries import JsonDict, JsonObject
from relay.gateway.journal.records import RecordsLost
from relay.models import JournalPosition

OUTAGES = (DatabaseError, InterfaceError)
# How often a digester that is alone looks for others, and one that is not writes how far it is.
LOOK_SECONDS, WRITE_SECONDS = 5.0, 0.5
GONE_SECONDS = 10.0
ALONE_SECONDS = 600.0  # after so long without another host, a digester is alone
FRESH_SECONDS = 0.05  # many calls may wait in one step: an answer of the database is good for a moment
BLUR_SECONDS = 0.002  # clocks show milliseconds; no client reads an answer and sends the next request within that
NEVER = float("-inf")


def is_outage(error: BaseException) -> bool:
    """Whether the database takes nothing at the moment: away, read-only after a failover, or not migrated yet."""
    # A call is given up only for what the database says of its values.
    return isinstance(error, OUTAGES) and not isinstance(error, (DataError, IntegrityError))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPosition:
    """Each segment is read up to `to`. From `start` on it has records of pending calls."""

    start: Mapping[str, int] = field(default_factory=dict)
    to: Mapping[str, int] = field(default_factory=dict)
    filed: Mapping[UUID, bool] = field(default_factory=dict)  # pending calls: whether their requests are in the record
    holes: Mapping[str, Sequence[int]] = field(default_factory=dict)  # ends of damaged bytes whose loss is counted


def load_position(journal: str) -> ReadPosition:
    stored = JournalPosition.objects.filter(pk=journal).values_list("position", flat=True).first() or {}
    filed = {UUID(name): bool(is_filed) for name, is_filed in stored.get("under_way", {}).items()}
    return ReadPosition(
        start=stored.get("from", {}), to=stored.get("to", {}), filed=filed, holes=stored.get("holes", {})
    )


def save_position(
    journal: str, position: ReadPosition, *, digested_at: datetime | None, lost: Iterable[RecordsLost]
) -> None:
    """To be called in the transaction that writes the rows of everything before it."""
    under_way = {exchange.hex: int(is_filed) for exchange, is_filed in position.filed.items()}
    stored: JsonDict = {"from": position.start, "to": position.to, "under_way": under_way}
    if position.holes:
        stored["holes"] = position.holes
    values: JsonDict = {"position": stored}
    _write(journal, values if digested_at is None else values | {"digested_at": digested_at})
    for loss in lost:
        JournalPosition.objects.filter(pk=journal).update(
            lost_calls=F("lost_calls") + loss.calls,
            lost_bytes=F("lost_bytes") + loss.lost_bytes,
            lost_at=datetime.fromtimestamp(loss.at, UTC),
            lost_why=loss.why[:1_000],
        )


def _write(journal: str, values: JsonObject) -> None:
    with writing():
        if not JournalPosition.objects.filter(pk=journal).update(**values):
            JournalPosition.objects.create(pk=journal, **values)


class OtherHosts:
    """Digesters of other hosts that write into the same database; `exist` is whether there are any."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exist = False
        self._digested: list[float] = []  # the moments of those that are alive, by our clock
        self._clock: tuple[datetime, float] | None = None  # the database's, and ours a little later
        self._looked_at = self._written_at = NEVER

    def refresh(self) -> None:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()

    def publish(self, digested_until: float | None) -> None:
        """Once at the beginning, so that others know of this host, and then as long as there are others."""
        now, digested_at = time.monotonic(), self.to_database_time(digested_until)
        if digested_at is None or now - self._written_at < WRITE_SECONDS:
            return
        if self.exist or self._written_at == NEVER:
            _write(self.name, {"digested_at": digested_at})
            self._written_at = now

    def may_have(self, *, before: float) -> bool:
        """Whether another host may have something from before that moment which is not in the record."""
        if not self.exist:
            return False
        if time.monotonic() - self._looked_at >= FRESH_SECONDS:
            self._look()
        return any(moment <= before + BLUR_SECONDS for moment in self._digested)

    def to_database_time(self, moment: float | None) -> datetime | None:
        """A moment by the clock that all hosts share: rather too early than too late."""
        if moment is None or self._clock is None:
            return None
        now, ours = self._clock
        return now - timedelta(seconds=ours - moment)

    def _look(self) -> None:
        before = time.monotonic()
        rows = list(JournalPosition.objects.annotate(now=Now()).values_list("journal", "digested_at", "now"))
        now = next((now for name, _, now in rows if name == self.name), None)
        if now is None:
            _write(self.name, {"digested_at": None})
            self._look()
            return
        self._clock = now, time.monotonic()
        ages = [(now - at).total_seconds() for name, at, _ in rows if name != self.name and at is not None]
        self.exist = any(age < ALONE_SECONDS for age in ages)
        self._digested = [before - age for age in ages if age < GONE_SECONDS]
        self._looked_at = before
