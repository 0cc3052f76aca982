"""Request bodies: reading up to a size limit, routing fields, references to what the vendor stores.

The parser reports each reference and builds almost nothing of the conversation around it. Each dialect lists the fields
in which a reference can be (`HttpApi.request_fields`), because the same keys in a citation, a tool result or a schema
refer to nothing. In a body that only a lenient parser accepts, every possible reference counts.

Parsers disagree on an object that has the same key twice, so a body with references is refused if any object has.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypedDict

import msgspec

from history.dialects import DIALECTS
from history.dialects.json_access import items, obj, string
from history.dialects.references import NAME_FIELDS, REFERENCE_KEYS, CountedText, Reference
from history.entries import JsonObject
from relay.gateway.call.json_scanner import Unreadable, fields
from relay.runtime.asgi import Receive
from relay.runtime.event_loop import LARGE

LONGEST_KEY = 100
# In the text of all dialects. Within a text the quotes would be escaped.
_MOST_OUTPUT = re.compile(rb'"max(?:_completion_tokens|_output_tokens|_tokens|OutputTokens)"\s*:\s*(\d{1,9})')
_REFERRING_FIELDS = ("previous_response_id", "conversation")  # top-level fields that are references wherever they occur


Value = Any  # msgspec takes `object` for a type of its own


class PeekedFields(TypedDict, total=False):
    """The fields that the relay reads of every body. A conversation of megabytes is skipped unparsed."""

    model: Value
    stream: Value
    sessionId: Value
    metadata: Value
    litellm_session_id: Value
    session_id: Value
    conversation_id: Value
    previous_response_id: Value
    conversation: Value
    stream_options: Value


_peeker = msgspec.json.Decoder(PeekedFields)
Pairs = list[tuple[str, object]]


class TooLarge(Exception):
    """Larger than the limit."""


class ClientGone(Exception):
    """The client has disconnected."""


async def read_body(receive: Receive, *, limit: int) -> bytes:
    pieces, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise TooLarge
        pieces.append(piece)
        more = message.get("more_body", False)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def peek_model(body: bytes) -> str:
    """The `model` of a JSON object, also of one that only a lenient parser accepts; empty for other values."""
    with suppress(ValueError, RecursionError):
        return string(_peeker.decode(body).get("model"))
    with suppress(Unreadable, ValueError, RecursionError):
        models = [body[field.value : field.end] for field in fields(body) if field.name == "model"]
        return string(read_json(models[-1], dict)) if models else ""
    return ""


def most_output_tokens(body: bytes) -> int | None:
    """The most tokens that the answer may have. The largest number counts; None if the request names none."""
    return max(map(int, _MOST_OUTPUT.findall(body)), default=None)


def parse_object(body: bytes) -> JsonObject:
    """The JSON object; an empty one if it is not one."""
    try:
        return obj(read_json(body, dict))
    except (ValueError, RecursionError):
        return {}


def read_json(body: bytes, make: Callable[[Pairs], object]) -> Any:
    """JSON as Python reads it, NaN included. `make` gets the pairs of each object, also those with the same name.

    For a large body it is called through a Python function, because threads switch only between two of those.
    """

    def make_object(pairs: Pairs) -> object:
        return make(pairs)

    is_large = len(body) > LARGE
    # As text: given bytes, the parser detects their encoding first, which takes as long again.
    return json.loads(body.decode(), object_pairs_hook=make_object if is_large or make is not dict else None)


def explain_missing_model(body: bytes) -> str:
    is_object = object()
    try:
        parsed = read_json(body, lambda pairs: is_object)
    except (ValueError, RecursionError) as error:
        return f"The request body is not valid JSON ({error})."
    return "you must provide a model parameter" if parsed is is_object else "The request must be a JSON object."


class _Report(threading.local):
    """What the parser has reported of one body."""

    def begin(self) -> None:
        self.references: list[Reference] = []
        self.has_names = False
        self.counted_texts = 0


_report = _Report()


def _note_value(kind: type[Any], value: object) -> object:
    if kind is CountedText:
        _report.counted_texts += 1
        return CountedText(string(value))
    _report.has_names = True
    _report.references.extend(kind.read(value))
    return kind()


_COMMON_FIELDS: dict[str, Value] = dict.fromkeys(PeekedFields.__annotations__, Value)
_DECODERS: dict[str, msgspec.json.Decoder[dict[str, object]]] = {
    name: msgspec.json.Decoder(
        TypedDict("RequestFields", {**_COMMON_FIELDS, **dialect.HTTP_API.request_fields}, total=False),  # type: ignore[operator]
        dec_hook=_note_value,
    )
    for name, dialect in DIALECTS.items()
}


def peek_body(body: bytes, dialect: str) -> tuple[JsonObject, list[Reference]]:
    """The `PeekedFields` and a few more, and each reference once. Raises Unreadable."""
    _report.begin()
    try:
        peeked = dict(_DECODERS[dialect].decode(body))
    except (ValueError, RecursionError):
        return _leniently(body)
    api, found = DIALECTS[dialect].HTTP_API, _report.references
    found += api.references_in(peeked)
    has_lost_type = _report.counted_texts and _report.counted_texts != api.count_types(peeked)
    if found or _report.has_names or not peeked.keys().isdisjoint(_REFERRING_FIELDS) or has_lost_type:
        _check_unambiguous(body)
    peeked.pop(api.conversation_field, None)
    return peeked, list(dict.fromkeys(found)) if found else found


def _leniently(body: bytes) -> tuple[JsonObject, list[Reference]]:
    """Everything that is a reference in any dialect counts as one."""
    _report.begin()
    peeked, found, names = dict[str, object](), _report.references, Counter[str]()
    try:
        for field in fields(body):
            names[field.name] += 1
            value = body[field.value : field.end]
            reduced = read_json(value, _reduce_object)
            if field.name in NAME_FIELDS:
                _note(field.name, reduced)
            else:
                for dialect in DIALECTS.values():
                    found += dialect.HTTP_API.lenient_references(field.name, reduced)
            if field.name in PeekedFields.__annotations__ and len(value) <= LARGE:
                peeked[field.name] = read_json(value, dict)
    except (ValueError, RecursionError) as error:
        # Unread bodies are not passed on: the URL may name the model, and the vendor's parser be more lenient still.
        raise Unreadable(f"it is not valid JSON ({str(error)[:LONGEST_KEY]})") from None
    if (twice := names.most_common(1)) and twice[0][1] > 1:
        raise _ambiguous(twice[0][0])
    return peeked, list(dict.fromkeys(found))


def _reduce_object(pairs: Pairs) -> dict[str, object] | None:
    """Note the references of an object, and keep the keys by which the enclosing object recognises a reference."""
    made = _object_with_unique_keys(pairs)
    for name in made.keys() & NAME_FIELDS.keys():
        _note(name, made[name])
    return {name: made[name] for name in made.keys() & REFERENCE_KEYS} or None


def _note(name: str, value: object) -> None:
    for one in items(value) or [value]:
        _report.references.extend(NAME_FIELDS[name].read(one))


def _check_unambiguous(body: bytes) -> None:
    """Parse the whole body again. Raises Unreadable if an object has a key twice."""
    try:
        read_json(body, _check_keys)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not valid JSON ({str(error)[:LONGEST_KEY]})") from None


def _check_keys(pairs: Pairs) -> None:
    _object_with_unique_keys(pairs)


def _object_with_unique_keys(pairs: Pairs) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise _ambiguous(twice)
    return made


def _ambiguous(name: str) -> Unreadable:
    return Unreadable(f"an object has the key '{name[:LONGEST_KEY]}' twice; send each key once")
