"""How hits are spread: counts per source, key, owner, agent, model, tool, status and role.

Up to 2,000 hits are simply counted. Of more, the newest 2,000 tell which values there are, and for each of these the
engine is asked the same question once more with the value as a further word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from history.access.permissions import Viewer
from history.models import ToolCall
from history.record import search_rows
from history.search.finding import MANY, Count, Filters, SearchRequest, asked_by, count, rounds

VALUES = 12
"""How many values of a facet are counted, the most frequent first."""
TOOL_SESSIONS = 200

Value = str | int
Facets = dict[str, dict[Value, Count]]

NAMES = ("source", "key", "owner", "agent", "model", "tool", "status", "role")
COLUMNS = {
    "source": "s.source", "key": "s.api_key_id", "owner": "s.owner_id",
    "agent": "m.agent", "model": "m.model", "status": "m.status", "role": "m.role",
}  # fmt: skip


def facets(viewer: Viewer, query: str, *, filters: Filters = Filters()) -> Facets:  # noqa: B008 - frozen
    """Facet → value → how many hits have it. Owners and keys are named by their ids."""
    asked = asked_by(viewer, query, filters)
    if asked is None:
        return {name: {} for name in NAMES}
    newest, is_all = _newest(asked)
    seen = _seen(newest)
    counted = {name: _counted(asked, name, counts, is_exact=is_all) for name, counts in seen.items()}
    counted["tool"] = _tools(asked, newest)
    return {name: counted[name] for name in NAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """How the newest hits are spread. `is_all`: there are no others."""

    counts: dict[str, Counter[Value]]
    number: int = 0
    sessions: tuple[Any, ...] = ()
    is_all: bool = True


def newest_hits(viewer: Viewer, query: str, *, among: int, filters: Filters = Filters()) -> Newest:  # noqa: B008 - frozen
    """Counted among so many of the newest hits and no others: costs the same however many there are."""
    asked = asked_by(viewer, query, filters)
    if asked is None:
        return Newest(counts={name: Counter() for name in COLUMNS})
    newest, is_all = _newest(asked, among)
    sessions = tuple(dict.fromkeys(row[1] for row in newest))
    return Newest(counts=_seen(newest), number=len(newest), sessions=sessions, is_all=is_all)


def _newest(asked: SearchRequest, limit: int = MANY) -> tuple[list[Any], bool]:
    """The newest hits, up to a limit, and whether these are all."""
    newest: list[Any] = []
    read_on = None
    for step in rounds(asked, f"m.session_id, {', '.join(COLUMNS.values())}", size=limit + 1):
        newest += step.found
        read_on = step.read_on
        if len(newest) > limit:
            return newest[:limit], False
    return newest, read_on is None


def _seen(newest: Iterable[Any]) -> dict[str, Counter[Value]]:
    values = list(zip(*(row[2:] for row in newest), strict=True)) or [()] * len(COLUMNS)
    return {
        name: Counter(value for value in column if value not in ("", None))
        for name, column in zip(COLUMNS, values, strict=True)
    }


def _counted(asked: SearchRequest, name: str, seen: Counter[Value], *, is_exact: bool) -> dict[Value, Count]:
    if is_exact:
        return {value: Count(number) for value, number in seen.most_common()}
    counts = {value: _more(asked, name, value, number) for value, number in seen.most_common(VALUES)}
    return dict(sorted(counts.items(), key=lambda item: item[1].number, reverse=True))


def _more(asked: SearchRequest, name: str, value: Value, number: int) -> Count:
    return Count(MANY, is_exact=False) if number >= MANY else count(asked.narrowed(_word(name, value)))


def _word(name: str, value: Value) -> str:
    if isinstance(value, int):
        return search_rows.number_word("o" if name == "owner" else "k", value)
    return search_rows.name_word(search_rows.LETTERS[name], value)


def _tools(asked: SearchRequest, newest: Sequence[Any]) -> dict[Value, Count]:
    """Which tools: those that the sessions of the newest hits called. How often: from the engine, as above."""
    sessions = list(dict.fromkeys(row[1] for row in newest))[:TOOL_SESSIONS]
    names = ToolCall.objects.filter(session_id__in=sessions).values_list("name", flat=True).distinct()
    counts = {name: count(asked.narrowed(_word("tool", name))) for name in names.order_by("name")[: VALUES * 2]}
    used = {name: number for name, number in counts.items() if number.number}
    return dict(sorted(used.items(), key=lambda item: item[1].number, reverse=True)[:VALUES])
