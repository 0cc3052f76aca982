"""Frozen values that entries consist of: text, media, reasoning, tool calls, results, usage."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

__all__ = [
    "EMPTY", "PARTS", "EntryError", "JsonDict", "JsonObject", "Media", "OtherPart", "Part", "Reasoning", "ResultStatus",
    "Text", "ToolDefinition", "ToolRequest", "ToolResult", "Usage", "Value", "empty_object", "now", "text_of", "thaw",
]  # fmt: skip

# JSON documents: read-only, and under construction.
JsonObject = Mapping[str, Any]
JsonDict = dict[str, Any]

MAX_LEVELS = 100  # of nested lists and objects in metadata; enough for people, too few to exhaust a stack

EMPTY: JsonObject = MappingProxyType({})

ResultStatus = Literal["success", "failed", "skipped", "interrupted"]
UsageSource = Literal["provider", "partial", "estimated"]


def empty_object() -> JsonObject:
    return EMPTY


class EntryError(ValueError):
    """Input that is not an entry; the text names the field and its value."""


def now() -> datetime:
    return datetime.now(UTC)


def frozen(value: Any, levels: int = MAX_LEVELS) -> Any:
    """A read-only copy of a JSON value: lists become tuples, dicts read-only views."""
    if value is None or value is EMPTY or isinstance(value, (str, int, float)):
        return value
    if not isinstance(value, (dict, Mapping, list, tuple)):  # dict first: its check is much cheaper than Mapping's
        return value
    if not levels:
        raise EntryError(f"nested too deeply: more than {MAX_LEVELS} levels")
    if isinstance(value, (list, tuple)):
        return tuple([frozen(item, levels - 1) for item in value])
    return MappingProxyType({key: frozen(item, levels - 1) for key, item in value.items()}) if value else EMPTY


def thaw(value: Any) -> Any:
    """Plain dicts and lists again, ready for a JSON encoder."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Base of everything written to JSON field by field; ``extra`` keeps fields of a later schema."""

    type: ClassVar[str] = ""  # of a part
    extra: JsonObject = field(default_factory=empty_object)

    def __post_init__(self) -> None:
        mappings, choices = _checked_fields(type(self))  # type: ignore[arg-type]
        for name in mappings:
            value = getattr(self, name)
            if value is not EMPTY:
                object.__setattr__(self, name, frozen(value))
        for name, allowed in choices:
            if (value := getattr(self, name)) not in allowed:
                listed = ", ".join(map(str, allowed))
                raise EntryError(f"{type(self).__name__}.{name} is {value!r}, and must be one of {listed}")


@cache
def _checked_fields(cls: type[Value]) -> tuple[list[str], list[tuple[str, tuple[object, ...]]]]:
    """Fields that are mappings, and fields with fixed choices: nothing unreadable is ever stored."""
    hints = get_type_hints(cls)
    origins = [(item.name, get_origin(hints[item.name])) for item in dataclasses.fields(cls)]
    mappings = [name for name, origin in origins if origin is Mapping]
    return mappings, [(name, get_args(hints[name])) for name, origin in origins if origin is Literal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Value):
    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media(Value):
    """An attachment. The bytes are in a blob named by their hash, or at ``url``."""

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
    """A tool call of a model. ``arguments`` is the JSON text as the model wrote it, even when it was cut off."""

    type: ClassVar[str] = "tool_request"
    call_id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPart(Value):
    """A part of a type that this version does not know: stored, shown as such, never interpreted."""

    data: JsonObject


_KnownPart = Text | Media | Reasoning | ToolRequest
Part = _KnownPart | OtherPart
PARTS: dict[str, type[_KnownPart]] = {cls.type: cls for cls in get_args(_KnownPart)}


def text_of(parts: tuple[Part, ...]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text) and part.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition(Value):
    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=empty_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Value):
    """Tokens of one call. ``input_tokens`` includes cached ones; ``raw`` is the vendor's object."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    source: UsageSource = "provider"
    raw: JsonObject = field(default_factory=empty_object)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Value):
    """The result of one tool call; ``duration`` in seconds."""

    call_id: str
    name: str
    status: ResultStatus = "success"
    parts: tuple[Part, ...] = ()
    error: str = ""
    started_at: datetime | None = None
    duration: float | None = None
    metadata: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> str:
        return text_of(self.parts)
