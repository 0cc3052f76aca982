"""Sessions, and what was said in them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from history.api.answers.base import Answer, PageAnswer
from history.api.fields import Time
from history.models import Message, Session, ToolCall
from history.transcripts.tool_call_json import call_json


class SessionAnswer(Answer):
    """A session without its texts."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    key = serializers.CharField(source="api_key.prefix", allow_null=True, help_text="Prefix of its API key.")
    source_ = serializers.ChoiceField(Session.Source.choices)
    client = serializers.CharField(help_text="Which program, as far as it was recognised.")
    recognised_by = serializers.CharField(help_text="How the relay knew that its calls belong together.")
    agent = serializers.CharField()
    workspace = serializers.CharField()
    model = serializers.CharField()
    parent_ = serializers.UUIDField(source="parent_id", allow_null=True, help_text="The session that called this one.")
    forked_from = serializers.UUIDField(source="forked_from_id", allow_null=True)
    forked_at = serializers.IntegerField(help_text="The last entry of the original that the copy has; 0: no copy.")
    message_count = serializers.IntegerField(
        help_text="Messages that people see, on the path to the head: said and answered."
    )
    tool_call_count = serializers.IntegerField()
    error_count = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cost = serializers.DecimalField(max_digits=14, decimal_places=6)
    version = serializers.IntegerField(help_text="How many entries it has, on all branches.")
    head = serializers.IntegerField(help_text="The entry that the next one follows.")
    trimmed_through = serializers.IntegerField(help_text="Entries up to this one were removed by policy.")
    created_at = Time()
    last_activity_at = Time()
    expires_at = Time(allow_null=True, help_text="Until then it is kept; null: for ever.")
    pinned = serializers.SerializerMethodField()
    archived = serializers.SerializerMethodField()
    hold = serializers.BooleanField(help_text="Kept whatever the rules say.")
    hidden = serializers.SerializerMethodField(help_text="Its owner deleted it; held, and shown to staff only.")
    metadata = serializers.SerializerMethodField(
        help_text="What a program or a file said about it. Empty for other users' sessions that were not opened."
    )
    url = serializers.SerializerMethodField(help_text="Its page.")

    def get_metadata(self, session: Session) -> dict[str, Any]:
        return {} if session.is_title_hidden else session.metadata

    def get_pinned(self, session: Session) -> bool:
        return session.pinned_at is not None

    def get_archived(self, session: Session) -> bool:
        return session.archived_at is not None

    def get_hidden(self, session: Session) -> bool:
        return session.hidden_at is not None

    def get_url(self, session: Session) -> str:
        return session.get_absolute_url()


class SessionsAnswer(PageAnswer):
    """A page of sessions."""

    results = SessionAnswer(many=True, help_text="Newest activity first.")
    is_cut = serializers.BooleanField(help_text="`q` was said in so many sessions that only the newest are listed.")


class CallAnswer(Answer):
    """A tool call with its result."""

    id = serializers.CharField(help_text="As the model named it; models use ids again.")
    tool_name = serializers.CharField()
    arguments = serializers.JSONField(help_text="An object where it is one; cut-off JSON stays a text.")
    result = serializers.CharField()
    status = serializers.ChoiceField(ToolCall.Status.choices)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    timestamp = Time()


class MessageAnswer(Answer):
    """One entry of a session. `content` is the text for people, at most 65,536 characters of it."""

    seq = serializers.IntegerField(help_text="Its number in the session.")
    parent_ = serializers.IntegerField(source="parent_seq", help_text="The entry that it follows.")
    kind = serializers.CharField()
    role = serializers.ChoiceField(Message.Role.choices)
    content = serializers.CharField()
    is_cut = serializers.SerializerMethodField(help_text="`content` is only the beginning of a very long text.")
    timestamp = Time(source="created_at")
    status = serializers.ChoiceField(Message.Status.choices)
    end_reason = serializers.CharField()
    agent = serializers.CharField()
    provider = serializers.CharField()
    model = serializers.CharField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    latency = serializers.FloatField(allow_null=True, help_text="Seconds to the first token.")
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    on_path = serializers.BooleanField(help_text="It is on the path to the head.")
    is_internal = serializers.BooleanField()
    request_id = serializers.CharField(help_text="The provider's id of the request; empty where there is none.")
    dropped_at = Time(allow_null=True, help_text="When its text was dropped by policy.")
    tool_calls = serializers.SerializerMethodField()
    metadata = serializers.DictField()

    def get_is_cut(self, message: Message) -> bool:
        return message.content_chars > len(message.content)

    @extend_schema_field(CallAnswer(many=True))
    def get_tool_calls(self, message: Message) -> list[dict[str, Any]]:
        return [call_json(call) for call in self.context["calls"].get(message.pk, ())]


class MessagesAnswer(PageAnswer):
    """A page of a session, oldest first: `previous` has older entries, `next` newer ones.

    A call and its results are always on the same page.
    """

    session_id = serializers.UUIDField()
    message_count = serializers.IntegerField(help_text="Of the whole session, not of this page.")
    version = serializers.IntegerField()
    head = serializers.IntegerField()
    results = MessageAnswer(many=True)


class WholeMessageAnswer(MessageAnswer):
    """One entry as a whole."""

    entry = serializers.SerializerMethodField(help_text="The typed entry as it is stored; null: a part is missing.")

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_entry(self, message: Message) -> dict[str, Any] | None:
        entry: dict[str, Any] | None = self.context["entry"]
        return entry
