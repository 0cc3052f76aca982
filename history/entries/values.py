"""What every part and every entry has in common: it is frozen in depth, and keeps what it does not know."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

MAX_LEVELS = 100  # of nested lists and objects in metadata; enough for people, too few to exhaust a stack

EMPTY: Mapping[str, Any] = MappingProxyType({})


def nothing() -> Mapping[str, Any]:
    return EMPTY


class EntryError(ValueError):
    """What was read is not an entry; the text names the place and what stands there."""


def now() -> datetime:
    return datetime.now(UTC)


def frozen(value: Any, levels: int = MAX_LEVELS) -> Any:
    """The same JSON value, but nobody can change it: lists become tuples, dicts read-only views."""
    if value is None or value is EMPTY or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (dict, Mapping)):  # a dict is known for one at once, a Mapping only after some asking
        below = _below(levels)
        return MappingProxyType({key: frozen(item, below) for key, item in value.items()}) if value else EMPTY
    if isinstance(value, (list, tuple)):
        below = _below(levels)
        return tuple([frozen(item, below) for item in value])
    return value


def _below(levels: int) -> int:
    if not levels:
        raise EntryError(f"nested too deeply: more than {MAX_LEVELS} levels")
    return levels - 1


def thaw(value: Any) -> Any:
    """Plain dicts and lists again, ready for a JSON encoder."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Anything that is written to JSON field by field; ``extra`` keeps fields of a later schema."""

    extra: Mapping[str, Any] = field(default_factory=nothing)

    def __post_init__(self) -> None:
        mappings, choices = _checked_fields(type(self))
        for name in mappings:
            value = getattr(self, name)
            if value is not EMPTY:
                object.__setattr__(self, name, frozen(value))
        for name, allowed in choices:
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(str, allowed))
                raise EntryError(
                    f"{type(self).__name__}.{name} is {getattr(self, name)!r}, and must be one of {listed}"
                )


Checked = tuple[tuple[str, ...], tuple[tuple[str, tuple[Any, ...]], ...]]

_checked: dict[type[Value], Checked] = {}


def _checked_fields(cls: type[Value]) -> Checked:
    """Fields that are mappings, and those with few values: nothing is stored that could not be read again."""
    if cls not in _checked:
        hints = get_type_hints(cls)
        names = [item.name for item in dataclasses.fields(cls)]
        mappings = tuple(name for name in names if get_origin(hints[name]) is Mapping)
        choices = tuple((name, get_args(hints[name])) for name in names if get_origin(hints[name]) is Literal)
        _checked[cls] = (mappings, choices)
    return _checked[cls]
