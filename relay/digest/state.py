"""State of the journals: the backlog, its age, and what was lost. For the admin and /metrics."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from relay.digest import process
from relay.gateway.journal.frames import START
from relay.gateway.journal.segments import names, number_of
from relay.gateway.process_stats import all_stats
from relay.models import JournalPosition

LATE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    waiting: int  # bytes of this machine's journal that are not in the record
    behind: float  # how many seconds the oldest of them waits
    # Losses in the database.
    stored_calls: int
    stored_bytes: int
    # These, and those that only processes of this machine know.
    lost_calls: int
    lost_bytes: int
    lost_why: str
    lost_at: datetime | None

    @property
    def is_late(self) -> bool:
        return self.behind >= LATE_SECONDS

    @property
    def is_well(self) -> bool:
        return not self.lost_calls and not self.lost_bytes and not self.is_late


def read_state(now: datetime | None = None) -> JournalState:
    """Losses of all journals of the installation; the backlog of this machine's."""
    folder, now = process.folder(), now or datetime.now(UTC)
    losing = [one for one in all_stats() if one.unreported_calls or one.unreported_bytes]
    rows = list(JournalPosition.objects.all())
    own_name = ""
    with suppress(OSError):
        own_name = (folder / process.NAME).read_text().strip()
    own = next((row for row in rows if row.pk == own_name), None)
    waiting = _backlog(folder, own.position.get("to", {}) if own else {})
    stored_calls, stored_bytes = sum(row.lost_calls for row in rows), sum(row.lost_bytes for row in rows)
    last = max((row for row in rows if row.lost_at), key=lambda row: row.lost_at or datetime.min, default=None)
    return JournalState(
        waiting=waiting,
        behind=_age_of_backlog(folder, own, now) if waiting else 0.0,
        stored_calls=stored_calls,
        stored_bytes=stored_bytes,
        lost_calls=stored_calls + sum(one.unreported_calls for one in losing),
        lost_bytes=stored_bytes + sum(one.unreported_bytes for one in losing),
        lost_why=losing[0].unreported_why if losing else last.lost_why if last else "",
        lost_at=now if losing else last.lost_at if last else None,
    )


def _backlog(folder: Path, digested_to: dict[str, int]) -> int:
    total = 0
    for name in names(folder):
        with suppress(FileNotFoundError):
            total += max(0, (folder / name).stat().st_size - max(digested_to.get(name, 0), START))
    return total


def _age_of_backlog(folder: Path, own: JournalPosition | None, now: datetime) -> float:
    """Since the last time that everything was digested, or since the oldest segment was begun."""
    created = [number / 1e9 for number in map(number_of, names(folder)) if number]
    digested = [own.digested_at.timestamp()] if own and own.digested_at else []
    oldest = max([*digested, min(created, default=now.timestamp())])
    return max(0.0, now.timestamp() - oldest)
