"""How hits are spread: counts per source, key, owner, agent, model, tool, status and role.

Up to 2,000 hits are simply counted. Of more, the newest 2,000 tell which values there are, and for each of these the
engine is asked the same question once more with the value as a further word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from history.models import Session, ToolCall
from history.search import rows
from history.search.finding import MANY, Asked, Count, Filters, Found, asked_by, candidates, count, visible
from history.selectors import Viewer

VALUES = 12
"""How many values of a facet are counted, the most frequent first."""
TOOL_SESSIONS = 200

Value = str | int
Facets = dict[str, dict[Value, Count]]

NAMES = ("source", "key", "owner", "agent", "model", "tool", "status", "role")
_COLUMNS = ("id", "session_id", "seq", "on_path", "kind", "role", "status", "agent", "model")


def facets(viewer: Viewer, query: str, *, filters: Filters = Filters()) -> Facets:  # noqa: B008 - frozen
    """Facet → value → how many hits have it. Owners and keys are named by their ids."""
    asked = asked_by(viewer, query, filters)
    if asked is None:
        return {name: {} for name in NAMES}
    newest, is_all = _newest(asked)
    seen = {name: counts for name, counts in _seen(newest).items() if name != "tool"}
    counted = {name: _counted(asked, name, counts, is_exact=is_all) for name, counts in seen.items()}
    counted["tool"] = _tools(asked, newest, is_all=is_all)
    return {name: counted[name] for name in NAMES}


def _newest(asked: Asked) -> tuple[list[Found], bool]:
    """The newest hits, up to 2,000, and whether these are all."""
    newest: list[Found] = []
    read_on = None
    for step in candidates(asked, size=MANY + 1):
        newest += visible(asked, step.message_ids, columns=_COLUMNS)
        read_on = step.read_on
        if len(newest) > MANY:
            return newest[:MANY], False
    return newest, read_on is None


def _seen(newest: Iterable[Found]) -> dict[str, Counter[Value]]:
    seen: dict[str, Counter[Value]] = {name: Counter() for name in NAMES}
    sessions = _session_values({row.session_id for row in newest})
    for row in newest:
        values = {"role": row.role, "status": row.status, "agent": row.agent, "model": row.model}
        for name, value in {**values, **sessions.get(row.session_id, {})}.items():
            if value not in ("", None):
                seen[name][value] += 1
    return seen


def _session_values(ids: set[UUID]) -> dict[UUID, Mapping[str, Any]]:
    sessions = Session.objects.filter(pk__in=ids).values_list("pk", "source", "api_key_id", "owner_id")
    return {pk: {"source": source, "key": key, "owner": owner} for pk, source, key, owner in sessions}


def _counted(asked: Asked, name: str, seen: Counter[Value], *, is_exact: bool) -> dict[Value, Count]:
    if is_exact:
        return {value: Count(number) for value, number in seen.most_common()}
    counts = {value: _more(asked, name, value, number) for value, number in seen.most_common(VALUES)}
    return dict(sorted(counts.items(), key=lambda item: item[1].number, reverse=True))


def _more(asked: Asked, name: str, value: Value, number: int) -> Count:
    return Count(MANY, is_exact=False) if number >= MANY else count(asked.narrowed(_word(name, value)))


def _word(name: str, value: Value) -> str:
    if isinstance(value, int):
        return rows.number_word("o" if name == "owner" else "k", value)
    return rows.name_word(rows.LETTERS[name], value)


def _tools(asked: Asked, newest: list[Found], *, is_all: bool) -> dict[Value, Count]:
    """Which tools: those that the sessions of the newest hits called. How often: from the engine, as above."""
    sessions = list(dict.fromkeys(row.session_id for row in newest))[:TOOL_SESSIONS]
    names = ToolCall.objects.filter(session_id__in=sessions).values_list("name", flat=True).distinct()
    counts = {name: count(asked.narrowed(_word("tool", name))) for name in names.order_by("name")[: VALUES * 2]}
    used = {name: number for name, number in counts.items() if number.number}
    return dict(sorted(used.items(), key=lambda item: item[1].number, reverse=True)[: None if is_all else VALUES])
