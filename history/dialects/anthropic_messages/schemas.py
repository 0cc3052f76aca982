"""JSON schemas of answers in the subset that Anthropic accepts.

As in Anthropic's own SDK, what it would refuse is told to the model in the description instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from history.dialects.json_access import items, obj, string
from history.dialects.types import joined

TAKEN = frozenset({"type", "title", "description", "enum", "const", "required", "$ref"})
FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
)
SEVERAL = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
NAMED = frozenset({"properties", "$defs", "definitions"})
# Of which the model need not be told.
OF_NO_MATTER = frozenset({"additionalProperties", "$schema", "$id"})


def schema_of_answer(schema: Mapping[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    untold: list[str] = []
    for name, value in schema.items():
        if name in SEVERAL:
            written[SEVERAL[name]] = [_inner(one) for one in items(value)]
        elif name in NAMED:
            written[name] = {inner: _inner(one) for inner, one in obj(value).items()}
        elif name == "items":
            written[name] = _inner(value)
        elif _is_taken(name, value):
            written[name] = value
        elif name not in OF_NO_MATTER:
            untold.append(f"{name}: {value}")
    if untold:
        written["description"] = joined([string(schema.get("description")), f"{{{', '.join(untold)}}}"])
    return {**written, "additionalProperties": False} if schema.get("type") == "object" else written


def _is_taken(name: str, value: Any) -> bool:
    if name == "format":
        return isinstance(value, str) and value in FORMATS
    return name in TAKEN or (name == "minItems" and value in (0, 1))


def _inner(schema: Any) -> Any:
    return schema_of_answer(schema) if isinstance(schema, Mapping) else schema
