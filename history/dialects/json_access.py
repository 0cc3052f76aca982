"""Typed access to untrusted JSON: `obj(choice.get("delta"))` is an empty object for any other value."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from history.entries import EMPTY, JsonDict, JsonObject

MAX_DEPTH = 100  # Deeper than any real message. Freezing and writing recurse, so there must be a limit.


def obj(value: object) -> JsonObject:
    # Nearly always a dict or None; this check is much cheaper than that for an abstract class.
    if type(value) is dict:
        return value
    return value if value is not None and isinstance(value, Mapping) else EMPTY


def items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def objs(value: object) -> list[JsonObject]:
    return [item for item in items(value) if isinstance(item, Mapping)]


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """A number of tokens: never negative, never a boolean."""
    return max(value, 0) if type(value) is int else 0


def as_float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def as_int(value: object) -> int | None:
    return value if type(value) is int else None


def index_of(item: JsonObject, default: int, name: str = "index") -> int:
    index = item.get(name)
    return index if isinstance(index, int) else default


def as_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def from_base64(text: object) -> bytes | None:
    """Decode base64 in the usual or the URL-safe alphabet; None for invalid text."""
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def parse_json(text: str | bytes) -> Any:
    """Parse strict JSON or raise ValueError: no NaN, and no deep nesting."""
    text = text if isinstance(text, str) else text.decode()
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Counting brackets is fast, and nearly every text has too few to nest deeply.
    if text.count("{") + text.count("[") >= MAX_DEPTH and is_too_deep(value):
        raise ValueError("nested too deeply")
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                below.extend(item)
        if not below:
            return False
        level = below
    return True


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=dict)  # entries have read-only mappings
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), default=dict)


def compact(value: object) -> str:
    """Compact JSON: equal values give equal texts."""
    return _ENCODER.encode(value)


def as_bytes(value: object) -> bytes:
    """JSON for the wire. A lone surrogate has no UTF-8 form and is sent as an escape."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        return _ASCII_ENCODER.encode(value).encode("ascii")


def without_empty(**fields: object) -> JsonDict:
    """Leave out None, and empty texts, lists and objects."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {}, ())}
