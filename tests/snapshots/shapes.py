"""The shape of JSON messages: names of fields with the types of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_shape(shape: dict[str, Any], value: Mapping[str, Any]) -> None:
    """Field names with the types of all their values; lists of lists are named by their first item."""
    for name, item in value.items():
        if isinstance(item, dict):
            merge_shape(shape.setdefault(f"{name}.", {}), item)
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            for one in item:
                merge_shape(shape.setdefault(f"{name}[]", {}), one)
        elif isinstance(item, list):
            kinds = {f"list: {one[0]} {len(one)}" if isinstance(one, list) else f"list: {_type(one)}" for one in item}
            shape[name] = " | ".join(sorted({*shape.get(name, "").split(" | "), *(kinds or {"list"})} - {""}))
        else:
            shape[name] = " | ".join(sorted({*shape.get(name, "").split(" | "), _type(item)} - {""}))


def _type(value: Any) -> str:
    return "number" if type(value) in (int, float) else "null" if value is None else type(value).__name__
