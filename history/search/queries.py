"""Search queries: the parser of typed words (docs/search.md), and the filters of sessions and messages.

Every text is a valid query. A query needs each of its groups, any term of each, and none of the excluded terms. Words
leave this module as letters and digits, so operators of a database are plain text.

Filters are one query for pages, REST, exports, tools and the command line: each adapts its parameter names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta, tzinfo
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Model, QuerySet

from history.models import ApiKey, Session
from history.record.search_tokens import words_of

QUERY_CHARS = 2_000
QUERY_WORDS = 200
PREFIX_CHARS = 2  # a prefix of one letter matches half of all words and takes minutes

_CHUNK = re.compile(r'(?P<minus>-*)(?:"(?P<quoted>[^"]*)(?:"|$)(?P<star>\*?)|(?P<plain>[^\s"]+))')


@dataclass(frozen=True, slots=True)
class Term:
    """Words side by side; the last one may be a prefix."""

    words: tuple[str, ...]
    is_prefix: bool = False


Group = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Query:
    needed: tuple[Group, ...] = ()
    excluded: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that may occur in a matching text."""
        return tuple(dict.fromkeys(term for group in self.needed for term in group))

    @property
    def has_phrases(self) -> bool:
        return any(len(term.words) > 1 for term in (*self.terms, *self.excluded))


def parse_query(typed: str) -> Query:
    """Parse a query. A long one is cut."""
    groups: list[Group] = []
    excluded: list[Term] = []
    words, joins = 0, False
    for chunk in _CHUNK.finditer(typed[:QUERY_CHARS]):
        if chunk[0] == "OR":
            joins = bool(groups)
            continue
        term = _term(chunk)
        if term is None:
            continue
        words += len(term.words)
        if words > QUERY_WORDS:
            break
        if chunk["minus"]:
            excluded.append(term)
        elif joins:
            groups[-1] = (*groups[-1], term)
        else:
            groups.append((term,))
        joins = False
    return Query(tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(excluded)))


def _term(chunk: re.Match[str]) -> Term | None:
    typed = chunk["quoted"] if chunk["plain"] is None else chunk["plain"]
    words = tuple(words_of(typed))
    if not words:
        return None
    has_star = bool(chunk["star"]) or typed.rstrip().endswith("*")
    return Term(words, is_prefix=has_star and len(words[-1]) >= PREFIX_CHARS)


UNKNOWN = (0,)  # no user and no key has this id: an unknown name selects nothing
_SINGLE = ("has_error", "pinned", "archived", "since", "until")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Several values of one filter mean any of them; () and None mean no filter. Owners and keys are ids.

    `tool`, `role`, `status` and `session` narrow messages only; `workspace`, `pinned` and `archived` sessions only.
    """

    owner: tuple[int, ...] = ()
    key: tuple[int, ...] = ()
    source: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    role: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    session: tuple[UUID, ...] = ()
    has_error: bool | None = None
    pinned: bool | None = None
    archived: bool | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            if (time := getattr(self, name)) is not None:
                object.__setattr__(self, name, to_utc(time))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> "SessionQuery":
        """A query from one value or several for each filter: of owners user names, of keys prefixes. Ignores others."""
        parsed = {field.name: values.get(field.name) for field in fields(cls)}
        several = {name: _tuple_of(value) for name, value in parsed.items() if name not in _SINGLE}
        several["owner"] = _ids_of(get_user_model(), "username", several["owner"])
        several["key"] = _ids_of(ApiKey, "prefix", several["key"])
        return cls(**several, **{name: parsed[name] for name in _SINGLE})  # type: ignore[arg-type]

    def apply(self, sessions: QuerySet[Session]) -> QuerySet[Session]:
        several = {
            "owner_id": self.owner, "api_key_id": self.key, "source": self.source, "client": self.client,
            "agent": self.agent, "workspace": self.workspace, "model": self.model,
        }  # fmt: skip
        conditions: dict[str, object] = {
            "pinned_at__isnull": None if self.pinned is None else not self.pinned,
            "archived_at__isnull": None if self.archived is None else not self.archived,
            "error_count__gt": 0 if self.has_error else None,
            "error_count": 0 if self.has_error is False else None,
            "last_activity_at__gte": self.since,
            "last_activity_at__lt": self.until,
        }
        # One value is compared by itself: then the order of an index holds.
        conditions |= {name: values[0] for name, values in several.items() if len(values) == 1}
        conditions |= {f"{name}__in": values for name, values in several.items() if len(values) > 1}
        return sessions.filter(**{name: value for name, value in conditions.items() if value is not None})


def _tuple_of(value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _ids_of(model: type[Model], column: str, names: Iterable[object]) -> tuple[int, ...]:
    if not names:
        return ()
    rows = model._default_manager.filter(**{f"{column}__in": names})
    return tuple(rows.order_by("pk").values_list("pk", flat=True)) or UNKNOWN


def parse_time(text: str, *, zone: tzinfo, is_end: bool = False) -> datetime:
    """An ISO 8601 time (else ValueError), in `zone` if it names none. As an end, a day alone counts as a whole."""
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo else at.replace(tzinfo=zone)
    is_last_day = at.date() == date.max
    return at + timedelta(days=1) if is_end and _DAY.fullmatch(text) and not is_last_day else at


def to_utc(time: datetime) -> datetime:
    """The first and the last day of the calendar may not exist in another zone."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return (datetime.min if time.year == 1 else datetime.max).replace(tzinfo=UTC)
