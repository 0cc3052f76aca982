"""What entries are made of: texts, attachments, thoughts, requests for tools and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from history.entries.values import Value, nothing

ResultStatus = Literal["success", "failed", "skipped", "interrupted"]
UsageSource = Literal["provider", "partial", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Value):
    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media(Value):
    """An attachment. The bytes lie in a blob under their hash, or stay where ``url`` says."""

    type: ClassVar[str] = "media"
    media_type: str
    sha256: str = ""
    url: str = ""
    name: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning(Value):
    """A model's thinking. ``signature`` belongs to ``provider`` and goes back to that one alone, unmodified."""

    type: ClassVar[str] = "reasoning"
    text: str = ""
    signature: str = ""
    provider: str = ""
    redacted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest(Value):
    """A model asks for a tool. ``arguments`` is the JSON text as the model wrote it, even when it was cut off."""

    type: ClassVar[str] = "tool_request"
    call_id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPart(Value):
    """A part of a type that this version does not know: kept, shown as such, never interpreted."""

    type: ClassVar[str] = ""
    data: Mapping[str, Any]


Part = Text | Media | Reasoning | ToolRequest | OtherPart
PARTS: dict[str, type[Text | Media | Reasoning | ToolRequest]] = {
    cls.type: cls for cls in (Text, Media, Reasoning, ToolRequest)
}


def text_of(parts: tuple[Part, ...]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text) and part.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition(Value):
    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Value):
    """Tokens of one call. ``input_tokens`` is all that was read, cached or not; ``raw`` is the vendor's word."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    source: UsageSource = "provider"
    raw: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Value):
    """The outcome of one request; ``duration`` in seconds."""

    call_id: str
    name: str
    status: ResultStatus = "success"
    parts: tuple[Part, ...] = ()
    error: str = ""
    started_at: datetime | None = None
    duration: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def text(self) -> str:
        return text_of(self.parts)
