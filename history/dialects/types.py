"""Types of all dialects: call options, switches, encoded and decoded requests, losses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import auto
from typing import Literal

from history.context.messages import ConversationEntry as ConversationEntry, to_context
from history.context.repair import repair
from history.context.values import Context, Remark
from history.entries import JsonDict, JsonObject, ToolDefinition, empty_object
from history.text.lazy import SentenceCode, gettext_noop as _


class DialectError(ValueError):
    """A body that is not a request of that vendor; the text says what is missing."""


class LossCode(SentenceCode):
    REASONING_UNSIGNED = auto(), _("Reasoning without a signature was not sent.")
    REASONING_FOREIGN = auto(), _("Reasoning that belongs to %(provider)s was not sent to another provider.")
    REASONING_NOT_CARRIED = auto(), _("Reasoning was not sent. This API does not accept it.")
    REASONING_ALONE = auto(), _("Reasoning was not sent. The message or call after it is missing.")
    SIGNATURE_REPLACED = auto(), _("The signature of the call of %(name)s is lost. A placeholder was sent.")
    MEDIA_UNAVAILABLE = auto(), _("The data of %(name)s was not found. A note was sent instead.")
    MEDIA_NOT_CARRIED = auto(), _("%(name)s (%(media_type)s) cannot be sent to this provider. A note was sent instead.")
    MEDIA_AS_TEXT = auto(), _("%(name)s was sent as plain text.")
    MEDIA_MOVED = auto(), _("Media in a result of %(tool)s was moved into the message after it.")
    PART_NOT_CARRIED = auto(), _("A part of type %(type)s was not sent. It belongs to another provider.")
    PARTS_REORDERED = auto(), _("Text after a tool call was moved before it.")
    ARGUMENTS_WRAPPED = auto(), _("The incomplete arguments of %(name)s were sent as text inside an object.")
    CALL_ID_CHANGED = auto(), _("The call id %(given)s is now %(call_id)s.")
    STATUS_NOT_CARRIED = auto(), _("The status of the call of %(name)s (%(status)s) is sent only as text.")
    SYSTEM_AS_TEXT = auto(), _("An instruction was sent as user text.")
    MESSAGE_LEFT_OUT = auto(), _("A message without sendable content was left out.")
    TOOL_NOT_CARRIED = auto(), _("The tool %(name)s runs at another provider and was not offered.")
    OPTION_NOT_CARRIED = auto(), _("The option %(name)s was not sent. This provider does not support it.")
    ATTRIBUTION_LEFT_OUT = auto(), _("A client's billing header was left out of the system instruction.")


@dataclass(frozen=True, slots=True)
class Loss(Remark):
    """Content that a dialect cannot carry."""

    code: LossCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Differences between servers of one dialect. The defaults are those of the vendor itself.

    ``system_role`` "developer" is for OpenAI's reasoning models; "remove" puts the instruction before the first user
    text, for models without a system role. ``alternate_roles`` merges consecutive messages of one role (OpenAI Chat).
    ``reasoning_content`` returns a provider's own unsigned thinking to it (DeepSeek and others). ``legacy_max_tokens``
    and ``stream_usage`` are for servers without OpenAI's newest fields. ``inline_system`` uses Anthropic's role
    ``system`` among the messages. ``thinking_budget`` is for older Anthropic models without effort levels.
    ``separate_user_text`` keeps Gemini's function responses in a message of their own. ``media_in_results`` is off for
    models without media in tool results. ``signature_sentinel`` marks Gemini calls whose signature is lost.
    """

    system_role: Literal["system", "developer", "remove"] = "system"
    alternate_roles: bool = False
    reasoning_content: bool = False
    legacy_max_tokens: bool = False
    stream_usage: bool = True
    inline_system: bool = False
    thinking_budget: bool = False
    separate_user_text: bool = False
    media_in_results: bool = True
    signature_sentinel: bool = True


Tools = Sequence[ToolDefinition]
ToolChoice = Literal["", "auto", "none", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """A JSON answer: of this schema, or any object without one. The name and `strict` are OpenAI's."""

    schema: JsonObject | None = None
    name: str = ""
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Options of a model call.

    Signed reasoning goes back to ``provider`` only; empty means the dialect's vendor. ``tool_name`` forces that tool.
    ``parallel_tools`` allows several calls in one answer; None leaves it to the vendor. ``media`` returns the bytes of
    an attachment by hash or raises LookupError. ``include_debug`` adds facts to the result that are never sent.
    """

    model: str = ""
    provider: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    tool_choice: ToolChoice = ""
    tool_name: str = ""
    parallel_tools: bool | None = None
    reasoning_effort: str = ""
    form: AnswerForm | None = None
    include_live_screen: bool = True
    include_debug: bool = False
    media: Callable[[str], bytes] | None = None
    switches: Switches = field(default_factory=Switches)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRequest:
    """A request in a vendor's format. ``path`` follows the base URL of the vendor's own SDK.

    ``supplied`` are options that the vendor requires and the caller did not set high enough, or at all.
    """

    body: JsonDict
    path: str
    losses: tuple[Loss, ...] = ()
    supplied: JsonObject = field(default_factory=empty_object)
    debug: JsonObject = field(default_factory=empty_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRequest:
    """A client's request as entries and options.

    ``blobs`` are the bytes of attachments by hash. ``extra`` are the fields that options cannot express, and ``read``
    names the fields in it that options express too. ``session_hints`` are ids of the conversation. ``places`` is the
    index of the first message (item, content) of each entry.
    """

    entries: tuple[ConversationEntry, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    model: str = ""
    options: CallOptions = field(default_factory=CallOptions)
    session_hints: Mapping[str, str] = field(default_factory=empty_object)
    blobs: Mapping[str, bytes] = field(default_factory=empty_object)
    extra: JsonObject = field(default_factory=empty_object)
    read: frozenset[str] = frozenset()
    losses: tuple[Loss, ...] = ()
    places: tuple[int, ...] = ()


def context_of(request: DecodedRequest) -> Context:
    """The context of this request, repaired for any vendor."""
    entries, report = repair([to_context(entry, seq=seq) for seq, entry in enumerate(request.entries, 1)])
    return Context(entries=entries, system=request.system, tools=request.tools, report=report)


def join_texts(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text)
