"""Typed events of a streamed answer, independent of any vendor.

A dialect decodes a vendor's stream into these, `assembly` folds them into one ModelOutput, and a dialect can encode
them again for a client that speaks another language. `part` names the part of the answer that a piece belongs to:
pieces with the same `part` are one part, and parts stand in the order in which they first appeared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from history.entries import Usage, nothing

# Why an answer ended, in words that belong to no vendor.
EndReason = Literal["stop", "tool_use", "length", "content_filter", "refusal", "pause", "other"]
END_REASONS: tuple[EndReason, ...] = ("stop", "tool_use", "length", "content_filter", "refusal", "pause", "other")

# Whose fault a failure is, in words that belong to no vendor.
ErrorKind = Literal[
    "invalid_request",
    "authentication",
    "billing",
    "permission",
    "not_found",
    "conflict",
    "too_large",
    "context_length",
    "rate_limit",
    "server",
    "overloaded",
    "timeout",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The vendor has begun: which model answers, and the vendor's name for this call."""

    model: str = ""
    request_id: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """`extra` is what belongs to the text besides its characters (citations); lists in it grow piece by piece."""

    part: str
    text: str
    extra: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPiece:
    """Thinking, its signature, or thinking that the vendor shows to nobody (`redacted`)."""

    part: str
    text: str = ""
    signature: str = ""
    redacted: str = ""
    extra: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPiece:
    """The first piece of a call brings its id and name; the arguments come in any number of pieces of JSON text."""

    part: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPiece:
    """A picture or sound that the model made, whole: its bytes, or where they are."""

    part: str
    media_type: str
    data: bytes = b""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPiece:
    """A part of a type that we do not know, whole, as the vendor sent it."""

    part: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported:
    """Tokens so far. A vendor may report several times; the later word replaces the earlier one, field by field."""

    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The vendor said that it is done; `raw_reason` is its own word. A later one corrects an earlier one."""

    reason: EndReason
    raw_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The vendor sent an error instead of going on; what it sent before still stands. `code` is its own word.

    `retry_after` are the seconds to wait before the next try, where the error itself says so and not a header.
    """

    message: str
    code: str = ""
    kind: ErrorKind = "server"
    status: int = 0
    retry_after: float | None = None
    raw: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """One event of the stream could not be read; the rest goes on. `raw` is its beginning."""

    problem: str
    raw: str = ""


Piece = TextPiece | ReasoningPiece | ToolCallPiece | MediaPiece | OtherPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Part of a further answer to the same question: some vendors give several where they are asked to (`n`)."""

    answer: int
    event: Piece | Ended


Event = Started | Piece | UsageReported | Ended | Failed | Skipped | Beside
