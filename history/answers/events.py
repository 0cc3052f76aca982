"""Typed events of a streamed answer, independent of vendors.

A dialect decodes a vendor's stream into events, `assembly` makes one ModelOutput of them, and a dialect can encode them
for a client of another vendor. Pieces with the same `part` are one part; parts are in the order of their first pieces.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from history.entries import JsonObject, Media, OtherPart, Part, Reasoning, Text, ToolRequest, Usage, empty_object

EndReason = Literal["stop", "tool_use", "length", "content_filter", "refusal", "pause", "other"]
END_REASONS: tuple[EndReason, ...] = get_args(EndReason)

ErrorKind = Literal[
    "invalid_request", "authentication", "billing", "permission", "not_found", "conflict", "too_large",
    "context_length", "rate_limit", "server", "overloaded", "timeout",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStarted:
    """`request_id` is the vendor's id of this call."""

    model: str = ""
    request_id: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """`extra` has facts about the text (citations); lists in it are joined."""

    part: str
    text: str
    extra: JsonObject = field(default_factory=empty_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPiece:
    part: str
    text: str = ""
    signature: str = ""
    redacted: str = ""
    extra: JsonObject = field(default_factory=empty_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPiece:
    """The first piece of a call has its id and name; the arguments are pieces of JSON text."""

    part: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPiece:
    """A whole image or sound: its bytes or its URL."""

    part: str
    media_type: str
    data: bytes = b""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPiece:
    """A whole part of an unknown type, unchanged."""

    part: str
    data: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported:
    """Tokens so far. A later report replaces an earlier one, field by field."""

    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnded:
    """The end of an answer. A later one corrects an earlier one."""

    reason: EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFailed:
    """An error of the vendor; earlier pieces stay valid. `retry_after` are seconds from the body of the error."""

    message: str
    code: str = ""
    kind: ErrorKind = "server"
    status: int = 0
    retry_after: float | None = None
    raw: JsonObject = field(default_factory=empty_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEvent:
    """An unreadable event of the stream; the stream continues. `raw` is its beginning."""

    problem: str
    raw: str = ""


Piece = TextPiece | ReasoningPiece | ToolCallPiece | MediaPiece | OtherPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherAnswerEvent:
    """An event of a further answer: some vendors send several on request (`n`)."""

    answer: int
    event: Piece | AnswerEnded


Event = AnswerStarted | Piece | UsageReported | AnswerEnded | AnswerFailed | UnreadableEvent | FurtherAnswerEvent


def end_reason(word: str) -> EndReason:
    return next((reason for reason in END_REASONS if reason == word), "other")


def piece_of(part: Part, name: str) -> Piece:
    match part:
        case Text():
            return TextPiece(part=name, text=part.text, extra=part.extra)
        case Reasoning():
            texts = {"text": part.text, "signature": part.signature, "redacted": part.redacted}
            return ReasoningPiece(part=name, **texts, extra=part.extra)
        case ToolRequest():
            return ToolCallPiece(part=name, call_id=part.call_id, name=part.name, arguments=part.arguments)
        case Media():
            return MediaPiece(part=name, media_type=part.media_type, url=part.url)
        case OtherPart():
            return OtherPiece(part=name, data=part.data)


_HIGH_SURROGATES = range(0xD800, 0xDC00)  # the first halves of surrogate pairs


class SurrogateJoiner:
    """Joins surrogate pairs that a server split over two pieces of a text.

    In JSON, a character beyond U+FFFF is two surrogates. One alone has no UTF-8 form: no database stores it and no
    socket sends it. One without its other half is passed on at the end, as the vendor sent it.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, type[Piece]], TextPiece | ReasoningPiece] = {}

    def join(self, event: Event) -> Event:
        """The piece with a waiting first half at its start, and without one at its end."""
        if not isinstance(event, TextPiece | ReasoningPiece) or not event.text:
            return event
        if not self._waiting and ord(event.text[-1]) not in _HIGH_SURROGATES:
            return event
        key = (event.part, type(event))
        text = event.text
        if before := self._waiting.pop(key, None):
            text = (before.text + text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if ord(text[-1]) in _HIGH_SURROGATES:
            self._waiting[key] = replace(event, text=text[-1])
            text = text[:-1]
        return replace(event, text=text) if text != event.text else event

    def rest(self) -> Iterator[Event]:
        yield from self._waiting.values()
        self._waiting = {}
