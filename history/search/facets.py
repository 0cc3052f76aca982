"""Facets of a search: counts per source, key, owner, agent, model, tool, status and role.

Up to 2,000 hits are counted. Of more, the newest 2,000 give the values, and the engine counts each of these with the
value as a further word.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from history.access.permissions import Viewer
from history.models import ApiKey, ToolCall
from history.record import search_rows
from history.search.finding import MANY, Count, SearchRequest, build_request, count, take
from history.search.queries import SessionQuery

VALUES = 12  # of a facet are counted, the most frequent first
TOOL_SESSIONS = 200

Value = str | int
Facets = dict[str, dict[Value, Count]]

NAMES = ("source", "key", "owner", "agent", "model", "tool", "status", "role")
COLUMNS = {
    "source": "s.source", "key": "s.api_key_id", "owner": "s.owner_id",
    "agent": "m.agent", "model": "m.model", "status": "m.status", "role": "m.role",
}  # fmt: skip
FACET_COLUMNS = f"m.session_id, {', '.join(COLUMNS.values())}"


def facets(viewer: Viewer, query: str, *, filters: SessionQuery = SessionQuery()) -> Facets:
    """Facet → value → number of hits. Owners and keys are ids."""
    request = build_request(viewer, query, filters)
    if request is None:
        return {name: {} for name in NAMES}
    newest, read_on = take(request, FACET_COLUMNS, MANY)
    seen = _seen(newest)
    counted = {name: _counted(request, name, counts, is_exact=read_on is None) for name, counts in seen.items()}
    counted["tool"] = _tools(request, newest)
    return {name: counted[name] for name in NAMES}


def named_facets(counts: Facets) -> Facets:
    """The same with user names and key prefixes instead of ids."""
    names: dict[str, dict[Value, str]] = {
        "owner": dict(get_user_model().objects.filter(pk__in=counts["owner"]).values_list("pk", "username")),
        "key": dict(ApiKey.objects.filter(pk__in=counts["key"]).values_list("pk", "prefix")),
    }
    return {
        facet: {names.get(facet, {}).get(value, value): count for value, count in values.items()}
        for facet, values in counts.items()
    }


def newest_hits(
    viewer: Viewer, query: str, *, among: int, filters: SessionQuery
) -> tuple[dict[str, Counter[Value]], list[UUID | str], bool]:
    """Counts among the newest hits only, to bound the cost; the session of each hit; whether there are no others.

    SQLite returns ids as text (`as_uuid`).
    """
    request = build_request(viewer, query, filters)
    newest, read_on = take(request, FACET_COLUMNS, among) if request else ([], None)
    return _seen(newest), [row[1] for row in newest], read_on is None


def _seen(newest: Iterable[Any]) -> dict[str, Counter[Value]]:
    values = list(zip(*(row[2:] for row in newest), strict=True)) or [()] * len(COLUMNS)
    return {
        name: Counter(value for value in column if value not in ("", None))
        for name, column in zip(COLUMNS, values, strict=True)
    }


def _counted(request: SearchRequest, name: str, seen: Counter[Value], *, is_exact: bool) -> dict[Value, Count]:
    if is_exact:
        return {value: Count(number) for value, number in seen.most_common()}
    many = Count(MANY, is_exact=False)
    counts = {
        value: many if number >= MANY else count(request.narrowed(_word(name, value)))
        for value, number in seen.most_common(VALUES)
    }
    return dict(sorted(counts.items(), key=lambda item: item[1].number, reverse=True))


def _word(name: str, value: Value) -> str:
    if isinstance(value, int):
        return search_rows.number_word("o" if name == "owner" else "k", value)
    return search_rows.name_word(search_rows.LETTERS[name], value)


def _tools(request: SearchRequest, newest: Sequence[Any]) -> dict[Value, Count]:
    """Tools that the sessions of the newest hits called, counted by the engine."""
    sessions = list(dict.fromkeys(row[1] for row in newest))[:TOOL_SESSIONS]
    names = ToolCall.objects.filter(session_id__in=sessions).values_list("name", flat=True).distinct()
    counts = {name: count(request.narrowed(_word("tool", name))) for name in names.order_by("name")[: VALUES * 2]}
    used = {name: number for name, number in counts.items() if number.number}
    return dict(sorted(used.items(), key=lambda item: item[1].number, reverse=True)[:VALUES])
