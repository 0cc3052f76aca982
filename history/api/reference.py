"""The schema as a page reads it: one operation after the other, references followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """A text in which `this` is code."""

    text: str

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """Each with whether it is code."""
        return [(piece, bool(place % 2)) for place, piece in enumerate(self.text.split("`")) if piece]


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str
    description: Words
    is_required: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    name: str
    method: str
    path: str
    summary: str
    description: Words
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    answer: tuple[Field, ...]
    statuses: tuple[tuple[str, Words], ...]
    samples: tuple[Mapping[str, str], ...]


def operations(schema: Schema) -> list[Operation]:
    return [
        _operation(schema, path, method, told)
        for path, methods in schema["paths"].items()
        for method, told in methods.items()
    ]


def _operation(schema: Schema, path: str, method: str, told: Mapping[str, Any]) -> Operation:
    success = next(status for status in told["responses"] if status.startswith("2"))
    return Operation(
        name=told["operationId"],
        method=method.upper(),
        path=path,
        summary=told["summary"],
        description=Words(told["description"]),
        parameters=tuple(_parameter(schema, one) for one in told.get("parameters", ())),
        body=tuple(_fields(schema, _content(told.get("requestBody", {})))),
        answer=tuple(_fields(schema, _content(told["responses"][success]))),
        statuses=tuple(
            (status, Words(answer.get("description") or "OK")) for status, answer in told["responses"].items()
        ),
        samples=tuple(told.get("x-codeSamples", ())),
    )


def _content(message: Mapping[str, Any]) -> Schema:
    """The schema of a body; the first media type speaks for all."""
    contents: Mapping[str, Any] = message.get("content", {})
    found: Schema = next((content["schema"] for content in contents.values()), {})
    return found


def _parameter(schema: Schema, told: Mapping[str, Any]) -> Field:
    return Field(
        told["name"],
        type_of(schema, told["schema"]),
        Words(told.get("description", "") or told["schema"].get("description", "")),
        told.get("required", False),
        told["in"],
    )


def _fields(schema: Schema, told: Schema, before: str = "", depth: int = 0) -> Iterator[Field]:
    """Fields of an object, and below each those of the objects in it: sessions[].title."""
    told = _followed(schema, told)
    required = told.get("required", ())
    for name, field in told.get("properties", {}).items():
        path = f"{before}{name}"
        yield Field(path, type_of(schema, field), _description(schema, field), name in required)
        inside = _followed(schema, field)
        is_list = inside.get("type") == "array"
        if depth < 3:
            yield from _fields(
                schema, inside.get("items", {}) if is_list else inside, f"{path}{'[]' * is_list}.", depth + 1
            )


def _followed(schema: Schema, told: Schema) -> Schema:
    """What a reference means; `allOf` is how a reference gets words of its own."""
    if len(told.get("allOf", ())) == 1:
        told = {**_followed(schema, told["allOf"][0]), **{key: value for key, value in told.items() if key != "allOf"}}
    if "$ref" not in told:
        return told
    found: Schema = schema["components"]["schemas"][told["$ref"].rpartition("/")[2]]
    return _followed(schema, found)


def _description(schema: Schema, told: Schema) -> Words:
    return Words(str(told.get("description", "")) or str(_followed(schema, told).get("description", "")))


def type_of(schema: Schema, told: Schema) -> str:
    """In a few words: 'integer, 1 to 200', 'chat, relay or import', 'list of objects'."""
    found = _followed(schema, told)
    if "enum" in found:
        name = " | ".join(str(value) for value in found["enum"])
    elif found.get("type") == "array":
        name = f"[{type_of(schema, found['items'])}]"
    else:
        name = found.get("format") or found.get("type", "any")
    limits = [f"{word} {found[key]}" for key, word in (("minimum", "≥"), ("maximum", "≤")) if key in found]
    is_null = " | null" if told.get("nullable") or found.get("nullable") else ""
    return " ".join([name, *limits]) + is_null
