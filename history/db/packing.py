"""Packing of entries into rows: JSON bodies, with long texts in blobs.

The body is JSON text, not a JSON column: what was sealed is stored byte for byte, while PostgreSQL's jsonb refuses NUL
and lone surrogates and forgets the order of keys. Long strings move to blobs, so that rows stay small, and `{"$blob":
<hash>}` replaces them. System prompts and tool definitions move early, because agents repeat them.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice
from typing import Any

from history.entries import Entry, JsonObject, Media, SystemInstructionSet, ToolsOffered, entry_to_json, read_entry

LONG_TEXT = 65_536
LONG_STATE = 1_024
MAX_ENTRY_CHARS = 64 * 1024 * 1024
METADATA_VALUE_CHARS = 4_096

_SURROGATE = re.compile("[\ud800-\udfff]")
_BLOB = re.compile(r'"\$(?:json_)?blob":"([0-9a-f]{64})"')
Blobs = Mapping[str, bytes | memoryview]


class EntryTooLarge(ValueError):
    """The entry exceeds the limit. Store the payload as an attachment, or cut it."""


class MissingBlob(LookupError):
    """A body refers to a blob that is not stored."""


class _Reference(dict[str, str]):
    """A reference of ours, not a text that looks like one."""


@dataclass(frozen=True, slots=True)
class Packed:
    body: str
    blobs: Mapping[str, bytes]  # to be stored: hash → bytes
    attachments: frozenset[str]  # must be stored already


def pack(entry: Entry) -> Packed:
    value = entry_to_json(entry)
    limit = LONG_STATE if isinstance(entry, SystemInstructionSet | ToolsOffered) else LONG_TEXT
    blobs: dict[str, bytes] = {}
    # Long texts go to blobs first: as a part of the body they would only be copied.
    long_chars = _long_chars(value, limit)
    body = dump(_spilled(value, limit, blobs) if long_chars else value)
    if (size := len(body) + long_chars) > MAX_ENTRY_CHARS:
        raise EntryTooLarge(f"an entry can have up to {MAX_ENTRY_CHARS:,} characters; this one has {size:,}")
    if isinstance(entry, ToolsOffered) and entry.tools and size > limit:
        blobs.clear()
        value["tools"] = _Reference({"$json_blob": _keep(dump(value["tools"]), blobs)})
        body = dump(_spilled(value, limit, blobs))
    elif not long_chars and '"$' in body:
        body = dump(_spilled(value, limit, blobs))
    return Packed(body, blobs, attachments_of(entry))


def _long_chars(value: object, limit: int) -> int:
    if isinstance(value, str):
        return len(value) if len(value) > limit else 0
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(_long_chars(item, limit) for item in items)


def blobs_in(body: str) -> list[str]:
    return _BLOB.findall(body) if '"$' in body else []


def unpack(body: str, blobs: Blobs) -> Entry:
    """The entry of a body. An unreadable one is an UnknownEntry, never an error."""
    value = json.loads(body)
    return read_entry(restore(value, blobs) if '"$' in body else value)


def pack_inputs(inputs: JsonObject) -> tuple[Any, dict[str, bytes]]:
    """The inputs of a call as JSON for a column, with long texts in blobs."""
    blobs: dict[str, bytes] = {}
    return _spilled(clean_deep(inputs), LONG_STATE, blobs), blobs


_as_given = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def dump(value: object, *, sort_keys: bool = False) -> str:
    """JSON text for any database: compact, not ASCII-only, with lone surrogates escaped."""
    text = (_sorted if sort_keys else _as_given)(value)
    return text if text.isascii() else _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def clean(text: str) -> str:
    """Text for any database: NUL and lone surrogates become U+FFFD. The body keeps the original."""
    if text.isascii():
        return text.replace("\0", "\ufffd")
    if _SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def clean_json(value: Any) -> Any:
    """Metadata for a JSON column: clean, finite and short. The body has the whole values."""
    return clean_deep(value, text_chars=METADATA_VALUE_CHARS, key_chars=200, items=100)


def clean_deep(value: Any, **limits: int) -> Any:
    """A whole JSON value for any database, or as much of it as the limits allow."""
    if isinstance(value, str):
        return clean(value[: limits.get("text_chars")])
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        items = islice(value.items(), limits.get("items"))
        return {clean(str(key)[: limits.get("key_chars")]): clean_deep(item, **limits) for key, item in items}
    if isinstance(value, list | tuple):
        return [clean_deep(item, **limits) for item in value[: limits.get("items")]]
    return value


def _keep(text: str, blobs: dict[str, bytes]) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    name = sha256(raw).hexdigest()
    blobs[name] = raw
    return name


def _spilled(value: Any, limit: int, blobs: dict[str, bytes]) -> Any:
    if isinstance(value, str):
        return value if len(value) <= limit else {"$blob": _keep(value, blobs)}
    if isinstance(value, list):
        return [_spilled(item, limit, blobs) for item in value]
    if isinstance(value, dict):
        if isinstance(value, _Reference):
            return value
        # Keys that begin with a dollar sign are ours; those of others get one more.
        return {f"${key}" if key.startswith("$") else key: _spilled(item, limit, blobs) for key, item in value.items()}
    return value


def restore(value: Any, blobs: Blobs) -> Any:
    """The value with the texts of its blobs, the inverse of `_spilled`."""
    if isinstance(value, list):
        return [restore(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    if "$blob" in value:
        return _text_of(value["$blob"], blobs)
    if "$json_blob" in value:
        return json.loads(_text_of(value["$json_blob"], blobs))
    return {key[key.startswith("$$") :]: restore(item, blobs) for key, item in value.items()}


def _text_of(name: str, blobs: Blobs) -> str:
    try:
        return bytes(blobs[name]).decode("utf-8", "surrogatepass")
    except KeyError:
        raise MissingBlob(f"the blob {name} is missing") from None


def attachments_of(entry: Entry) -> frozenset[str]:
    return frozenset(media.sha256 for media in media_of(entry) if media.sha256)


def media_of(entry: Entry) -> Iterator[Media]:
    parts = chain(entry.parts, *(result.parts for result in entry.results))
    return (part for part in parts if isinstance(part, Media))
