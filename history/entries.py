"""The facts a history is made of: frozen, typed values that know nothing of Django or of any vendor.

Every entry says *when* it happened and *what kind* of fact it is. Entries are written to JSON and read back without
loss: a field that still has its default is left out, a field of a later schema is kept in ``extra`` and written again,
and a kind that we do not know becomes an :class:`UnknownEntry` that holds exactly what was read.

Which entries may reach a model is a question of type: ``history.context.to_context`` takes only the union
``Renderable``, so a debug log or a notebook edit cannot be sent by mistake.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

SCHEMA_VERSION = 1
MAX_LEVELS = 100  # of nested lists and objects in metadata; enough for people, too few to exhaust a stack

TYPE_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", datetime: "a time"}

Status = Literal["complete", "interrupted", "failed"]
ResultStatus = Literal["success", "failed", "skipped", "interrupted"]
UsageSource = Literal["provider", "partial", "estimated"]

EMPTY: Mapping[str, Any] = MappingProxyType({})


def nothing() -> Mapping[str, Any]:
    return EMPTY


class EntryError(ValueError):
    """What was read is not an entry; the text names the place and what stands there."""


def now() -> datetime:
    return datetime.now(UTC)


def frozen(value: Any, levels: int = MAX_LEVELS) -> Any:
    """The same JSON value, but nobody can change it: lists become tuples, dicts read-only views."""
    if isinstance(value, Mapping | list | tuple) and not levels:
        raise EntryError(f"nested too deeply: more than {MAX_LEVELS} levels")
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(item, levels - 1) for key, item in value.items()}) if value else EMPTY
    if isinstance(value, list | tuple):
        return tuple(frozen(item, levels - 1) for item in value)
    return value


def thawed(value: Any) -> Any:
    """Plain dicts and lists again, ready for a JSON encoder."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thawed(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Anything that is written to JSON field by field; ``extra`` keeps fields of a later schema."""

    extra: Mapping[str, Any] = field(default_factory=nothing)

    def __post_init__(self) -> None:
        for name in _shape(type(self)).mappings:
            object.__setattr__(self, name, frozen(getattr(self, name)))


# Parts: what an input, an answer or a result is made of.


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


# Entries.


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Value):
    """One fact. ``metadata`` is free for source, timing and whatever a later reader may want."""

    kind: ClassVar[str] = ""
    role: ClassVar[str] = "system"
    at: datetime = field(default_factory=now)
    agent: str = ""
    is_internal: bool = False
    metadata: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def text(self) -> str:
        """What a person reads, and what search finds."""
        return ""

    def renumbered(self, number: Callable[[int], int]) -> Self:
        """The same fact in a copy of the history where entries have other numbers."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemInstructionSet(Entry):
    kind: ClassVar[str] = "system_instruction_set"
    instruction: str

    @property
    def text(self) -> str:
        return self.instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsOffered(Entry):
    kind: ClassVar[str] = "tools_offered"
    tools: tuple[ToolDefinition, ...] = ()

    @property
    def text(self) -> str:
        return ", ".join(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookSet(Entry):
    kind: ClassVar[str] = "notebook_set"
    content: str
    author: str = ""

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput(Entry):
    """What somebody said to the model. ``raw`` is the input as it was typed, where that differs from the parts."""

    kind: ClassVar[str] = "model_input"
    role: ClassVar[str] = "user"
    channel: str = "chat"
    parts: tuple[Part, ...] = ()
    raw: str | None = None

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def raw_input(self) -> str:
        return self.text if self.raw is None else self.raw

    @property
    def attachments(self) -> tuple[Media, ...]:
        return tuple(part for part in self.parts if isinstance(part, Media))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput(Entry):
    """One whole answer, or as much of it as there was: ``status`` and ``end_reason`` say which."""

    kind: ClassVar[str] = "model_output"
    role: ClassVar[str] = "assistant"
    plan: str | None = None
    parts: tuple[Part, ...] = ()
    provider: str = ""
    model: str = ""
    status: Status = "complete"
    end_reason: str = ""
    error: str = ""
    usage: Usage | None = None
    latency: float | None = None
    duration: float | None = None
    request_id: str = ""

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def tool_requests(self) -> tuple[ToolRequest, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolRequest))

    @property
    def reasoning(self) -> str:
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Reasoning) and part.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResults(Entry):
    """The outcomes of all requests of one answer, one to one and in the order they were asked."""

    kind: ClassVar[str] = "tool_results"
    role: ClassVar[str] = "tool"
    results: tuple[ToolResult, ...] = ()
    overall: str = ""

    @property
    def text(self) -> str:
        return self.overall or "\n\n".join(result.text or result.error for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedResult(Value):
    """One tool result whose text is left out of the context: result ``index`` of entry ``seq``."""

    seq: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Entry):
    """Stands for the entries ``first`` … ``last`` of its path; they stay in the record. ``first`` 0: masks only."""

    kind: ClassVar[str] = "summary"
    first: int = 0
    last: int = 0
    summary: str = ""
    masks: tuple[MaskedResult, ...] = ()
    provider: str = ""
    model: str = ""

    @property
    def text(self) -> str:
        return self.summary

    def renumbered(self, number: Callable[[int], int]) -> Self:
        masks = tuple(dataclasses.replace(mask, seq=number(mask.seq)) for mask in self.masks)
        return dataclasses.replace(self, first=number(self.first), last=number(self.last), masks=masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retracted(Entry):
    """Takes the summary ``seq`` back: what it stood for counts again."""

    kind: ClassVar[str] = "retracted"
    seq: int
    reason: str = ""

    def renumbered(self, number: Callable[[int], int]) -> Self:
        return dataclasses.replace(self, seq=number(self.seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMoved(Entry):
    """The conversation goes on after entry ``to`` (0: from the start). Nothing is removed."""

    kind: ClassVar[str] = "head_moved"
    to: int
    reason: str = "rollback"

    def renumbered(self, number: Callable[[int], int]) -> Self:
        return dataclasses.replace(self, to=number(self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Entry):
    """Something is missing here, and we say so."""

    kind: ClassVar[str] = "gap"
    reason: str = ""

    @property
    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugLog(Entry):
    kind: ClassVar[str] = "debug_log"
    category: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        return f"{self.category}: {self.message}" if self.category else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEntry(Entry):
    """An entry of a kind or shape that this version cannot read: kept as it came and shown as such."""

    kind: ClassVar[str] = "unknown"
    data: Mapping[str, Any]
    problem: str = ""

    @property
    def stored_kind(self) -> str:
        return str(self.data.get("kind", ""))[:40]


KINDS: dict[str, type[Entry]] = {
    cls.kind: cls
    for cls in (
        SystemInstructionSet,
        ToolsOffered,
        NotebookSet,
        ModelInput,
        ModelOutput,
        ToolResults,
        Summary,
        Retracted,
        HeadMoved,
        Gap,
        DebugLog,
    )
}
PARTS: dict[str, type[Text | Media | Reasoning | ToolRequest]] = {
    cls.type: cls for cls in (Text, Media, Reasoning, ToolRequest)
}

# Kinds that a conversation consists of: counted as messages, and chained by fingerprint.
CONVERSATION: frozenset[str] = frozenset({ModelInput.kind, ModelOutput.kind, ToolResults.kind})
# Kinds that say what holds from here on: an instruction, the tools, a summary in place of what came before.
STATE: frozenset[str] = frozenset(
    {SystemInstructionSet.kind, ToolsOffered.kind, NotebookSet.kind, Summary.kind, Retracted.kind}
)
# Kinds that hang beside the path and never become anybody's parent.
LEAVES: frozenset[str] = frozenset({DebugLog.kind, HeadMoved.kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entry in its place: number ``seq`` of its session, after entry ``parent`` (0: the start)."""

    seq: int
    parent: int
    entry: Entry


# To and from JSON. The type hints above are the schema; this part only walks them.


def kind_of(entry: Entry) -> str:
    return entry.stored_kind if isinstance(entry, UnknownEntry) else entry.kind


def entry_to_json(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, UnknownEntry):
        return dict(thawed(entry.data))
    return {"kind": entry.kind, "v": SCHEMA_VERSION, **_value_to_json(entry)}


def entry_from_json(data: Any) -> Entry:
    """Read one entry; raises :class:`EntryError` where a known kind is malformed."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise EntryError("an entry is an object with a text 'kind'")
    cls = KINDS.get(data["kind"])
    if cls is None:
        return UnknownEntry(data=data, at=_time_or_now(data.get("at")))
    version = data.get("v", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        return UnknownEntry(data=data, at=_time_or_now(data.get("at")), problem=f"schema version {version}")
    fields = {key: value for key, value in data.items() if key not in ("kind", "v")}
    return _value_from_json(cls, fields, data["kind"])


def read_entry(data: Any) -> Entry:
    """Like :func:`entry_from_json`, but never fails: what cannot be read is shown as what it is."""
    try:
        return entry_from_json(data)
    except EntryError as error:
        return _unreadable(data if isinstance(data, Mapping) else {"kind": "", "value": data}, problem=str(error))


def _unreadable(data: Mapping[str, Any], *, problem: str) -> UnknownEntry:
    at = _time_or_now(data.get("at"))
    try:
        return UnknownEntry(data=data, at=at, problem=problem)
    except EntryError:  # nested too deeply even to be held
        return UnknownEntry(data={"kind": str(data.get("kind", ""))}, at=at, problem=problem)


def _time_or_now(value: Any) -> datetime:
    try:
        return _time(value, "at")
    except EntryError:
        return datetime.fromtimestamp(0, UTC)


T = TypeVar("T", bound=Value)
Decode = Callable[[Any, str], Any]


class _Shape:
    """How a class of values is written: its fields, how each is read, and their defaults."""

    def __init__(self, cls: type[Value]) -> None:
        hints = get_type_hints(cls)
        fields = dataclasses.fields(cls)
        self.mappings = tuple(item.name for item in fields if get_origin(hints[item.name]) is Mapping)
        # `extra` is spread over the object itself.
        self.fields: dict[str, tuple[Decode, Any]] = {
            item.name: (_decoder(hints[item.name]), EMPTY if item.default_factory is nothing else item.default)
            for item in fields
            if item.name != "extra"
        }


_shapes: dict[type[Value], _Shape] = {}


def _shape(cls: type[Value]) -> _Shape:
    if cls not in _shapes:
        _shapes[cls] = _Shape(cls)
    return _shapes[cls]


def _value_to_json(value: Value) -> dict[str, Any]:
    written = {}
    for name, (_, default) in _shape(type(value)).fields.items():
        item = getattr(value, name)
        if item is not default and item != default:
            written[name] = item if isinstance(item, str) else _to_json(item)
    for name, item in value.extra.items():
        written.setdefault(name, thawed(item))
    return written


def _to_json(item: Any) -> Any:
    if isinstance(item, tuple):
        return [_to_json(one) for one in item]
    if isinstance(item, Value):
        if isinstance(item, OtherPart):
            return thawed(item.data)
        written = _value_to_json(item)
        return {"type": item.type, **written} if isinstance(item, Text | Media | Reasoning | ToolRequest) else written
    if isinstance(item, datetime):
        return item.isoformat()
    return thawed(item)


def _value_from_json(cls: type[T], data: Mapping[str, Any], place: str) -> T:
    read: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    known = _shape(cls).fields
    for name, item in data.items():
        if name in known:
            read[name] = known[name][0](item, f"{place}.{name}")
        else:
            extra[name] = item
    for name, (_, default) in known.items():
        if name not in read and default is dataclasses.MISSING:
            raise EntryError(f"{place}.{name} is missing")
    return cls(**read, extra=extra) if extra else cls(**read)


def _decoder(hint: Any) -> Decode:
    """A function that reads a value of this type, and says what is wrong where it cannot."""
    origin = get_origin(hint)
    if hint == Part:
        return _part
    if origin in (Union, UnionType):
        return _optional(_decoder(next(arg for arg in get_args(hint) if arg is not type(None))))
    if origin is tuple:
        return _list_of(_decoder(get_args(hint)[0]))
    if origin is Literal:
        return _one_of(get_args(hint))
    if origin is Mapping:
        return _mapping
    if hint is datetime:
        return _time
    if issubclass(hint, Value):
        return lambda item, place: _value_from_json(hint, _mapping(item, place), place)
    return _scalar(hint)


def _part(item: Any, place: str) -> Part:
    data = _mapping(item, place)
    cls = PARTS.get(str(data.get("type")))
    if cls is None:
        return OtherPart(data=data)
    return _value_from_json(cls, {key: value for key, value in data.items() if key != "type"}, place)


def _optional(decode: Decode) -> Decode:
    return lambda item, place: None if item is None else decode(item, place)


def _list_of(decode: Decode) -> Decode:
    def read(item: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(item, list | tuple):
            raise EntryError(f"{place}: expected a list, got {type(item).__name__}")
        return tuple(decode(one, f"{place}[{index}]") for index, one in enumerate(item))

    return read


def _one_of(choices: tuple[str, ...]) -> Decode:
    def read(item: Any, place: str) -> str:
        if item not in choices:
            raise EntryError(f"{place}: expected one of {', '.join(choices)}, got {item!r}")
        return str(item)

    return read


def _mapping(item: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise EntryError(f"{place}: expected an object, got {type(item).__name__}")
    return item


def _time(item: Any, place: str) -> datetime:
    try:
        read = datetime.fromisoformat(item)
        read = read if read.tzinfo else read.replace(tzinfo=UTC)
        read.astimezone(UTC)  # the first and the last day of the calendar may have no place in another zone
    except (TypeError, ValueError, OverflowError):
        raise EntryError(f"{place}: expected an ISO 8601 time, got {item!r}") from None
    return read


def _scalar(hint: type) -> Decode:
    def read(item: Any, place: str) -> Any:
        if hint is float and type(item) is int:
            return float(item)
        if type(item) is not hint:
            raise EntryError(f"{place}: expected {TYPE_NAMES[hint]}, got {type(item).__name__}")
        return item

    return read
