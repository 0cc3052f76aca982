"""Fields that serializers of questions and answers are made of."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from history.record.listing import ListCursor
from history.record.tool_calls import CallPlace

NAME_CHARS = 200
SEARCHED_CHARS = 2_000
LARGEST = 2**53 - 1  # what JavaScript can count to
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LOST_PLUS = re.compile(r"(T\S+) (\d\d:?\d\d)$")  # in an address, + means a space
_YEAR_ZERO = re.compile(r"0000-")


class Plain(serializers.Serializer[Any]):
    """A field whose name Python or DRF keeps for itself has an underscore at its end, here and nowhere else."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {name.removesuffix("_"): field for name, field in super().get_fields().items()}


class Time(serializers.DateTimeField):
    """Of an answer: always UTC, whatever zone somebody prefers on pages."""

    def __init__(self, **options: Any) -> None:
        super().__init__(default_timezone=UTC, **options)


@extend_schema_field(OpenApiTypes.DATETIME)
class Moment(serializers.CharField):
    """Of a question: ISO 8601; without a zone it is UTC, and a day alone is its beginning."""

    default_error_messages = {
        "invalid_time": _("This is no time: write 2026-11-01T14:00:00Z, or 2026-11-01 for the whole day.")
    }
    days_later = 0

    def to_internal_value(self, data: Any) -> Any:
        text = _LOST_PLUS.sub(r"\1+\2", super().to_internal_value(data).upper())
        try:
            at = datetime.fromisoformat(_YEAR_ZERO.sub("0001-", text, count=1) if text.startswith("0000-") else text)
        except ValueError:
            self.fail("invalid_time")
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return _within_calendar(at, days_later=self.days_later if _DAY.fullmatch(text) else 0)


class End(Moment):
    """A time before which something happened; a day alone counts as a whole."""

    days_later = 1


def _within_calendar(at: datetime, *, days_later: int) -> datetime:
    """The first and the last day of the calendar may have no place in another zone."""
    try:
        return at.astimezone(UTC) + timedelta(days=days_later)
    except OverflowError:
        return (datetime.min if at.year == 1 else datetime.max).replace(tzinfo=UTC)


class _Cursor(serializers.CharField):
    """Where a page goes on. Not made to be understood."""

    form = ""
    default_error_messages = {"cursor": _("This is not a valid cursor.")}

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        return self.read(text) if re.fullmatch(self.form, text, re.ASCII) else self.fail("cursor")

    def read(self, text: str) -> Any:
        raise NotImplementedError


_PLACE = r"^-?[0-9]{1,16}\.[0-9a-f]{32}$"
_CALL_PLACE = r"^-?[0-9]{1,16}\.[0-9a-f]{32}\.[0-9]{1,15}$"


@extend_schema_field({"type": "string", "pattern": _PLACE})
class CursorField(_Cursor):
    """In a list of sessions: a time in microseconds, and an id."""

    form = _PLACE

    def read(self, text: str) -> ListCursor:
        at, _dot, session = text.partition(".")
        return ListCursor(_EPOCH + timedelta(microseconds=int(at)), UUID(session))


def place_of(cursor: ListCursor | None) -> str | None:
    if cursor is None:
        return None
    return f"{(cursor.at - _EPOCH) // timedelta(microseconds=1)}.{cursor.session.hex}"


@extend_schema_field({"type": "string", "pattern": _CALL_PLACE})
class CallCursor(_Cursor):
    """In a list of tool calls: the same, and the id of a call."""

    form = _CALL_PLACE

    def read(self, text: str) -> CallPlace:
        return CallPlace.read(text)


# Days that exist, but for the 29th of February in other years: the schema must not allow what is refused.
_MONTH_AND_DAY = r"((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31|02-29)"
_TIME = rf"[1-9][0-9]{{3}}-{_MONTH_AND_DAY}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_MARK = rf"(0|{_TIME})~[0-9]{{1,15}}"
_UUID = "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"
_SINCE = rf"^(start|{_MARK}(~{_MARK}~({_UUID})?)?)$"


@extend_schema_field({"type": "string", "pattern": _SINCE})
class Since(_Cursor):
    """Where an export goes on: its own cursors, as texts."""

    form = _SINCE

    def read(self, text: str) -> str:
        return text


class Name(serializers.CharField):
    def __init__(self, **options: Any) -> None:
        optional = {} if "default" in options else {"required": False}
        limits = {"min_length": 1, "max_length": NAME_CHARS, "trim_whitespace": False}
        super().__init__(**optional | limits | options)


class SearchField(serializers.CharField):
    """To search for. No text is an error, not even none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, allow_blank=True, trim_whitespace=False, max_length=SEARCHED_CHARS, **options)


class Number(serializers.IntegerField):
    """The number of an entry, or whatever else counts from one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": LARGEST, "required": False} | options)


# In JSON a type is what it is: there, 1 is not true.


class YesOrNo(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        return data if isinstance(data, bool) else self.fail("invalid", input=data)


class Title(serializers.RegexField):
    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(data if isinstance(data, str) else self.fail("invalid"))
