"""How far the digester of one journal came: up to where each segment is read, and which calls are still under way.

Whatever lies before that and belongs to no call under way is in the record, or is not to be there any more: it is never
looked at again, however often the digester is killed. So nothing has to be remembered of calls that are done, and what
is kept is as long as what is under way. Of each of those it says whether its request is in the record: one that is, and
whose row is gone, was erased in the meantime.

Besides, it says up to which moment all of the journal is in the record, by the clock of the database: those of several
hosts may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import F
from django.db.models.functions import Now

from history.db.transactions import writing
from relay.gateway.journal.records import Lost
from relay.models import JournalPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Each segment is read up to `to`, and from `start` on there is something of a call that is under way; which ones
    those are says `filed`, and whether their requests are in the record."""

    start: Mapping[str, int] = field(default_factory=dict)
    to: Mapping[str, int] = field(default_factory=dict)
    filed: Mapping[UUID, bool] = field(default_factory=dict)
    # Where holes in damaged segments end: their loss is counted.
    holes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # The release before this one kept the calls that were done instead: all others may be under way, and filed.
    done: frozenset[UUID] | None = None

    def has_under_way(self, exchange: UUID) -> bool:
        return exchange in self.filed if self.done is None else exchange not in self.done


def kept_of(journal: str) -> Position:
    kept = JournalPosition.objects.filter(pk=journal).values_list("position", flat=True).first() or {}
    return Position(
        start=kept.get("from", {}),
        to=kept.get("to", {}),
        holes=kept.get("holes", {}),
        filed={UUID(name): bool(filed) for name, filed in kept.get("under_way", {}).items()},
        done=None if "under_way" in kept else frozenset(map(UUID, kept.get("done", ()))),
    )


def keep(journal: str, position: Position, *, digested_at: datetime | None, lost: Iterable[Lost]) -> None:
    """To be called in the transaction that writes what was made of all that lies before it."""
    kept: dict[str, Any] = {
        "from": position.start,
        "to": position.to,
        "under_way": {exchange.hex: int(filed) for exchange, filed in position.filed.items()},
    }
    if position.holes:
        kept["holes"] = position.holes
    values: dict[str, Any] = {"position": kept}
    _write(journal, values if digested_at is None else values | {"digested_at": digested_at})
    for loss in lost:
        JournalPosition.objects.filter(pk=journal).update(
            lost_calls=F("lost_calls") + loss.calls,
            lost_bytes=F("lost_bytes") + loss.lost_bytes,
            lost_at=datetime.fromtimestamp(loss.at, UTC),
            lost_why=loss.why[:1_000],
        )


def tell(journal: str, *, digested_at: datetime) -> None:
    """That all is in the record up to that moment."""
    _write(journal, {"digested_at": digested_at})


def look_around(journal: str) -> tuple[datetime, list[datetime]]:
    """What the clock of the database says, and up to when other journals are in the record."""
    rows = list(JournalPosition.objects.annotate(now=Now()).values_list("journal", "digested_at", "now"))
    own = [now for name, _, now in rows if name == journal]
    if not own:
        _write(journal, {"digested_at": None})
        return look_around(journal)
    return own[0], [digested_at for name, digested_at, _ in rows if name != journal and digested_at is not None]


def _write(journal: str, values: Mapping[str, Any]) -> None:
    with writing():
        if not JournalPosition.objects.filter(pk=journal).update(**values):
            JournalPosition.objects.create(pk=journal, **values)
