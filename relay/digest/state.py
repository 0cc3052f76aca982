"""How it stands with the journals: what waits to be digested, since when, and what was lost. For staff and /metrics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings

from relay.gateway.journal.frames import START
from relay.gateway.journal.segments import names
from relay.gateway.process_stats import all_here
from relay.models import JournalPosition

LATE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`waiting` bytes of this machine's journal are not in the record; the oldest of them for `behind` seconds."""

    waiting: int = 0
    behind: float = 0.0
    told_calls: int = 0
    told_bytes: int = 0
    untold_calls: int = 0
    untold_bytes: int = 0
    lost_why: str = ""
    lost_at: datetime | None = None

    @property
    def lost_calls(self) -> int:
        """What the journals have said, and what processes of this machine know that could not be written there yet."""
        return self.told_calls + self.untold_calls

    @property
    def lost_bytes(self) -> int:
        return self.told_bytes + self.untold_bytes

    @property
    def is_late(self) -> bool:
        return self.behind >= LATE_SECONDS

    @property
    def is_well(self) -> bool:
        return not self.lost_calls and not self.lost_bytes and not self.is_late


def state_here(now: datetime | None = None) -> State:
    """Losses of all journals of the installation; what waits, of this machine's."""
    folder, now = Path(settings.PARLEY_DATA_DIR) / "journal", now or datetime.now(UTC)
    losing = [one for one in all_here() if one.untold_calls or one.untold_bytes]
    rows = list(JournalPosition.objects.all())
    here = next((row for row in rows if row.pk == _name(folder)), None)
    waiting = _waiting(folder, here.position.get("to", {}) if here else {})
    last = max((row for row in rows if row.lost_at), key=lambda row: row.lost_at or datetime.min, default=None)
    return State(
        waiting=waiting,
        behind=_behind(folder, here, now) if waiting else 0.0,
        told_calls=sum(row.lost_calls for row in rows),
        told_bytes=sum(row.lost_bytes for row in rows),
        untold_calls=sum(one.untold_calls for one in losing),
        untold_bytes=sum(one.untold_bytes for one in losing),
        lost_why=losing[0].untold_why if losing else last.lost_why if last else "",
        lost_at=now if losing else last.lost_at if last else None,
    )


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except OSError:
        return ""


def _waiting(folder: Path, digested_to: dict[str, int]) -> int:
    total = 0
    for name in names(folder):
        try:
            size = (folder / name).stat().st_size
        except FileNotFoundError:
            continue
        total += max(0, size - max(digested_to.get(name, 0), START))
    return total


def _behind(folder: Path, here: JournalPosition | None, now: datetime) -> float:
    """Since the last time that everything was digested, or since the oldest segment was begun."""
    begun = [int(name.partition("-")[0]) / 1e9 for name in names(folder) if name.partition("-")[0].isdecimal()]
    since = [here.digested_at.timestamp()] if here and here.digested_at else []
    oldest = max([*since, min(begun, default=now.timestamp())])
    return max(0.0, now.timestamp() - oldest)
