"""The body of a call: read whole up to a size, unpacked if it came compressed, and looked into once.

It goes on as it came, to the byte. Two things may be taken out or replaced, each by cutting bytes and never by writing
the JSON anew: the field `sessionId`, which is ours, and the model's name where the operator's routes say another one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict

import msgspec
import zstandard

from history.dialects.loose import obj

Receive = Callable[[], Awaitable[Any]]

READ_HERE = ("gzip", "deflate", "zstd")
GZIP = 31  # zlib's word for it
SLICE = 4 * 1024
# Beginning with plain letters: only so the sounds around it are passed over quickly.
_FORM_MODEL = re.compile(rb'name="model"(?:\r\n[^\r\n]+)*\r\n\r\n([^\r\n]{1,200})(?=\r\n)')
# Within a text the quotes would be escaped.
_MODEL_WITHIN = re.compile(rb'("model"\s*:\s*)"((?:[^"\\]|\\/){1,600})"')


class Glance(TypedDict, total=False):
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


_glance = msgspec.json.Decoder(Glance)


class TooLarge(Exception):
    """More than may be sent."""


class Unreadable(Exception):
    """Not what it says it is."""


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
    for word in reversed([word.strip().lower() for word in encoding.split(",")]):
        if word not in ("", "identity"):
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


def glanced_at(body: bytes) -> Mapping[str, Any]:
    """Of the object that it is, the fields of a `Glance`; of what only a more lenient parser reads, all."""
    try:
        return dict(_glance.decode(body))
    except (ValueError, RecursionError):
        return looked_into(body)


def looked_into(body: bytes) -> Mapping[str, Any]:
    """The object that it is; nothing where it is none."""
    try:
        # As a text: given bytes, the parser would first find out which encoding they are, at twice the price.
        return obj(json.loads(body.decode()))
    except (ValueError, RecursionError):
        return {}


def why_without_model(body: bytes) -> str:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError) as error:
        return f"The body of the request cannot be read as JSON ({error})."
    return "you must provide a model parameter" if isinstance(told, dict) else "The request must be a JSON object."


def model_in_form(body: bytes) -> str:
    """Sounds and pictures are sent as forms."""
    found = _FORM_MODEL.search(body)
    return found[1].decode("utf-8", "replace") if found else ""


def without_field(body: bytes, name: str) -> bytes:
    """The same bytes without a top-level field and one comma beside it."""
    for start, end, field, _ in reversed(_fields(body)):
        if field == name:
            before, after = body[:start].rstrip(), body[end:].lstrip()
            if before.endswith(b","):
                body = before[:-1] + after
            else:
                body = before + after.removeprefix(b",")
    return body


def with_model(body: bytes, model: str) -> bytes:
    """The same bytes with another model in them: in a field of the object, or of the form."""
    if body.lstrip()[:1] != b"{":
        found = _FORM_MODEL.search(body)
        return body[: found.start(1)] + model.encode() + body[found.end(1) :] if found else body
    for _, end, field, value_start in reversed(_fields(body)):
        if field == "model":
            body = body[:value_start] + json.dumps(model, ensure_ascii=False).encode() + body[end:]
    return body


def with_model_of_path(body: bytes, model: str, *, instead_of: str) -> bytes:
    """Gemini's address names the model; embeddings and counts name it once more inside, and both must be the same."""

    def named(found: re.Match[bytes]) -> bytes:
        name = found[2].decode("utf-8", "replace").replace("\\/", "/")
        if name.removeprefix("models/") != instead_of:
            return found[0]
        start = "models/" if name != instead_of else ""
        return found[1] + json.dumps(start + model, ensure_ascii=False).encode()

    return _MODEL_WITHIN.sub(named, body)


def _fields(body: bytes) -> list[tuple[int, int, str, int]]:
    """Each top-level field: where it begins and ends, its name, where its value begins. In bytes."""
    text = body.decode("utf-8", "surrogateescape")
    # A number is only passed over, however long: Python would not read one of many thousand digits.
    decoder, found = json.JSONDecoder(parse_int=str), []
    place = _skip(text, _skip(text, 0) + 1)
    while place < len(text) and text[place] == '"':
        name, after_name = decoder.raw_decode(text, place)
        value_start = _skip(text, _skip(text, after_name) + 1)
        _, end = decoder.raw_decode(text, value_start)
        found.append((place, end, name, value_start))
        place = _skip(text, end)
        place = _skip(text, place + 1) if text[place : place + 1] == "," else len(text)
    if text.isascii():
        return found
    return [(_bytes_before(text, a), _bytes_before(text, b), name, _bytes_before(text, c)) for a, b, name, c in found]


def _skip(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t", "\r", "\n"):
        place += 1
    return place


def _bytes_before(text: str, place: int) -> int:
    return len(text[:place].encode("utf-8", "surrogateescape"))
