"""Tool calls and calls to models, as rows."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from history.api.answers.base import Answer, PageAnswer
from history.api.fields import Time
from history.models import Exchange, ToolCall
from history.record.tool_calls import SHOWN_CHARS
from history.transcripts.exchange_facts import facts_of
from history.transcripts.tool_call_json import arguments_json


class ToolCallAnswer(Answer):
    """A tool call as a row. Its texts are null where you have to say first why you want to read them."""

    id = serializers.IntegerField(source="pk")
    session_id = serializers.UUIDField()
    seq = serializers.IntegerField(source="message.seq", help_text="The entry that asked for it.")
    index = serializers.IntegerField(help_text="Its place among the calls of that entry, from 0.")
    call_id = serializers.CharField(help_text="As the model named it; models use ids again.")
    tool_name = serializers.CharField(source="name")
    status = serializers.ChoiceField(ToolCall.Status.choices)
    created_at = Time(help_text="When it was asked for.")
    started_at = Time(allow_null=True)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    answered_by = serializers.IntegerField(allow_null=True, help_text="The entry that holds the outcome.")
    arguments = serializers.SerializerMethodField(help_text="An object where it is one, else a text.")
    result = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    is_cut = serializers.SerializerMethodField(help_text="A text is longer than the 2,000 characters shown here.")
    reason_needed = serializers.SerializerMethodField(help_text="The texts are somebody else's: say why.")

    def get_is_cut(self, call: Any) -> bool:
        return bool(call.longest > SHOWN_CHARS)

    @extend_schema_field(serializers.JSONField(allow_null=True))
    def get_arguments(self, call: Any) -> Any:
        return None if self.get_reason_needed(call) else arguments_json(call.first_arguments)

    def get_result(self, call: Any) -> str | None:
        return None if self.get_reason_needed(call) else call.first_result

    def get_error(self, call: Any) -> str | None:
        return None if self.get_reason_needed(call) else call.first_error

    def get_reason_needed(self, call: ToolCall) -> bool:
        return call.session_id not in self.context["opened"]


class ToolCallsAnswer(PageAnswer):
    """A page of tool calls."""

    results = ToolCallAnswer(many=True, help_text="Session with the newest activity first, in it newest first.")


class ExchangeAnswer(Answer):
    """One call to a model, whatever became of it."""

    id = serializers.UUIDField()
    session_id = serializers.UUIDField(allow_null=True, help_text="null: nothing of it was recorded but this.")
    seq = serializers.IntegerField(source="message.seq", allow_null=True, help_text="The entry with the answer.")
    after = serializers.IntegerField(help_text="The entry that the answer follows.")
    key = serializers.CharField(source="api_key.prefix", allow_null=True)
    agent = serializers.CharField()
    provider = serializers.CharField()
    model = serializers.CharField()
    dialect = serializers.CharField()
    is_running = serializers.SerializerMethodField()
    started_at = Time()
    ended_at = Time(allow_null=True)
    duration = serializers.SerializerMethodField(help_text="Seconds, so far if it is running.")
    end_reason = serializers.CharField()
    attempts = serializers.IntegerField()
    status_code = serializers.IntegerField(allow_null=True, help_text="The vendor's HTTP status.")
    error = serializers.SerializerMethodField(help_text="In the vendor's words; null: a text that you may not read.")
    usage = serializers.DictField()
    cost = serializers.DecimalField(max_digits=14, decimal_places=6)
    history_version = serializers.IntegerField(help_text="The version of the session that the request was made from.")
    renderer_version = serializers.CharField()
    request_hash = serializers.CharField()
    recognised_by = serializers.SerializerMethodField(help_text="How the relay knew its session.")
    relay = serializers.SerializerMethodField(
        help_text="Of a relayed call, as far as there is something to say: the program (client), its errand (helper), "
        "what it was translated to and could not carry, whom we tried (upstream), the client's earlier tries (retried)."
    )

    def get_relay(self, exchange: Exchange) -> dict[str, Any]:
        return facts_of(exchange, may_read=self.context["may_read"])

    def get_recognised_by(self, exchange: Exchange) -> str:
        return str(exchange.metadata.get("recognised_by", ""))

    def get_is_running(self, exchange: Exchange) -> bool:
        return exchange.ended_at is None

    def get_duration(self, exchange: Exchange) -> float:
        return ((exchange.ended_at or timezone.now()) - exchange.started_at).total_seconds()

    def get_error(self, exchange: Exchange) -> str | None:
        return exchange.error if self.context["may_read"] else None
