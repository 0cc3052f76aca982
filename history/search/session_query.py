"""Filters of sessions and messages: one query for pages, REST, exports, tools and the command line.

Callers adapt their parameter names and pass the values to `SessionQuery.parse`. `SessionQuery.apply` narrows sessions;
the search engine narrows messages by the same query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta, tzinfo
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Model, QuerySet

from history.models import ApiKey, Session

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
    def parse(cls, values: Mapping[str, object]) -> SessionQuery:
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
