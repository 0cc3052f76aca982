"""Request bodies: reading up to a size limit, decompression, partial parsing.

It goes on as it came, to the byte. Two things may be taken out or replaced, each by cutting bytes and never by writing
the JSON anew: the field `sessionId`, which is ours, and the model's name where the operator's routes say another one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

import msgspec
import zstandard

from history.dialects.json_access import obj
from relay.runtime.parsing import LARGE

Receive = Callable[[], Awaitable[Any]]

READ_HERE = ("gzip", "deflate", "zstd")
MOST_ENCODINGS = 3
GZIP = 31  # zlib's word for it
SLICE = 4 * 1024
# Vendors know some hundred top-level fields, and their forms some dozen.
MOST_FIELDS = 1_000
MOST_FORM_PARTS = 1_000
MOST_MODEL_BYTES = 600

# The scanners below read JSON in slices: a regex over all of 64 MB would keep Python's lock for most of a second.
# Possessive quantifiers (`++`, `*+`) never backtrack, so each byte is looked at a fixed number of times.
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SCALAR = re.compile(rb"[^,\]}\s]*+")
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WHOLE_STRINGS = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_QUOTE, _COMMA = b'",'
_OPENING = b"{["
_DEPTH = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
# Leaves the brackets of a text, all as curly ones.
_CURLY = bytes.maketrans(b"[]", b"{}")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_PAIRED = 8
# Within a text the quotes would be escaped.
_MODEL_WITHIN = re.compile(rb'("model"\s*+:\s*+)"((?:[^"\\]|\\/){1,%d}+)"' % MOST_MODEL_BYTES)


class PeekedFields(TypedDict, total=False):
    """The fields that carrying a call takes an interest in. A conversation of megabytes is passed over unread."""

    model: Any
    stream: Any
    sessionId: Any
    metadata: Any
    litellm_session_id: Any
    session_id: Any
    conversation_id: Any
    previous_response_id: Any
    conversation: Any
    stream_options: Any


_glance = msgspec.json.Decoder(PeekedFields)


class TooLarge(Exception):
    """More than may be sent."""


class Unreadable(Exception):
    """Not what it says it is."""


class NotAnObject(Unreadable):
    """Not a JSON object."""


class UnknownEncoding(Exception):
    """Compressed in a way that is not read here."""


class ClientGone(Exception):
    """Nobody waits for an answer any more."""


async def read(receive: Receive, *, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    first: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return _within(first, limit)
    return await _rest(receive, [first], limit)


async def _rest(receive: Receive, pieces: list[bytes], limit: int) -> bytes:
    size, more = len(pieces[0]), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise TooLarge
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise TooLarge
    return body


def unpacked(body: bytes, encoding: str, *, limit: int) -> bytes:
    """As it was before it was compressed. A small body that would become a huge one stops at the limit."""
    words = [word for word in (word.strip().lower() for word in encoding.split(",")) if word not in ("", "identity")]
    if len(words) > MOST_ENCODINGS:
        raise Unreadable(f"it is compressed more than {MOST_ENCODINGS} times")
    for word in reversed(words):
        body = _unpacked(body, word, limit)
    return body


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    try:
        if encoding == "zstd":
            unpacking = zstandard.ZstdDecompressor(max_window_size=2**27)
            with unpacking.stream_reader(body, read_across_frames=True) as reader:
                return _within(reader.read(limit + 1), limit)
        if encoding in ("gzip", "x-gzip", "deflate"):
            return _inflated(body, limit, wbits=_wbits(body, encoding))
    except (zlib.error, zstandard.ZstdError) as error:
        raise Unreadable(f"the body is not {encoding} ({error})") from None
    raise UnknownEncoding(encoding)


def _wbits(body: bytes, encoding: str) -> int:
    """What is called deflate comes with a header or, from some, without."""
    if encoding != "deflate":
        return GZIP
    return 15 if len(body) > 1 and body[0] & 0x0F == 8 and (body[0] * 256 + body[1]) % 31 == 0 else -15


def _inflated(body: bytes, limit: int, *, wbits: int) -> bytes:
    """A gzip may have several members, one behind the other. In slices, because zlib copies all that follows a member:
    with many small ones that would be the whole body for each of them."""
    whole, inflating = bytearray(), zlib.decompressobj(wbits)
    for start in range(0, len(body), SLICE):
        rest = body[start : start + SLICE]
        while rest and not (inflating.eof and wbits != GZIP):
            if inflating.eof:
                if not (rest := rest.lstrip(b"\0")):
                    break
                inflating = zlib.decompressobj(wbits)
            whole += inflating.decompress(rest, limit + 1 - len(whole))
            if len(whole) > limit:
                raise TooLarge
            rest = inflating.unused_data
    if not inflating.eof:
        raise Unreadable("the compressed body is cut off")
    return bytes(whole)


# What it says.


def peek_fields(body: bytes) -> Mapping[str, Any]:
    """Of the object that it is, the fields of a `PeekedFields`; of what only a more lenient parser reads, all."""
    try:
        return dict(_glance.decode(body))
    except (ValueError, RecursionError):
        return peek_fields_leniently(body)


def peek_fields_leniently(body: bytes) -> Mapping[str, Any]:
    """The same of what only a more lenient parser reads. Nothing else is built, so that little is to be thrown away."""
    asked = {}
    try:
        for field in fields(body):
            if field.name in PeekedFields.__annotations__ and field.end - field.value <= LARGE:
                asked[field.name] = read_json(body[field.value : field.end], dict)
    except (Unreadable, ValueError, RecursionError):
        return {}
    return asked


def parse_object(body: bytes) -> Mapping[str, Any]:
    """The object that it is; nothing where it is none."""
    try:
        return obj(read_json(body, dict))
    except (ValueError, RecursionError):
        return {}


def read_json(body: bytes, make: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    """JSON as Python reads it, NaN included. `make` gets the pairs of each object, also those with the same name.

    For a large body it is called through a Python function: only between two of those do other threads get their turn.
    """

    def make_object(pairs: list[tuple[str, Any]]) -> Any:
        return make(pairs)

    is_large = len(body) > LARGE
    # As a text: given bytes, the parser would first find out which encoding they are, at twice the price.
    return json.loads(body.decode(), object_pairs_hook=make_object if is_large or make is not dict else None)


def why_without_model(body: bytes) -> str:
    try:
        told = read_json(body, _forgotten)
    except (ValueError, RecursionError) as error:
        return f"The body of the request cannot be read as JSON ({error})."
    return "you must provide a model parameter" if told is _OBJECT else "The request must be a JSON object."


_OBJECT = object()


def _forgotten(pairs: list[tuple[str, Any]]) -> object:
    return _OBJECT


def model_in_form(body: bytes) -> str:
    """Sounds and pictures are sent as forms."""
    span = _model_span(body)
    return body[slice(*span)].decode("utf-8", "replace") if span else ""


def _model_span(body: bytes) -> tuple[int, int] | None:
    """Start and end of the value of the form field `model`. The first line of a form is the delimiter of its parts."""
    start = body.find(b"--", 0, 4)
    end = body.find(b"\r\n", start, start + 200)
    if start < 0 or end < 0:
        return None
    delimiter = body[start:end]
    place = end
    for _ in range(MOST_FORM_PARTS):
        next_part = body.find(b"\r\n" + delimiter, place)
        if next_part < 0:
            return None
        head_end = body.find(b"\r\n\r\n", place, next_part)
        if head_end >= 0 and b'name="model"' in body[place:head_end]:
            value = head_end + 4
            is_a_name = 0 < next_part - value <= MOST_MODEL_BYTES and b"\n" not in body[value:next_part]
            return (value, next_part) if is_a_name else None
        place = next_part + 2 + len(delimiter)
    return None


def without_field(body: bytes, name: str) -> bytes:
    """The same bytes without a top-level field and one comma beside it. Raises Unreadable."""
    all_fields = list(fields(body))
    kept, place = [], 0
    is_first = True
    for at, field in enumerate(all_fields):
        if field.name != name:
            is_first = False
            continue
        # With the comma before it; without one before it, with the comma behind.
        start = field.start if is_first else all_fields[at - 1].end
        end = field.end if not is_first or at + 1 == len(all_fields) else all_fields[at + 1].start
        kept.append(body[place : max(place, start)])
        place = end
    kept.append(body[place:])
    return b"".join(kept)


def with_model(body: bytes, model: str) -> bytes:
    """The same bytes with another model in them: in a field of the object, or of the form. Raises Unreadable."""
    opening = _after_space(body, 0)
    if body[opening : opening + 1] != b"{":
        span = _model_span(body)
        return body[: span[0]] + model.encode() + body[span[1] :] if span else body
    written, kept, place = json.dumps(model, ensure_ascii=False).encode(), [], 0
    for field in fields(body):
        if field.name == "model":
            kept += [body[place : field.value], written]
            place = field.end
    return b"".join([*kept, body[place:]])


def with_model_of_path(body: bytes, model: str, *, instead_of: str) -> bytes:
    """Gemini's address names the model; embeddings and counts name it once more inside, and both must be the same."""

    def named(found: re.Match[bytes]) -> bytes:
        name = found[2].decode("utf-8", "replace").replace("\\/", "/")
        if name.removeprefix("models/") != instead_of:
            return found[0]
        start = "models/" if name != instead_of else ""
        return found[1] + json.dumps(start + model, ensure_ascii=False).encode()

    return _MODEL_WITHIN.sub(named, body)


class Field(NamedTuple):
    """Where a top-level field begins and ends, and where its value begins. In bytes."""

    name: str
    start: int
    value: int
    end: int


def fields(body: bytes) -> Iterator[Field]:
    """Each top-level field of a JSON object, without building its value. Raises Unreadable."""
    try:
        place = _after_space(body, 0)
        if body[place] != _OPENING[0]:
            raise NotAnObject("the body is not a JSON object")
        place = _after_space(body, place + 1)
        for _ in range(MOST_FIELDS + 1):
            if body[place] != _QUOTE:
                _check_end(body, place)
                return
            name_end = _string_end(body, place)
            value = _after_space(body, _after_space(body, name_end) + 1)
            end = _value_end(body, value)
            yield Field(json.loads(body[place:name_end].decode("utf-8", "surrogateescape")), place, value, end)
            place = _after_space(body, end)
            if body[place] == _COMMA:
                place = _after_space(body, place + 1)
    except (IndexError, ValueError):
        raise NotAnObject("the body is not a JSON object") from None
    raise Unreadable(f"it has more than {MOST_FIELDS} top-level fields")


def _check_end(body: bytes, place: int) -> None:
    if body[place : place + 1] != b"}" or _after_space(body, place + 1) != len(body):
        raise NotAnObject("the body is not a JSON object")


def _after_space(body: bytes, place: int) -> int:
    return _end_of(_SPACE, body, place)


def _end_of(pattern: re.Pattern[bytes], body: bytes, place: int) -> int:
    """Where a run of such bytes ends."""
    while (found := pattern.match(body, place, place + LARGE)) and found.end() == place + LARGE:
        place += LARGE
    return found.end() if found else place


def _value_end(body: bytes, place: int) -> int:
    if body[place] == _QUOTE:
        return _string_end(body, place)
    if body[place] not in _OPENING:
        return _end_of(_SCALAR, body, place)
    return _brackets_end(body, place)


def _brackets_end(body: bytes, place: int) -> int:
    """The end of an object or a list. Brackets are looked at one by one only in a slice that may close the last."""
    depth = 0
    while place < len(body):
        piece = body[place : place + SLICE]
        found = _WHOLE_STRINGS.match(piece)
        size = found.end() if found else 0
        if not size:  # a string that is longer than the slice
            place = _string_end(body, place)
            continue
        unpaired = _unpaired_brackets(piece[:size])
        if depth > unpaired.count(b"}"):
            depth += unpaired.count(b"{") - unpaired.count(b"}")
        else:
            for token in _STRING_OR_BRACKET.finditer(piece, 0, size):
                depth += (step := _DEPTH.get(token[0], 0))
                if step and not depth:
                    return place + token.end()
        place += size
    raise IndexError("unclosed")


def _unpaired_brackets(piece: bytes) -> bytes:
    """The brackets of a slice without those that close within it, a few levels deep. Pairs do not change the depth."""
    left = _STRING.sub(b"", piece).translate(_CURLY, _NO_BRACKETS)
    for _ in range(_PAIRED):
        if b"{}" not in left:
            break
        left = left.replace(b"{}", b"")
    return left


def outside_strings(body: bytes) -> Iterator[bytes]:
    """A JSON text without its strings, in slices. Ends before a string that is not closed."""
    place = 0
    while place < len(body):
        piece = body[place : place + SLICE]
        found = _WHOLE_STRINGS.match(piece)
        if not found or not found.end():  # a string that is longer than the slice
            try:
                place = _string_end(body, place)
            except IndexError:
                return
            continue
        yield _STRING.sub(b"", piece[: found.end()])
        place += found.end()


def _string_end(body: bytes, place: int) -> int:
    """The place behind the string that begins here."""
    place += 1
    while True:
        found = _IN_STRING.match(body, place, place + LARGE)
        end = found.end() if found else place
        if body[end] == _QUOTE:
            return end + 1
        if end == place:
            raise IndexError("an escape at the very end")
        place = end
