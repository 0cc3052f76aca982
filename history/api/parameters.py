"""Query parameters and bodies of REST requests. Unknown and repeated parameters are refused."""

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from history.access.reasons import LONGEST
from history.api import fields
from history.entries import JsonObject
from history.formats.writers import EXPORTERS
from history.models import Message, Session, ToolCall
from history.record.listing import CallPlace
from history.search import SessionQuery

PAGE, MOST = 50, 200
MESSAGES = 20
CURSOR_HELP = "Position of the page, as in `next` of the page before."


class QueryParameters(fields.PlainSerializer):
    @classmethod
    def parse(cls, request: Request) -> dict[str, Any]:
        """Every parameter by name; None if it was not sent."""
        known, values = cls().fields, request.query_params
        several = {name for name, field in known.items() if isinstance(field, serializers.ListField)}
        wrong = {name: [_("Unknown parameter.")] for name in values if name not in known}
        once = [name for name in values if name in known and name not in several]
        wrong |= {name: [_("Give this parameter only once.")] for name in once if len(values.getlist(name)) > 1}
        if wrong:
            raise ValidationError(wrong)
        parsed = cls(data={name: values.getlist(name) if name in several else values[name] for name in values})
        parsed.is_valid(raise_exception=True)
        return {**dict.fromkeys(known), **parsed.validated_data}


# Blanks alone are not a reason.
@extend_schema_field(
    {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}
)
class Reason(serializers.CharField):
    """The reason for reading a session of another user."""


class ReasonParameters(QueryParameters):
    reason = Reason(
        required=False,
        max_length=LONGEST,
        help_text="Why you want to read what is not yours; its owner can see it. Or the header `X-Parley-Reason`.",
    )


class FilterParameters(QueryParameters):
    """Filters of sessions, for a list and an export."""

    owner = fields.NameParameter(help_text="User name of the owner.")
    key = fields.NameParameter(help_text="Prefix of the API key that it was recorded under.")
    source_ = serializers.ChoiceField(Session.Source.choices, required=False, help_text="Where it came from.")
    client = fields.NameParameter(help_text="Which program, as far as it was recognised.")
    agent = fields.NameParameter()
    workspace = fields.NameParameter(max_length=255)
    model = fields.NameParameter()
    has_error = serializers.BooleanField(required=False, help_text="Whether an answer or a tool failed in it.")
    pinned = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False)
    from_ = fields.TimeParameter(
        required=False, help_text="Active at this time or later; a day alone is its beginning."
    )
    to_ = fields.EndTimeParameter(required=False, help_text="Active before this time; a day alone counts as a whole.")


def filters_in(parameters: JsonObject) -> SessionQuery:
    return SessionQuery.parse({**parameters, "since": parameters["from"], "until": parameters["to"]})


class SessionListParameters(FilterParameters):
    q = fields.SearchField(help_text="Sessions in which this was said; as in search.")
    cursor = fields.CursorField(fields.SESSION_CURSOR, fields.read_cursor, help_text=CURSOR_HELP)
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=PAGE)


class ExportParameters(FilterParameters, ReasonParameters):
    format = serializers.ChoiceField(list(EXPORTERS), default="jsonl", help_text="docs/export.md says more of each.")
    session = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MOST, help_text="These alone; may be repeated."
    )
    mine = serializers.BooleanField(default=False, help_text="Only sessions of the caller.")
    since = fields.CursorField(
        fields.EXPORT_CURSOR,
        str,
        help_text="`start`, or the cursor that an earlier export ended with: what has changed since. "
        "Only `jsonl` tells what was deleted and ends with the next cursor.",
    )
    gzip = serializers.BooleanField(default=False)
    report = serializers.BooleanField(default=False, help_text="Only what the format cannot carry, as JSON.")


class ImportParameters(QueryParameters):
    name = fields.NameParameter(default="file", help_text="What the file is called; for the report.")


class MessageListParameters(ReasonParameters):
    before = fields.NumberField(help_text="Entries older than this one.")
    after = fields.NumberField(
        min_value=0, help_text="Entries newer than this one; 0 is the start. With `before`: those in between."
    )
    leaf = fields.NumberField(help_text="Another branch: the path that ends with this entry.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=MESSAGES)
    all = serializers.BooleanField(
        default=False, help_text="Every entry of the path, also results, offered tools and notebooks by themselves."
    )


class ToolCallListParameters(ReasonParameters):
    tool = fields.NameParameter(help_text="NameParameter of the tool.")
    status = serializers.ChoiceField(ToolCall.Status.choices, required=False)
    session = serializers.UUIDField(required=False)
    from_ = fields.TimeParameter(required=False, help_text="Asked at this time or later.")
    to_ = fields.EndTimeParameter(required=False, help_text="Asked before this time; a day alone counts as a whole.")
    cursor = fields.CursorField(fields.CALL_CURSOR, CallPlace.read, help_text=CURSOR_HELP)
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=PAGE)


def _several(help_text: str = "", *, choices: Any = None) -> serializers.ListField:
    child: Any = serializers.ChoiceField(choices) if choices else fields.NameParameter(required=True)
    return serializers.ListField(child=child, required=False, max_length=20, help_text=help_text)


class SearchParameters(QueryParameters):
    q = fields.SearchField(
        help_text='words, "a phrase", begin*, -without, this OR that; empty: all that match the filters.'
    )
    owner = _several("User names.")
    key = _several("Prefixes of API keys.")
    source_ = _several(choices=Session.Source.choices)
    client = _several()
    agent = _several()
    model = _several()
    tool = _several("Tools that are called or answer in the message.")
    role = _several(choices=Message.Role.choices)
    status = _several(choices=Message.Status.choices)
    session = serializers.ListField(child=serializers.UUIDField(), required=False, max_length=20)
    has_error = serializers.BooleanField(required=False)
    from_ = fields.TimeParameter(required=False, help_text="Said at this time or later.")
    to_ = fields.EndTimeParameter(required=False, help_text="Said before this time; a day alone counts as a whole.")
    facets = serializers.BooleanField(default=False, help_text="Also how the hits are spread.")
    count = serializers.BooleanField(default=False, help_text="Also how many there are.")
    cursor = fields.NumberField(help_text=CURSOR_HELP)
    limit = serializers.IntegerField(min_value=1, max_value=100, default=20)


class SessionChange(fields.BodySerializer):
    """Fields that are left out stay as they are."""

    unknown_field = gettext_lazy("Unknown or read-only field.")

    title = fields.TitleField(r"\S", required=False, max_length=200)
    pinned = fields.StrictBooleanField(required=False)
    archived = fields.StrictBooleanField(required=False)
