"""Types shared by all formats: conversation, node, note and format error. Readers import no Django and store nothing.

Nodes come after their parents, so that a tree can be written from first to last. An entry that refers to other entries
by number (a summary) counts nodes from 1: node 0 is entry 1.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from history.entries import Entry, JsonObject, empty_object
from history.text.lazy import LazyTextError, gettext_noop as _

NoteLevel = Literal["repaired", "lost", "ignored"]

MOST_NOTES = 1_000


class FormatError(LazyTextError):
    """The file cannot be read in the detected format. The text tells the user why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    level: NoteLevel
    what: str
    where: str = ""
    count: int = 1


class Notes:
    """Collects notes. Equal notes are counted, with the first place. The number of different notes is limited."""

    def __init__(self) -> None:
        self._found: dict[tuple[NoteLevel, str], Note] = {}

    def __call__(self, level: NoteLevel, what: str, *, where: str = "", count: int = 1) -> None:
        """`what` is a marked text. Variable parts are in `where`, or are values of a `LazyText`."""
        if count > 0:
            if len(self._found) >= MOST_NOTES and (level, what) not in self._found:
                what, where = _("more like this"), ""
            known = self._found.get((level, what)) or Note(level=level, what=what, where=where, count=0)
            self._found[level, what] = replace(known, count=known.count + count)

    def as_tuple(self) -> tuple[Note, ...]:
        return tuple(self._found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """One entry of a conversation, after node `parent`. `source_id` is unique within its conversation."""

    entry: Entry
    parent: int | None
    source_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation of a source. `leaf` is its current node; None means the last one.

    `client` is the product that it comes from; with `source_id` it tells conversations apart. `parent_id` is the source
    id of the conversation that started this one (a subagent), `parent_call` the call that did. `blobs` are the bytes of
    its attachments by their hash.
    """

    source_id: str
    client: str
    nodes: Sequence[SourceNode]
    leaf: int | None = None
    title: str = ""
    created_at: datetime | None = None
    model: str = ""
    agent: str = ""
    workspace: str = ""
    parent_id: str = ""
    parent_call: str = ""
    metadata: JsonObject = field(default_factory=empty_object)
    blobs: Mapping[str, bytes] = field(default_factory=empty_object)
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableConversation:
    """One conversation of a source that cannot be read; the others can."""

    why: str
    source_id: str = ""
    title: str = ""


def chain_id(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
