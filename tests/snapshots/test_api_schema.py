"""The OpenAPI schema as lines: parameters, bodies and responses of every operation, without sentences.

Names of serializers are left out, because clients send and receive fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from tests.snapshots.conftest import Snapshot

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

PROSE = {"description", "title", "example", "examples"}
INNER = {"properties", "items", "required", "additionalProperties", "allOf", "oneOf", "anyOf", "$ref"}


def test_the_api_schema_is_as_recorded(client: Client, snapshot: Snapshot) -> None:
    schema = client.get("/api/schema").json()
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in sorted(schema["paths"].items())
        for method, operation in sorted(methods.items())
    ]
    lines = [line for name, operation in operations for line in [name, *_indented(_operation(operation, schema)), ""]]
    schemes = {
        name: {key: value for key, value in told.items() if key not in PROSE}
        for name, told in schema["components"]["securitySchemes"].items()
    }
    snapshot("api_schema.txt", "\n".join([f"version {schema['info']['version']}", f"{_facts(schemes)}", "", *lines]))


def _operation(told: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    yield f"operation {told['operationId']}"
    yield f"security {_facts(told.get('security', []))}"
    for one in sorted(told.get("parameters", ()), key=lambda one: (one["in"], one["name"])):
        mark = "!" if one.get("required") else ""
        style = _facts({name: one[name] for name in ("explode", "style") if name in one})
        yield from _shape(
            one["schema"], " ".join([one["in"], f"{one['name']}{mark}", *([style] if style else [])]), schema
        )
    if body := told.get("requestBody"):
        for media_type, content in sorted(body["content"].items()):
            mark = "!" if body.get("required") else ""
            yield from _shape(content.get("schema", {}), f"body{mark} {media_type}", schema)
    same: dict[tuple[str, ...], list[str]] = {}
    for status, response in sorted(told["responses"].items()):
        shapes = [
            line
            for media_type, content in sorted(response.get("content", {}).items())
            for line in _shape(content.get("schema", {}), media_type, schema)
        ]
        same.setdefault(tuple(shapes), []).append(status)
    for shapes_of_all, statuses in same.items():
        yield " ".join(statuses)
        yield from (f"  {line}" for line in shapes_of_all)


def _shape(part: dict[str, Any], path: str, schema: dict[str, Any]) -> Iterator[str]:
    """A line per field; `!` marks required ones."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        part = {**schema["components"]["schemas"][name], **{key: part[key] for key in part if key != "$ref"}}
    facts = {name: value for name, value in part.items() if name not in PROSE | INNER}
    yield f"{path} {_facts(facts)}" if facts else path.rstrip()
    for name, inner in sorted(part.get("properties", {}).items()):
        yield from _shape(inner, f"{path}.{name}{'!' if name in part.get('required', ()) else ''}", schema)
    if "items" in part:
        yield from _shape(part["items"], f"{path}[]", schema)
    more = part.get("additionalProperties")
    if isinstance(more, dict) and more:
        yield from _shape(more, f"{path}.*", schema)
    elif more is not None:
        yield f"{path}.* {_facts(more)}".rstrip()
    for kind in ("allOf", "oneOf", "anyOf"):
        for inner in part.get(kind, ()):
            yield from _shape(inner, f"{path}({kind})", schema)


def _facts(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True) if value != {} else ""


def _indented(lines: Iterator[str]) -> list[str]:
    return [f"  {line}" for line in lines]
