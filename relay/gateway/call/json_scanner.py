"""JSON bodies as bytes: find and cut top-level fields without parsing, and estimate their memory.

A body of megabytes is passed on as it came. Two things may be removed or replaced, each by cutting bytes: the field
`sessionId`, which is ours, and the model's name if a route says another one.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from relay.runtime.event_loop import LARGE

SLICE = 4 * 1024
# Vendors have some hundred top-level fields, and their forms some dozen.
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


class Unreadable(Exception):
    """Not in the format that it claims."""


class NotAnObject(Unreadable):
    """Not a JSON object."""


class Field(NamedTuple):
    """Byte positions of a top-level field and of its value."""

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
                if body[place : place + 1] != b"}" or _after_space(body, place + 1) != len(body):
                    raise NotAnObject("the body is not a JSON object")
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


def _after_space(body: bytes, place: int) -> int:
    return _end_of(_SPACE, body, place)


def _end_of(pattern: re.Pattern[bytes], body: bytes, place: int) -> int:
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
    """The end of an object or a list. Single brackets are counted only in a slice that may close the last one."""
    depth = 0
    for start, piece in _slices(body, place):
        unpaired = _unpaired_brackets(piece)
        if depth > unpaired.count(b"}"):
            depth += unpaired.count(b"{") - unpaired.count(b"}")
            continue
        for token in _STRING_OR_BRACKET.finditer(piece):
            depth += (step := _DEPTH.get(token[0], 0))
            if step and not depth:
                return start + token.end()
    raise IndexError("unclosed")


def _slices(body: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Each with its place, and only with whole strings: one that is longer than a slice is left out."""
    while place < len(body):
        found = _WHOLE_STRINGS.match(body[place : place + SLICE])
        if found and found.end():
            yield place, found[0]
            place += found.end()
        else:
            place = _string_end(body, place)


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
    with contextlib.suppress(IndexError):
        for _, piece in _slices(body, 0):
            yield _STRING.sub(b"", piece)


def _string_end(body: bytes, place: int) -> int:
    place += 1
    while True:
        found = _IN_STRING.match(body, place, place + LARGE)
        end = found.end() if found else place
        if body[end] == _QUOTE:
            return end + 1
        if end == place:
            raise IndexError("an escape at the very end")
        place = end


def without_field(body: bytes, name: str) -> bytes:
    """The body without a top-level field and the comma beside it. Raises Unreadable."""
    all_fields = list(fields(body))
    pieces, place = [], 0
    is_first = True
    for at, field in enumerate(all_fields):
        if field.name != name:
            is_first = False
            continue
        # With the comma before it, or else with the comma behind it.
        start = field.start if is_first else all_fields[at - 1].end
        end = field.end if not is_first or at + 1 == len(all_fields) else all_fields[at + 1].start
        pieces.append(body[place : max(place, start)])
        place = end
    pieces.append(body[place:])
    return b"".join(pieces)


def with_model(body: bytes, model: str) -> bytes:
    """The body with another model, in a field of the JSON object or of the form. Raises Unreadable."""
    opening = _after_space(body, 0)
    if body[opening : opening + 1] != b"{":
        span = _model_span(body)
        return body[: span[0]] + model.encode() + body[span[1] :] if span else body
    encoded, pieces, place = json.dumps(model, ensure_ascii=False).encode(), [], 0
    for field in fields(body):
        if field.name == "model":
            pieces += [body[place : field.value], encoded]
            place = field.end
    return b"".join([*pieces, body[place:]])


def with_model_of_path(body: bytes, model: str, *, instead_of: str) -> bytes:
    """Gemini's URL names the model. Embeddings and counts name it again in the body, and both must be equal."""

    def named(found: re.Match[bytes]) -> bytes:
        name = found[2].decode("utf-8", "replace").replace("\\/", "/")
        if name.removeprefix("models/") != instead_of:
            return found[0]
        start = "models/" if name != instead_of else ""
        return found[1] + json.dumps(start + model, ensure_ascii=False).encode()

    return _MODEL_WITHIN.sub(named, body)


def model_in_form(body: bytes) -> str:
    """Calls with audio or images are sent as forms."""
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


# Memory. A body of 8 MB of tiny objects takes some hundred megabytes as Python objects. What counts is its structure:
# lists and objects, each of which may become an entry, and the values in them.

# Measured with tracemalloc: a message of one letter takes 4,200 bytes until it is stored, as parsed JSON, as an entry
# and as rows. A list or an object within a message takes 80 to 500.
BYTES_PER_ENTRY = 2_500
BYTES_PER_CONTAINER = 1_700
BYTES_PER_VALUE = 170
COPIES_OF_TEXT = 3
# docs/settings.md: digestion stays below 64 MB with the default of PARLEY_MAX_DIGEST_MB.
MEMORY_PER_BYTE = 8
SHORT_EVENT = 64 * 1024  # shorter events of a stream are not checked: each is parsed alone
# Each entry of a conversation has one of these. Within a string the quotes are escaped.
ENTRIES = (b'"role"', b'_call"', b'_output"')


def is_too_heavy(body: bytes, *, most: int) -> bool:
    """Whether parsing a body takes more memory than a text of `most` bytes may take."""
    return memory_of(body) > MEMORY_PER_BYTE * most


def is_reply_too_heavy(reply: bytes, *, most: int) -> bool:
    """The same of a reply, which may be a stream of events."""
    if reply.lstrip()[:1] in (b"{", b"["):
        return is_too_heavy(reply, most=most)
    return any(is_too_heavy(line, most=most) for line in reply.split(b"\n") if len(line) > SHORT_EVENT)


def memory_of(body: bytes) -> int:
    """An upper estimate in bytes."""
    # Nearly every body is light even if the brackets and commas in its texts are counted.
    estimate = _structure(body)
    if estimate > COPIES_OF_TEXT * len(body):
        estimate = sum(map(_structure, outside_strings(body)))
    entries = sum(map(body.count, ENTRIES))
    return COPIES_OF_TEXT * len(body) + BYTES_PER_ENTRY * entries + estimate


def _structure(text: bytes) -> int:
    return BYTES_PER_CONTAINER * (text.count(b"{") + text.count(b"[")) + BYTES_PER_VALUE * text.count(b",")
