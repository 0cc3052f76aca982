"""What may be asked for. A parameter that nobody knows, or that comes twice, is refused: half of a filter is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from history.access.reasons import LONGEST
from history.api.fields import (
    CallCursor,
    CursorField,
    End,
    Moment,
    Name,
    Number,
    Plain,
    SearchField,
    Since,
    Title,
    YesOrNo,
)
from history.formats.exporters import EXPORTERS
from history.models import Message, Session, ToolCall
from history.record.listing import ListFilters

PAGE, MOST = 50, 200
MESSAGES = 20


class QueryParameters(Plain):
    """The parameters of an address."""

    @classmethod
    def of(cls, request: Request) -> dict[str, Any]:
        """Every parameter under its name; None: not given."""
        fields, given = cls().fields, request.query_params
        several = {name for name, field in fields.items() if isinstance(field, serializers.ListField)}
        wrong = {name: [_("There is no such parameter.")] for name in given if name not in fields}
        once = [name for name in given if name in fields and name not in several]
        wrong |= {name: [_("This may be given once.")] for name in once if len(given.getlist(name)) > 1}
        if wrong:
            raise ValidationError(wrong)
        asked = cls(data={name: given.getlist(name) if name in several else given[name] for name in given})
        asked.is_valid(raise_exception=True)
        return {**dict.fromkeys(fields), **asked.validated_data}


# Blanks alone are not a reason.
@extend_schema_field(
    {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}
)
class Reason(serializers.CharField):
    """Why somebody else's session is read."""


class ReasonAsked(QueryParameters):
    reason = Reason(
        required=False,
        max_length=LONGEST,
        help_text="Why you want to read what is not yours; its owner can see it. Or the header `X-Parley-Reason`.",
    )


class FilteredAsked(QueryParameters):
    """What narrows a list of sessions, and an export."""

    owner = Name(help_text="User name of the owner.")
    key = Name(help_text="Prefix of the API key that it was recorded under.")
    source_ = serializers.ChoiceField(Session.Source.choices, required=False, help_text="Where it came from.")
    client = Name(help_text="Which program, as far as it was recognised.")
    agent = Name()
    workspace = Name(max_length=255)
    model = Name()
    has_error = serializers.BooleanField(required=False, help_text="Whether an answer or a tool failed in it.")
    pinned = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False)
    from_ = Moment(required=False, help_text="Active at this time or later; a day alone is its beginning.")
    to_ = End(required=False, help_text="Active before this time; a day alone counts as a whole.")


def list_filters(asked: Mapping[str, Any]) -> ListFilters:
    same = ("owner", "key", "source", "client", "agent", "workspace", "model", "has_error", "pinned", "archived")
    return ListFilters(since=asked["from"], until=asked["to"], **{name: asked[name] for name in same})


class SessionsAsked(FilteredAsked):
    q = SearchField(help_text="Sessions in which this was said; as in search.")
    cursor = CursorField(required=False, help_text="Position of the page, as in `next` of the page before.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=PAGE)


class ExportAsked(FilteredAsked, ReasonAsked):
    format = serializers.ChoiceField(list(EXPORTERS), default="jsonl", help_text="docs/export.md says more of each.")
    session = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MOST, help_text="These alone; may be repeated."
    )
    mine = serializers.BooleanField(default=False, help_text="Only one's own, whatever else one may export.")
    since = Since(
        required=False,
        help_text="`start`, or the cursor that an earlier export ended with: what has changed since. "
        "Only `jsonl` tells what was deleted and ends with the next cursor.",
    )
    gzip = serializers.BooleanField(default=False)
    report = serializers.BooleanField(default=False, help_text="Only what the format cannot carry, as JSON.")


class ImportAsked(QueryParameters):
    name = Name(default="file", help_text="What the file is called; for the report.")


class MessagesAsked(ReasonAsked):
    before = Number(help_text="Entries older than this one.")
    after = Number(
        min_value=0, help_text="Entries newer than this one; 0 is the start. With `before`: those in between."
    )
    leaf = Number(help_text="Another branch: the path that ends with this entry.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=MESSAGES)
    all = serializers.BooleanField(
        default=False, help_text="Every entry of the path, also results, offered tools and notebooks by themselves."
    )


class ToolCallsAsked(ReasonAsked):
    tool = Name(help_text="Name of the tool.")
    status = serializers.ChoiceField(ToolCall.Status.choices, required=False)
    session = serializers.UUIDField(required=False)
    from_ = Moment(required=False, help_text="Asked at this time or later.")
    to_ = End(required=False, help_text="Asked before this time; a day alone counts as a whole.")
    cursor = CallCursor(required=False, help_text="Position of the page, as in `next` of the page before.")
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=PAGE)


def _several(help_text: str = "", *, choices: Any = None) -> serializers.ListField:
    child: Any = serializers.ChoiceField(choices) if choices else Name(required=True)
    return serializers.ListField(child=child, required=False, max_length=20, help_text=help_text)


class SearchAsked(QueryParameters):
    q = SearchField(help_text='words, "a phrase", begin*, -without, this OR that; none: whatever the filters leave.')
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
    from_ = Moment(required=False, help_text="Said at this time or later.")
    to_ = End(required=False, help_text="Said before this time; a day alone counts as a whole.")
    facets = serializers.BooleanField(default=False, help_text="Also how the hits are spread.")
    count = serializers.BooleanField(default=False, help_text="Also how many there are.")
    cursor = Number(help_text="Position of the page, as in `next` of the page before.")
    limit = serializers.IntegerField(min_value=1, max_value=100, default=20)


class OneAsked(ReasonAsked):
    """Nothing but a reason."""


@extend_schema_serializer(component_name="SessionChange")
class SessionChange(Plain):
    """What is left out stays as it is."""

    title = Title(r"\S", required=False, max_length=200)
    pinned = YesOrNo(required=False)
    archived = YesOrNo(required=False)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, dict) and (unknown := sorted(map(str, set(data) - set(self.fields)))):
            raise ValidationError({name: [_("There is no such field, or it cannot be changed.")] for name in unknown})
        return dict(super().to_internal_value(data))
