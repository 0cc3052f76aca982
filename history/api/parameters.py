"""Query parameters and bodies of REST requests. Unknown and repeated parameters are refused."""

from typing import Any

from django.utils.translation import gettext as _, gettext_lazy
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
CURSOR_HELP = "Cursor from `next` or `previous` of another page."


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
        help_text="Reason for reading a session of another user; its owner sees it. Or send `X-Parley-Reason`.",
    )


class FilterParameters(QueryParameters):
    """Filters of sessions, for a list and an export."""

    owner = fields.NameParameter(help_text="Username of the owner.")
    key = fields.NameParameter(help_text="Prefix of the API key that recorded the session.")
    source_ = serializers.ChoiceField(Session.Source.choices, required=False, help_text="Where the session comes from.")
    client = fields.NameParameter(help_text="Client program, if it was recognised.")
    agent = fields.NameParameter()
    workspace = fields.NameParameter(max_length=255)
    model = fields.NameParameter()
    has_error = serializers.BooleanField(
        required=False, help_text="Sessions with or without a failed answer or tool call."
    )
    pinned = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False)
    from_ = fields.TimeParameter(required=False, help_text="Active at this time or later. A date means its start.")
    to_ = fields.EndTimeParameter(required=False, help_text="Active before this time. A date includes the whole day.")


def filters_in(parameters: JsonObject) -> SessionQuery:
    return SessionQuery.parse({**parameters, "since": parameters["from"], "until": parameters["to"]})


class SessionListParameters(FilterParameters):
    q = fields.SearchField(help_text="Sessions with matching messages. Same syntax as in search.")
    cursor = fields.CursorField(fields.SESSION_CURSOR, fields.read_cursor, help_text=CURSOR_HELP)
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=PAGE)


class ExportParameters(FilterParameters, ReasonParameters):
    format = serializers.ChoiceField(list(EXPORTERS), default="jsonl", help_text="Export format; see docs/export.md.")
    session = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        max_length=MOST,
        help_text="Only these sessions. Can be repeated.",
    )
    mine = serializers.BooleanField(default=False, help_text="Only sessions of the caller.")
    since = fields.CursorField(
        fields.EXPORT_CURSOR,
        str,
        help_text="Only changes since this cursor: `start`, or the cursor at the end of an earlier export. "
        "Only `jsonl` includes deletions and ends with the next cursor.",
    )
    gzip = serializers.BooleanField(default=False)
    report = serializers.BooleanField(
        default=False, help_text="Only the report of what the format cannot contain, as JSON."
    )


class ImportParameters(QueryParameters):
    name = fields.NameParameter(default="file", help_text="Name of the file in the report.")


class MessageListParameters(ReasonParameters):
    before = fields.NumberField(help_text="Only entries older than this one.")
    after = fields.NumberField(
        min_value=0,
        help_text="Only entries newer than this one; 0 means the start. With `before`: the entries in between.",
    )
    leaf = fields.NumberField(help_text="Read another branch: the path that ends with this entry.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=MESSAGES)
    all = serializers.BooleanField(
        default=False,
        help_text="Every entry of the path, including results, offered tools and notebooks as separate entries.",
    )


class ToolCallListParameters(ReasonParameters):
    tool = fields.NameParameter(help_text="Name of the tool.")
    status = serializers.ChoiceField(ToolCall.Status.choices, required=False)
    session = serializers.UUIDField(required=False)
    from_ = fields.TimeParameter(required=False, help_text="Called at this time or later. A date means its start.")
    to_ = fields.EndTimeParameter(required=False, help_text="Called before this time. A date includes the whole day.")
    cursor = fields.CursorField(fields.CALL_CURSOR, CallPlace.read, help_text=CURSOR_HELP)
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=PAGE)


def _several(help_text: str = "", *, choices: Any = None) -> serializers.ListField:
    child: Any = serializers.ChoiceField(choices) if choices else fields.NameParameter(required=True)
    return serializers.ListField(child=child, required=False, max_length=20, help_text=help_text)


class SearchParameters(QueryParameters):
    q = fields.SearchField(
        help_text='Words, "a phrase", begin*, -without, this OR that. Empty: all messages that match the filters.'
    )
    owner = _several("Usernames of owners.")
    key = _several("Prefixes of API keys.")
    source_ = _several(choices=Session.Source.choices)
    client = _several()
    agent = _several()
    model = _several()
    tool = _several("Tools with a call or a result in the message.")
    role = _several(choices=Message.Role.choices)
    status = _several(choices=Message.Status.choices)
    session = serializers.ListField(child=serializers.UUIDField(), required=False, max_length=20)
    has_error = serializers.BooleanField(required=False)
    from_ = fields.TimeParameter(required=False, help_text="Written at this time or later. A date means its start.")
    to_ = fields.EndTimeParameter(required=False, help_text="Written before this time. A date includes the whole day.")
    facets = serializers.BooleanField(
        default=False, help_text="Include the number of hits per owner, model, tool and so on."
    )
    count = serializers.BooleanField(default=False, help_text="Include the total number of hits.")
    cursor = fields.NumberField(help_text=CURSOR_HELP)
    limit = serializers.IntegerField(min_value=1, max_value=100, default=20)


class SessionChange(fields.BodySerializer):
    """Changes of a session. Missing fields are unchanged."""

    unknown_field = gettext_lazy("Unknown or read-only field.")

    title = fields.TitleField(r"\S", required=False, max_length=200)
    pinned = fields.StrictBooleanField(required=False)
    archived = fields.StrictBooleanField(required=False)
