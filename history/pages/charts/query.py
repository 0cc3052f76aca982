"""What an address of /charts/ asks for: a stretch of time, a grouping, and whose sessions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from typing import Any, Literal
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils import timezone

Step = Literal["day", "week", "month"]

DEFAULT = "30d"
# Name → days, and what one point of a chart stands for: never more than some ninety of them.
RANGES: dict[str, tuple[int | None, Step]] = {
    "7d": (7, "day"),
    "30d": (30, "day"),
    "90d": (90, "day"),
    "1y": (365, "week"),
    "all": (None, "month"),
}
MOST_MONTHS = 96
GROUPINGS = ("", "model", "key", "agent", "source", "owner")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartQuery:
    range: str = DEFAULT
    by: str = ""
    mine: bool = False

    @classmethod
    def of(cls, given: QueryDict, *, sees_others: bool) -> ChartQuery:
        """What makes no sense asks for nothing."""
        by, name = given.get("by", ""), given.get("range", "")
        return cls(
            range=name if name in RANGES else DEFAULT,
            by=by if by in GROUPINGS and (sees_others or by != "owner") else "",
            mine=sees_others and given.get("whose") == "me",
        )

    @property
    def step(self) -> Step:
        return RANGES[self.range][1]

    @property
    def last(self) -> date:
        return timezone.now().astimezone(UTC).date()

    @property
    def first(self) -> date:
        days = RANGES[self.range][0]
        return self.last - timedelta(days=(days or 31 * MOST_MONTHS) - 1)

    def link(self, **others: Any) -> str:
        asked = replace(self, **others)
        pairs = {
            "range": asked.range if asked.range != DEFAULT else "",
            "by": asked.by,
            "whose": "me" if asked.mine else "",
        }
        query = urlencode({name: value for name, value in pairs.items() if value})
        return f"?{query}" if query else "?"
