"""Types that all dialects share: call options, decoded requests, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from history.answers.events import Event
from history.context import Context, to_context
from history.context.repair import repair
from history.entries import ModelInput, ModelOutput, ToolDefinition, ToolResults, nothing
from history.text.lazy import LazyText as Sentence
from history.text.lazy import gettext_noop as _

Said = ModelInput | ModelOutput | ToolResults


class DialectError(ValueError):
    """This is not a request of that vendor at all; the text says what is missing."""


class LossCode(StrEnum):
    """Stable names of what a dialect could not carry over."""

    REASONING_UNSIGNED = "reasoning_unsigned"
    REASONING_FOREIGN = "reasoning_foreign"
    REASONING_NOT_CARRIED = "reasoning_not_carried"
    REASONING_ALONE = "reasoning_alone"
    SIGNATURE_REPLACED = "signature_replaced"
    MEDIA_UNAVAILABLE = "media_unavailable"
    MEDIA_NOT_CARRIED = "media_not_carried"
    MEDIA_AS_TEXT = "media_as_text"
    MEDIA_MOVED = "media_moved"
    PART_NOT_CARRIED = "part_not_carried"
    PARTS_REORDERED = "parts_reordered"
    ARGUMENTS_WRAPPED = "arguments_wrapped"
    CALL_ID_CHANGED = "call_id_changed"
    STATUS_NOT_CARRIED = "status_not_carried"
    SYSTEM_AS_TEXT = "system_as_text"
    MESSAGE_LEFT_OUT = "message_left_out"
    TOOL_NOT_CARRIED = "tool_not_carried"
    OPTION_NOT_CARRIED = "option_not_carried"
    ATTRIBUTION_LEFT_OUT = "attribution_left_out"


# For people; a page translates them by code and fills in the values of the loss.
SENTENCES: dict[LossCode, str] = {
    LossCode.REASONING_UNSIGNED: _("Reasoning without a signature was not sent."),
    LossCode.REASONING_FOREIGN: _("Reasoning that belongs to %(provider)s was not sent to another provider."),
    LossCode.REASONING_NOT_CARRIED: _("Reasoning was not sent: this call takes none back."),
    LossCode.REASONING_ALONE: _("Reasoning was not sent because what it led to is missing."),
    LossCode.SIGNATURE_REPLACED: _("The signature of the call of %(name)s is lost; a placeholder was sent."),
    LossCode.MEDIA_UNAVAILABLE: _("The bytes of %(name)s were not found; a note was sent in its place."),
    LossCode.MEDIA_NOT_CARRIED: _("%(name)s (%(media_type)s) cannot be sent there; a note was sent in its place."),
    LossCode.MEDIA_AS_TEXT: _("%(name)s was sent as plain text."),
    LossCode.MEDIA_MOVED: _("Media in a result of %(tool)s was moved into the message after it."),
    LossCode.PART_NOT_CARRIED: _("A part of type %(type)s was not sent: it belongs to another vendor."),
    LossCode.PARTS_REORDERED: _("What was said after a tool call was put before it."),
    LossCode.ARGUMENTS_WRAPPED: _("The cut-off arguments of %(name)s were sent as text inside an object."),
    LossCode.CALL_ID_CHANGED: _("The call id %(given)s became %(call_id)s."),
    LossCode.STATUS_NOT_CARRIED: _("That the call of %(name)s was %(status)s is told by its text only."),
    LossCode.SYSTEM_AS_TEXT: _("An instruction was sent as user text."),
    LossCode.MESSAGE_LEFT_OUT: _("A message of which nothing could be sent was left out."),
    LossCode.TOOL_NOT_CARRIED: _("The tool %(name)s is run by another vendor and was not offered."),
    LossCode.OPTION_NOT_CARRIED: _("The option %(name)s was not sent: this vendor has none like it."),
    LossCode.ATTRIBUTION_LEFT_OUT: _("A client's billing header was left out of the system instruction."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One thing that could not be carried: a stable code, the entry it stood in (0: none in particular), a sentence."""

    code: LossCode
    seq: int = 0
    values: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def said(self) -> Sentence:
        return Sentence(SENTENCES[self.code], **self.values)

    @property
    def text(self) -> str:
        return str(self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Where servers that speak the same dialect differ. The defaults are what the vendor itself takes.

    ``system_role`` "developer" is for OpenAI's reasoning models; "remove" puts the instruction before the first user
    text, for models that know none. ``alternate_roles`` merges what one side said in a row (OpenAI Chat).
    ``reasoning_content`` returns a provider's own unsigned thinking to it (DeepSeek and others). ``legacy_max_tokens``
    and ``stream_usage`` are for servers behind OpenAI's newest fields. ``inline_system`` uses Anthropic's role
    ``system`` among the messages. ``thinking_budget`` is how older Anthropic models are told how much to think.
    ``separate_user_text`` keeps Gemini's function responses in a message of their own. ``media_in_results`` is off for
    models that take no media inside a tool's result. ``signature_sentinel`` marks Gemini calls whose signature is lost.
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


ToolChoice = Literal["", "auto", "none", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """An answer that is to be JSON: of this schema, or without one any object. The name and `strict` are OpenAI's."""

    schema: Mapping[str, Any] | None = None
    name: str = ""
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How a model is to be called. ``provider`` says whose signed reasoning may go back; empty: the dialect's vendor.

    ``tool_name`` forces that tool. ``parallel_tools`` says whether an answer may call several at once; None: as the
    vendor does. ``media`` gives the bytes of an attachment by their hash, and raises LookupError
    where there are none. With ``include_debug`` the result says how the request came about; it is never sent.
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
    return_reasoning: bool = True
    media: Callable[[str], bytes] | None = None
    switches: Switches = field(default_factory=Switches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A request as the vendor takes it. ``path`` follows the base URL as the vendor's own SDK is configured with it.

    ``supplied`` are options that the vendor insists on and the caller did not give, or not as much as it needs.
    """

    body: dict[str, Any]
    path: str
    losses: tuple[Loss, ...] = ()
    supplied: Mapping[str, Any] = field(default_factory=nothing)
    debug: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRequest:
    """A client's request in our own words. ``blobs`` are the bytes of its attachments; ``extra`` is what we have no
    word for, ``read`` those of its fields that the options say as well; ``session_hints`` is what it says about the
    conversation that it belongs to; ``places`` says with which message (item, content) of the request each entry
    begins, from 0."""

    entries: tuple[Said, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    model: str = ""
    options: CallOptions = field(default_factory=CallOptions)
    session_hints: Mapping[str, str] = field(default_factory=nothing)
    blobs: Mapping[str, bytes] = field(default_factory=nothing)
    extra: Mapping[str, Any] = field(default_factory=nothing)
    read: frozenset[str] = frozenset()
    losses: tuple[Loss, ...] = ()
    places: tuple[int, ...] = ()


def context_of(request: DecodedRequest) -> Context:
    """What this request tells a model, repaired so that any vendor takes it."""
    said = [to_context(entry, seq=place) for place, entry in enumerate(request.entries, 1)]
    entries, report = repair(said)
    return Context(entries=entries, system=request.system, tools=request.tools, report=report)


class StreamDecoder(Protocol):
    """Fed a vendor's bytes in pieces of any size. A stream that breaks off gives no Ended."""

    def feed(self, chunk: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class StreamEncoder(Protocol):
    """Fed events; gives the bytes that a client of the vendor expects. Without an Ended, `end` ends nothing."""

    def feed(self, event: Event) -> bytes: ...

    def end(self) -> bytes: ...


def joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text)
