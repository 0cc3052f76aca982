"""Partial parsing of request bodies: routing fields and references to the vendor.

The parser reports each reference and builds almost nothing of the conversation around it. Each dialect lists the fields
in which a reference can be (`HttpApi.request_fields`), because the same keys in a citation, a tool result or a schema
refer to nothing. In a body that only a lenient parser accepts, everything that looks like a reference counts as one.

Parsers disagree on an object that has the same key twice: most take the last value, some the first, some merge both.
So a body with references is refused if any of its objects has.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from history.dialects import DIALECTS
from history.dialects.json_access import items, string
from history.dialects.references import NAME_FIELDS, REFERENCE_KEYS, CountedText, Reference
from relay.gateway.call.bodies import PeekedFields, Unreadable, fields, read_json
from relay.runtime.parsing import LARGE

LONGEST_KEY = 100
# Top-level fields that are references wherever they occur.
_REFERRING_FIELDS = ("previous_response_id", "conversation")


class _Seen(threading.local):
    """What the parser has called back about, while it reads one body."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.references: list[Reference] = []
        self.has_names = False
        self.counted_texts = 0


_seen = _Seen()


def _noted(kind: type[Any], value: Any) -> Any:
    if kind is CountedText:
        _seen.counted_texts += 1
        return CountedText(string(value))
    _seen.has_names = True
    _seen.references.extend(kind.read(value))
    return kind()


_COMMON_FIELDS: dict[str, Any] = dict.fromkeys(PeekedFields.__annotations__, Any)
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(
        TypedDict("RequestFields", {**_COMMON_FIELDS, **dialect.HTTP_API.request_fields}, total=False),  # type: ignore[operator]
        dec_hook=_noted,
    )
    for name, dialect in DIALECTS.items()
}


def peek_body(body: bytes, dialect: str) -> tuple[Mapping[str, Any], list[Reference]]:
    """The fields of `PeekedFields` and a few more, and what the body refers to, each once. Raises Unreadable.

    A large body belongs into a thread: `relay.runtime.parsing.parse_apart`.
    """
    _seen.begin()
    try:
        asked: dict[str, Any] = dict(_DECODERS[dialect].decode(body))
    except (ValueError, RecursionError):
        return _leniently(body)
    api, found = DIALECTS[dialect].HTTP_API, _seen.references
    found += api.references_in(asked)
    has_lost_type = _seen.counted_texts and _seen.counted_texts != api.count_types(asked)
    if found or _seen.has_names or not asked.keys().isdisjoint(_REFERRING_FIELDS) or has_lost_type:
        _check_unambiguous(body)
    asked.pop(api.conversation_field, None)
    return asked, list(dict.fromkeys(found)) if found else found


def _leniently(body: bytes) -> tuple[Mapping[str, Any], list[Reference]]:
    """Everything that is a reference in any dialect counts as one. Almost nothing of the conversation is built."""
    _seen.begin()
    asked, found, names = dict[str, Any](), _seen.references, Counter[str]()
    try:
        for field in fields(body):
            names[field.name] += 1
            value = body[field.value : field.end]
            kept = read_json(value, _kept_of_object)
            if field.name in NAME_FIELDS:
                _note(field.name, kept)
            else:
                for dialect in DIALECTS.values():
                    found += dialect.HTTP_API.lenient_references(field.name, kept)
            if field.name in PeekedFields.__annotations__ and len(value) <= LARGE:
                asked[field.name] = read_json(value, dict)
    except (ValueError, RecursionError) as error:
        # Nothing is passed on unread: the address may name the model, and the vendor's parser be more lenient still.
        raise Unreadable(f"it is not JSON ({str(error)[:LONGEST_KEY]})") from None
    if (twice := names.most_common(1)) and twice[0][1] > 1:
        raise _ambiguous(twice[0][0])
    return asked, list(dict.fromkeys(found))


def _kept_of_object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
    """Note what an object refers to, and keep what the object around it needs to tell whether it is a reference."""
    made = _object_with_unique_keys(pairs)
    for name in made.keys() & NAME_FIELDS.keys():
        _note(name, made[name])
    return {name: made[name] for name in made.keys() & REFERENCE_KEYS} or None


def _note(name: str, value: Any) -> None:
    for one in items(value) or [value]:
        _seen.references.extend(NAME_FIELDS[name].read(one))


def _check_unambiguous(body: bytes) -> None:
    """Parse the whole body once more. Raises Unreadable where an object has a key twice."""
    try:
        read_json(body, _checked)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON ({str(error)[:LONGEST_KEY]})") from None


def _checked(pairs: list[tuple[str, Any]]) -> None:
    _object_with_unique_keys(pairs)


def _object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise _ambiguous(twice)
    return made


def _ambiguous(name: str) -> Unreadable:
    return Unreadable(f"an object has the key '{name[:LONGEST_KEY]}' twice; send each key once")
