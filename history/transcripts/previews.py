"""Previews of entries: long texts are cut, with their full length.

A reader must see that a tool printed ten megabytes without waiting for them. So the beginning of a blob
is cut by the database, and the rest never leaves it. Texts are also made printable here: NUL and lone surrogates, which
the record keeps and no page can show, become U+FFFD. That leaves NUL free to mark where a text was cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import BinaryField
from django.db.models.functions import Substr

from history.context import dropped_entry
from history.db.packing import blobs_in, clean, dump, load, unpack
from history.entries import Entry, ToolsOffered
from history.models import Blob, Message

BLOB_BYTES = 80_000
MISSING = "\ufffd".encode()  # a blob that is not there is for `verify` to complain of; the page goes on
_CUT = "\0"


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of a text; `chars` or `bytes` is the length of the whole, where there is more."""

    text: str
    chars: int = 0
    bytes: int = 0

    @property
    def is_cut(self) -> bool:
        return bool(self.chars or self.bytes)


def preview(text: str, limit: int) -> Preview:
    """At most `limit` characters of a text out of `entries_in_brief`."""
    head, cut, size = text.partition(_CUT)
    if cut:
        return Preview(head[:limit], bytes=int(size.split("\n", 1)[0]))
    return Preview(text[:limit], chars=len(text)) if len(text) > limit else Preview(text)


def entries_in_brief(messages: Sequence[Message]) -> list[Entry]:
    """Like `selectors.entries_of`, but bounded: meant for `preview`, not for a model."""
    names = {name for message in messages if message.body is not None for name in blobs_in(message.body)}
    starts = _starts(names) if names else {}
    return [_entry(message, starts) for message in messages]


def _entry(message: Message, starts: Mapping[str, bytes]) -> Entry:
    if message.body is None:
        return dropped_entry(message.kind, at=message.created_at)
    if message.kind == ToolsOffered.kind:  # half of their JSON is of no use; `content` has the names
        return ToolsOffered(at=message.created_at)
    return unpack(_printable(message.body), starts)


def _starts(names: set[str]) -> dict[str, bytes]:
    rows = (
        Blob.objects.filter(pk__in=names)
        .annotate(start=Substr("data", 1, BLOB_BYTES, output_field=BinaryField()))
        .values_list("sha256", "start", "size")
    )
    found = {name: _marked(bytes(start), size) for name, start, size in rows}
    return dict.fromkeys(names, MISSING) | found


def _marked(start: bytes, size: int) -> bytes:
    text = clean(start.decode("utf-8", "ignore"))
    return (f"{text}{_CUT}{size}" if size > len(start) else text).encode()


def _printable(body: str) -> str:
    return dump(_clean(load(body))) if "\\u" in body else body


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value
