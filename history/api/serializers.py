"""Serializers of REST responses; the OpenAPI schema and /api/docs take their descriptions from here."""

from typing import Any, cast

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from history.api.fields import IsSetField, PlainSerializer, UtcTimeField
from history.entries import JsonObject
from history.importing import ImportOutcome, jobs
from history.models import Exchange, ImportJob, Message, Session, ToolCall
from history.record.listing import SHOWN_CHARS
from history.search import Hit, Snippet
from history.transcripts.previews import facts_of
from history.transcripts.serializers import arguments_json, tool_call_json


class PageSerializer(PlainSerializer):
    """DRF's envelope of a list; subclasses add `results`."""

    next = serializers.URLField(allow_null=True, help_text="URL of the next page; null on the last page.")
    previous = serializers.URLField(allow_null=True, help_text="URL of the previous page, if any.")


class ErrorDetailSerializer(PlainSerializer):
    code = serializers.CharField(help_text="Error code for programs; see docs/rest.md.")
    message = serializers.CharField(help_text="Error message for users.")
    fields_ = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        required=False,
        help_text="Problems by parameter or field.",
    )


class ErrorSerializer(PlainSerializer):
    """The form of all errors under /api/."""

    error = ErrorDetailSerializer()


class SessionSerializer(PlainSerializer):
    """A session without its texts."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    key = serializers.CharField(
        source="api_key.prefix", allow_null=True, help_text="Prefix of the API key that recorded it."
    )
    source_ = serializers.ChoiceField(Session.Source.choices)
    client = serializers.CharField(help_text="Client program, if it was recognised.")
    recognised_by = serializers.CharField(help_text="How the relay assigned its calls to this session.")
    agent = serializers.CharField()
    workspace = serializers.CharField()
    model = serializers.CharField()
    parent_ = serializers.UUIDField(
        source="parent_id", allow_null=True, help_text="The session whose agent called this one."
    )
    forked_from = serializers.UUIDField(source="forked_from_id", allow_null=True)
    forked_at = serializers.IntegerField(
        help_text="Number of the last entry that was copied from the original; 0 if this is not a fork."
    )
    message_count = serializers.IntegerField(help_text="Visible messages and answers on the current path.")
    tool_call_count = serializers.IntegerField()
    error_count = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cost = serializers.DecimalField(max_digits=14, decimal_places=6)
    version = serializers.IntegerField(help_text="Number of entries on all branches.")
    head = serializers.IntegerField(help_text="Number of the entry that the next message follows.")
    trimmed_through = serializers.IntegerField(help_text="Entries up to this number were removed by retention rules.")
    created_at = UtcTimeField()
    last_activity_at = UtcTimeField()
    expires_at = UtcTimeField(allow_null=True, help_text="When it expires; null if never.")
    pinned = IsSetField(source="pinned_at")
    archived = IsSetField(source="archived_at")
    hold = serializers.BooleanField(help_text="Under hold: retention rules do not remove it.")
    hidden = IsSetField(source="hidden_at", help_text="Deleted by its owner, but under hold and visible to staff.")
    metadata = serializers.SerializerMethodField(
        help_text="Metadata from the client or the imported file. Empty for unopened sessions of other users."
    )
    url = serializers.CharField(source="get_absolute_url", read_only=True, help_text="URL of its page.")

    def get_metadata(self, session: Session) -> dict[str, Any]:
        return {} if session.is_title_hidden else session.metadata


class SessionPageSerializer(PageSerializer):
    """A page of sessions."""

    results = SessionSerializer(many=True, help_text="Newest activity first.")
    is_cut = serializers.BooleanField(help_text="`q` matches so many sessions that only the newest are listed.")


class MessageCallSerializer(PlainSerializer):
    """A tool call with its result."""

    id = serializers.CharField(help_text="Id from the model; not unique.")
    tool_name = serializers.CharField()
    arguments = serializers.JSONField(help_text="An object, or a string if the JSON is incomplete.")
    result = serializers.CharField()
    status = serializers.ChoiceField(ToolCall.Status.choices)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    timestamp = UtcTimeField()


class MessageSerializer(PlainSerializer):
    """One entry of a session. `content` is the text for people, at most 65,536 characters of it."""

    seq = serializers.IntegerField(help_text="Number of the entry in its session.")
    parent_ = serializers.IntegerField(source="parent_seq", help_text="Number of the entry that it follows.")
    kind = serializers.CharField()
    role = serializers.ChoiceField(Message.Role.choices)
    content = serializers.CharField()
    is_cut = serializers.SerializerMethodField(help_text="`content` has only the beginning of the text.")
    timestamp = UtcTimeField(source="created_at")
    status = serializers.ChoiceField(Message.Status.choices)
    end_reason = serializers.CharField()
    agent = serializers.CharField()
    provider = serializers.CharField()
    model = serializers.CharField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    latency = serializers.FloatField(allow_null=True, help_text="Seconds to the first token.")
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    on_path = serializers.BooleanField(help_text="Whether it is on the current path.")
    is_internal = serializers.BooleanField()
    request_id = serializers.CharField(help_text="The provider's request id; empty if there is none.")
    dropped_at = UtcTimeField(allow_null=True, help_text="When retention rules removed its text.")
    tool_calls = serializers.SerializerMethodField()
    metadata = serializers.DictField()

    def get_is_cut(self, message: Message) -> bool:
        return message.content_chars > len(message.content)

    @extend_schema_field(MessageCallSerializer(many=True))
    def get_tool_calls(self, message: Message) -> list[JsonObject]:
        return [tool_call_json(call) for call in self.context["calls"].get(message.pk, ())]


class MessagePageSerializer(PageSerializer):
    """A page of a session, oldest first: `previous` has older entries, `next` newer ones.

    A call and its results are always on the same page.
    """

    session_id = serializers.UUIDField()
    message_count = serializers.IntegerField(help_text="Messages of the whole session.")
    version = serializers.IntegerField()
    head = serializers.IntegerField()
    results = MessageSerializer(many=True)


class WholeMessageSerializer(MessageSerializer):
    """One entry as a whole."""

    entry = serializers.SerializerMethodField(help_text="The entry as stored; null if a part is missing.")

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_entry(self, message: Message) -> JsonObject | None:
        return cast(JsonObject | None, self.context["entry"])


class ToolCallSerializer(PlainSerializer):
    """A tool call as a row. Its texts are null if reading them requires a reason."""

    id = serializers.IntegerField(source="pk")
    session_id = serializers.UUIDField()
    seq = serializers.IntegerField(source="message.seq", help_text="Number of the entry with the call.")
    index = serializers.IntegerField(help_text="Index among the calls of that entry, from 0.")
    call_id = serializers.CharField(help_text="Id from the model; not unique.")
    tool_name = serializers.CharField(source="name")
    status = serializers.ChoiceField(ToolCall.Status.choices)
    created_at = UtcTimeField(help_text="When the model requested it.")
    started_at = UtcTimeField(allow_null=True)
    duration = serializers.FloatField(allow_null=True, help_text="Seconds.")
    answered_by = serializers.IntegerField(allow_null=True, help_text="Number of the entry with the result.")
    arguments = serializers.SerializerMethodField(help_text="An object, or a string if it is not an object.")
    result = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    is_cut = serializers.SerializerMethodField(help_text="Texts are cut off after 2,000 characters.")
    reason_needed = serializers.SerializerMethodField(
        help_text="The session belongs to another user. Send a reason to read it."
    )

    def get_is_cut(self, call: Any) -> bool:
        return bool(call.longest > SHOWN_CHARS)

    @extend_schema_field(serializers.JSONField(allow_null=True))
    def get_arguments(self, call: Any) -> object:
        return None if self.get_reason_needed(call) else arguments_json(call.first_arguments)

    def get_result(self, call: Any) -> str | None:
        return None if self.get_reason_needed(call) else call.first_result

    def get_error(self, call: Any) -> str | None:
        return None if self.get_reason_needed(call) else call.first_error

    def get_reason_needed(self, call: ToolCall) -> bool:
        return call.session_id not in self.context["opened"]


class ToolCallPageSerializer(PageSerializer):
    """A page of tool calls."""

    results = ToolCallSerializer(many=True, help_text="Sessions with the newest activity first, newest calls first.")


class ExchangeSerializer(PlainSerializer):
    """One call to a model and its outcome."""

    id = serializers.UUIDField()
    session_id = serializers.UUIDField(allow_null=True, help_text="null if only the call itself was recorded.")
    seq = serializers.IntegerField(
        source="message.seq", allow_null=True, help_text="Number of the entry with the answer."
    )
    after = serializers.IntegerField(help_text="Number of the entry that the answer follows.")
    key = serializers.CharField(source="api_key.prefix", allow_null=True)
    agent = serializers.CharField()
    provider = serializers.CharField()
    model = serializers.CharField()
    dialect = serializers.CharField()
    is_running = serializers.SerializerMethodField()
    started_at = UtcTimeField()
    ended_at = UtcTimeField(allow_null=True)
    duration = serializers.SerializerMethodField(help_text="Seconds; so far, if it is still running.")
    end_reason = serializers.CharField()
    attempts = serializers.IntegerField()
    status_code = serializers.IntegerField(allow_null=True, help_text="The provider's HTTP status.")
    error = serializers.SerializerMethodField(help_text="The provider's error message; null if you may not read it.")
    usage = serializers.DictField()
    cost = serializers.DecimalField(max_digits=14, decimal_places=6)
    billing = serializers.SerializerMethodField(
        help_text="`plan`: the caller's own subscription pays, and the cost is 0. `metered`: the cost counts."
    )
    list_price = serializers.SerializerMethodField(
        help_text="What a call under a plan would have cost at list price, if that is known; else null."
    )
    history_version = serializers.IntegerField(help_text="Version of the session that the request was built from.")
    renderer_version = serializers.CharField()
    request_hash = serializers.CharField()
    recognised_by = serializers.SerializerMethodField(help_text="How the relay found its session.")
    relay = serializers.SerializerMethodField(
        help_text="Known facts of a relayed call: the program (client), the kind of a side call (helper), "
        "the dialect that it was translated to, losses, providers tried (upstream), earlier attempts (retried)."
    )

    def get_billing(self, exchange: Exchange) -> str:
        return "plan" if exchange.is_paid_by_plan else "metered"

    def get_list_price(self, exchange: Exchange) -> str | None:
        price = exchange.list_price
        return None if price is None else f"{price:.6f}"

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


class SnippetPieceSerializer(PlainSerializer):
    text = serializers.CharField()
    is_match = serializers.BooleanField()


class SnippetSerializer(PlainSerializer):
    """The text around the first match, in pieces."""

    pieces = serializers.SerializerMethodField()
    is_cut_before = serializers.BooleanField()
    is_cut_after = serializers.BooleanField()

    @extend_schema_field(SnippetPieceSerializer(many=True))
    def get_pieces(self, snippet: Snippet) -> list[JsonObject]:
        return [{"text": text, "is_match": is_match} for text, is_match in snippet.pieces]


class HitSerializer(PlainSerializer):
    """A message that matches."""

    session_id = serializers.UUIDField()
    title = serializers.CharField()
    seq = serializers.IntegerField()
    on_path = serializers.BooleanField()
    kind = serializers.CharField()
    role = serializers.ChoiceField(Message.Role.choices)
    status = serializers.ChoiceField(Message.Status.choices)
    agent = serializers.CharField()
    model = serializers.CharField()
    timestamp = UtcTimeField(source="at")
    snippet = serializers.SerializerMethodField(
        help_text="null if the session belongs to another user. Send a reason to read it."
    )
    reason_needed = serializers.SerializerMethodField()
    is_cut = serializers.BooleanField(help_text="Only the beginning of this long message is indexed.")
    url = serializers.SerializerMethodField(help_text="URL of its page.")

    @extend_schema_field(SnippetSerializer(allow_null=True))
    def get_snippet(self, hit: Hit) -> object:
        return None if self.get_reason_needed(hit) else SnippetSerializer(hit.snippet).data

    def get_reason_needed(self, hit: Hit) -> bool:
        return hit.session_id not in self.context["opened"]

    def get_url(self, hit: Hit) -> str:
        return f"/s/{hit.session_id}/?at={hit.seq}#m{hit.seq}"


class CountSerializer(PlainSerializer):
    number = serializers.IntegerField()
    is_exact = serializers.BooleanField(help_text="false if the number is a lower bound.")


class FacetSerializer(CountSerializer):
    """The number of hits with this value."""

    value = serializers.CharField()


class SearchPageSerializer(PageSerializer):
    """A page of hits."""

    results = HitSerializer(many=True, help_text="Newest first.")
    count = CountSerializer(allow_null=True)
    facets = serializers.DictField(child=FacetSerializer(many=True), allow_null=True)


class ImportNoteSerializer(PlainSerializer):
    """What was repaired or lost during the import."""

    level = serializers.CharField(help_text="`repaired`, `lost` or `ignored`.")
    what = serializers.CharField()
    where = serializers.CharField()
    count = serializers.IntegerField()


class ImportItemSerializer(PlainSerializer):
    """The outcome of one conversation, or of one file."""

    outcome = serializers.ChoiceField([outcome.value for outcome in ImportOutcome])
    file = serializers.CharField()
    format = serializers.CharField()
    title = serializers.CharField()
    session = serializers.UUIDField(allow_null=True)
    entries = serializers.IntegerField(help_text="Number of entries stored by this import.")
    why = serializers.CharField(help_text="Reason of a refusal.")
    notes = ImportNoteSerializer(many=True)


class ImportSerializer(PlainSerializer):
    """Progress and report of an import."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(ImportJob.State.choices)
    is_interrupted = serializers.SerializerMethodField(
        help_text="The server stopped during the import. Send the file again."
    )
    files = serializers.ListField(child=serializers.DictField())
    size = serializers.SerializerMethodField(help_text="Size in bytes.")
    bytes_read = serializers.IntegerField(help_text="Bytes read so far; for archives, unpacked bytes.")
    created_at = UtcTimeField()
    ended_at = UtcTimeField(allow_null=True)
    error = serializers.CharField()
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Number of items per outcome.")
    items = ImportItemSerializer(many=True, help_text="The first items, if there are many.")

    def get_is_interrupted(self, job: ImportJob) -> bool:
        return jobs.is_interrupted(job)

    def get_size(self, job: ImportJob) -> int:
        return sum(int(file["size"]) for file in job.files)
