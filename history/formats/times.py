"""Parser for times in imported files: ISO 8601, seconds or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from history.entries import now

# Times outside these years are treated as mistakes.
_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_MILLISECONDS = 1e11


def moment(value: object) -> datetime | None:
    """The time, or None where there is none that makes sense."""
    try:
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            read = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
        else:
            return None
        read = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return read if _EARLIEST <= read <= _LATEST else None


class Clock:
    """Gives every entry a time: its own, or that of what came before it."""

    def __init__(self, start: object = None) -> None:
        self.first: datetime | None = moment(start)
        self.last: datetime = self.first or now()

    def at(self, value: object) -> datetime:
        read = moment(value)
        if read is not None:
            self.first = read if self.first is None else min(self.first, read)
            self.last = read
        return self.last
