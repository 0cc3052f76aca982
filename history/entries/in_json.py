"""JSON serialisation of entries. The type hints of the values are the schema."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from history.entries.kinds import KINDS, Entry, UnknownEntry
from history.entries.values import PARTS, EntryError, JsonDict, JsonObject, OtherPart, Part, Value, empty_object, thaw

__all__ = ["SCHEMA_VERSION", "entry_from_json", "entry_to_json", "kind_of", "read_entry", "values_to_json"]

SCHEMA_VERSION = 1

TYPE_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", datetime: "a time"}


def kind_of(entry: Entry) -> str:
    return entry.stored_kind if isinstance(entry, UnknownEntry) else entry.kind


def entry_to_json(entry: Entry) -> JsonDict:
    if isinstance(entry, UnknownEntry):
        return dict(thaw(entry.data))
    return {"kind": entry.kind, "v": SCHEMA_VERSION, **_value_to_json(entry)}


def entry_from_json(data: object) -> Entry:
    """Parse an entry; raise :class:`EntryError` for a malformed entry of a known kind."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise EntryError("an entry is an object with a text 'kind'")
    cls = KINDS.get(data["kind"])
    if cls is None:
        return UnknownEntry(data=data, at=_time_or_epoch(data.get("at")))
    version = data.get("v", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        return UnknownEntry(data=data, at=_time_or_epoch(data.get("at")), problem=f"schema version {version}")
    fields = {key: value for key, value in data.items() if key not in ("kind", "v")}
    return _value_from_json(cls, fields, data["kind"])


def read_entry(data: object) -> Entry:
    """Like :func:`entry_from_json`, but malformed input becomes an :class:`UnknownEntry`."""
    try:
        return entry_from_json(data)
    except EntryError as error:
        problem = str(error)
    fields = data if isinstance(data, Mapping) else {"kind": "", "value": data}
    at = _time_or_epoch(fields.get("at"))
    try:
        return UnknownEntry(data=fields, at=at, problem=problem)
    except EntryError:  # nested too deeply to be frozen
        return UnknownEntry(data={"kind": str(fields.get("kind", ""))}, at=at, problem=problem)


def _time_or_epoch(value: object) -> datetime:
    try:
        return _time(value, "at")
    except EntryError:
        return datetime.fromtimestamp(0, UTC)


T = TypeVar("T", bound=Value)
Decoder = Callable[[object, str], Any]


@cache
def _shape(cls: type[Value]) -> dict[str, tuple[Decoder, object]]:
    """The fields of a class of values: how each is parsed, and its default."""
    hints = get_type_hints(cls)
    return {
        item.name: (
            _decoder(hints[item.name]),
            empty_object() if item.default_factory is empty_object else item.default,
        )
        for item in dataclasses.fields(cls)
        if item.name != "extra"  # its fields are written into the object itself
    }


def _value_to_json(value: Value) -> JsonDict:
    written = {}
    for name, (_, default) in _shape(type(value)).items():  # type: ignore[arg-type]
        item = getattr(value, name)
        if item is not default and item != default:
            written[name] = item if isinstance(item, str) else values_to_json(item)
    for name, item in value.extra.items():
        written.setdefault(name, thaw(item))
    return written


def values_to_json(item: object) -> Any:
    """A field of an entry, such as its parts."""
    if isinstance(item, tuple):
        return [values_to_json(one) for one in item]
    if isinstance(item, Value):
        if isinstance(item, OtherPart):
            return thaw(item.data)
        written = _value_to_json(item)
        return {"type": item.type, **written} if item.type else written
    if isinstance(item, datetime):
        return item.isoformat()
    return thaw(item)


def _value_from_json(cls: type[T], data: JsonObject, place: str) -> T:
    known = _shape(cls)  # type: ignore[arg-type]
    read = {name: known[name][0](item, f"{place}.{name}") for name, item in data.items() if name in known}
    for name, (_, default) in known.items():
        if name not in read and default is dataclasses.MISSING:
            raise EntryError(f"{place}.{name} is missing")
    if len(read) < len(data):
        read["extra"] = {name: item for name, item in data.items() if name not in known}
    return cls(**read)


def _decoder(hint: Any) -> Decoder:
    """A function that parses a value of this type or raises EntryError."""
    origin = get_origin(hint)
    if hint == Part:
        return _part
    if origin in (Union, UnionType):
        decode = _decoder(next(arg for arg in get_args(hint) if arg is not type(None)))
        return lambda item, place: None if item is None else decode(item, place)
    if origin is tuple:
        return partial(_list, _decoder(get_args(hint)[0]))
    if origin is Literal:
        return partial(_choice, get_args(hint))
    if origin is Mapping:
        return _mapping
    if hint is datetime:
        return _time
    if issubclass(hint, Value):
        return lambda item, place: _value_from_json(hint, _mapping(item, place), place)
    return partial(_scalar, hint)


def _part(item: object, place: str) -> Part:
    data = _mapping(item, place)
    cls = PARTS.get(str(data.get("type")))
    if cls is None:
        return OtherPart(data=data)
    return _value_from_json(cls, {key: value for key, value in data.items() if key != "type"}, place)


def _list(decode: Decoder, item: object, place: str) -> tuple[Any, ...]:
    if not isinstance(item, list | tuple):
        raise EntryError(f"{place}: expected a list, got {type(item).__name__}")
    return tuple(decode(one, f"{place}[{index}]") for index, one in enumerate(item))


def _choice(choices: tuple[str, ...], item: object, place: str) -> str:
    if item not in choices:
        raise EntryError(f"{place}: expected one of {', '.join(choices)}, got {item!r}")
    return str(item)


def _mapping(item: object, place: str) -> JsonObject:
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


def _scalar(hint: type, item: object, place: str) -> Any:
    if hint is float and type(item) is int:
        return float(item)
    if type(item) is not hint:
        raise EntryError(f"{place}: expected {TYPE_NAMES[hint]}, got {type(item).__name__}")
    return item
