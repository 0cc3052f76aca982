"""Typed access to untrusted JSON: a value of the expected type, or an empty one.

So a decoder can say `obj(choice.get("delta"))` and go on, whatever stands there, and no odd input can raise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from history.entries import EMPTY

# Deeper than any real message; freezing and writing walk recursively, so there must be an end.
MAX_DEPTH = 100


def obj(value: Any) -> Mapping[str, Any]:
    # Nearly always a dict or nothing, and asking for that is many times quicker than asking an abstract class.
    if type(value) is dict:
        return value
    return value if value is not None and isinstance(value, Mapping) else EMPTY


def items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def objs(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in items(value) if isinstance(item, Mapping)]


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """A number of tokens: never negative, never a boolean."""
    return max(value, 0) if type(value) is int else 0


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(value: Any) -> int | None:
    return value if type(value) is int else None


def truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def parsed(text: str | bytes) -> Any:
    """Strict JSON, or a ValueError: no NaN, no nesting that nobody could walk."""
    try:
        value = _DECODER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _may_be_deep(text) and is_too_deep(value):
        raise ValueError("nested too deeply")
    return value


def _may_be_deep(text: str | bytes) -> bool:
    """Counting brackets is quick, and nearly every text has too few to nest deeply."""
    if isinstance(text, bytes):
        return text.count(b"{") + text.count(b"[") >= MAX_DEPTH
    return text.count("{") + text.count("[") >= MAX_DEPTH


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                below.extend(item)
        if not below:
            return False
        level = below
    return True


def _plain(value: Any) -> Any:
    """Our own values hold read-only mappings, which the encoder does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_plain)


def compact(value: Any) -> str:
    """One way to write JSON, so that equal values give equal texts."""
    return _ENCODER.encode(value)


def as_bytes(value: Any) -> bytes:
    """JSON for the wire. A lone surrogate has no UTF-8 form and is sent as an escape."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        return _ASCII_ENCODER.encode(value).encode("ascii")


def without_empty(**fields: Any) -> dict[str, Any]:
    """The fields that say something: None, and empty texts and lists, are left out."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {}, ())}
