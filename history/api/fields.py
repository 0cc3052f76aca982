"""Fields of the REST API's parameters and serializers: times, cursors, names and numbers."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _
from drf_spectacular.drainage import set_override
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from history.record.listing import ListCursor
from history.search.queries import parse_time, to_utc

NAME_CHARS = 200
SEARCHED_CHARS = 2_000
LARGEST = 2**53 - 1  # of the integers that JavaScript represents exactly
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOST_PLUS = re.compile(r"(T\S+) (\d\d:?\d\d)$")  # in a URL, + means a space


class PlainSerializer(serializers.Serializer[Any]):
    """A field whose name is reserved in Python or DRF is declared with an underscore at its end."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {name.removesuffix("_"): field for name, field in super().get_fields().items()}


# Of a response: always UTC, not the zone of the user's pages.
UtcTimeField = partial(serializers.DateTimeField, default_timezone=UTC)


class IsSetField(serializers.BooleanField):
    """Whether the source, a time, is set."""

    def __init__(self, **options: Any) -> None:
        super().__init__(read_only=True, **options)

    def get_attribute(self, instance: Any) -> bool:
        return super().get_attribute(instance) is not None


@extend_schema_field(OpenApiTypes.DATETIME)
class TimeParameter(serializers.CharField):
    """ISO 8601; without a zone it is UTC, and a day alone is its beginning."""

    default_error_messages = {
        "invalid_time": _("Not a valid time. Write 2026-11-01T14:00:00Z, or 2026-11-01 for the whole day.")
    }
    is_end = False

    def to_internal_value(self, data: Any) -> Any:
        text = _LOST_PLUS.sub(r"\1+\2", super().to_internal_value(data).upper())
        try:  # the year 0000 means the first that there is
            return to_utc(parse_time(re.sub(r"^0000-", "0001-", text), zone=UTC, is_end=self.is_end))
        except ValueError:
            self.fail("invalid_time")


class EndTimeParameter(TimeParameter):
    """A time before which something happened; a day alone counts as a whole."""

    is_end = True


class CursorField(serializers.CharField):
    """Position of a page, opaque to clients: `read` parses texts with this pattern."""

    default_error_messages = {"cursor": _("This cursor is not valid. Start again without it.")}

    def __init__(self, pattern: str, read: Callable[[str], Any], **options: Any) -> None:
        super().__init__(required=False, **options)
        self.pattern, self.read = pattern, read
        set_override(self, "field", {"type": "string", "pattern": pattern})

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        return self.read(text) if re.fullmatch(self.pattern, text, re.ASCII) else self.fail("cursor")


SESSION_CURSOR = r"^-?[0-9]{1,16}\.[0-9a-f]{32}$"  # microseconds since 1970, and the id of a session
CALL_CURSOR = r"^-?[0-9]{1,16}\.[0-9a-f]{32}\.[0-9]{1,15}$"  # the same, and the id of a call


def read_cursor(text: str) -> ListCursor:
    at, _dot, session = text.partition(".")
    return ListCursor(_EPOCH + timedelta(microseconds=int(at)), UUID(session))


def format_cursor(cursor: ListCursor) -> str:
    return f"{(cursor.at - _EPOCH) // timedelta(microseconds=1)}.{cursor.session.hex}"


# Only existing days (except the 29th of February in other years): the schema must not allow what is refused.
_MONTH_AND_DAY = r"((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31|02-29)"
_TIME = rf"[1-9][0-9]{{3}}-{_MONTH_AND_DAY}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_MARK = rf"(0|{_TIME})~[0-9]{{1,15}}"
_UUID = "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"
EXPORT_CURSOR = rf"^(start|{_MARK}(~{_MARK}~({_UUID})?)?)$"


_OptionalText = partial(serializers.CharField, required=False, trim_whitespace=False)
NameParameter = partial(_OptionalText, min_length=1, max_length=NAME_CHARS)
SearchField = partial(_OptionalText, allow_blank=True, max_length=SEARCHED_CHARS)  # any text is a valid search query
NumberField = partial(serializers.IntegerField, required=False, min_value=1, max_value=LARGEST)  # as of an entry


# Bodies: an unknown field is refused, and types are strict (1 is not true).
class BodySerializer(PlainSerializer):
    unknown_field = _("Unknown field.")

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, dict) and (unknown := sorted(map(str, set(data) - set(self.fields)))):
            raise serializers.ValidationError({name: [self.unknown_field] for name in unknown})
        return dict(super().to_internal_value(data))


class StrictBooleanField(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        return data if isinstance(data, bool) else self.fail("invalid", input=data)


class TitleField(serializers.RegexField):
    def to_internal_value(self, data: Any) -> str:
        return super().to_internal_value(data if isinstance(data, str) else self.fail("invalid"))
