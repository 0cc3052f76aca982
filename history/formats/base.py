"""Types shared by all formats: conversation, node, note and format error.

A reader gives what the source says, in entries of ours; it stores nothing and knows no Django. Nodes stand after their
parents (`parent` is a place in the list, None: the start), so that a tree can be written down from first to last. An
entry that names other entries by number (a summary) counts nodes from 1: node 0 is entry 1.

What a source has no ids for gets ids made from what it says (`chain_id`), so that reading the same file twice gives the
same ones, and a file that has grown begins with the ones that are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from history.entries import Entry, nothing
from history.text.lazy import SaidError

NoteLevel = Literal["repaired", "lost", "ignored"]

MOST_NOTES = 1_000


def gettext_noop(text: str) -> str:
    """Marks a sentence that a page will translate; what varies stands beside it (`where`) or is filled in (`Said`)."""
    return text


class FormatError(SaidError):
    """The file cannot be read in the detected format. The text tells the user why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that was repaired, could not be carried or was left out on purpose: what, where, and how often."""

    level: NoteLevel
    what: str
    where: str = ""
    count: int = 1

    @property
    def text(self) -> str:
        times = f" (× {self.count:,})" if self.count > 1 else ""
        return f"{self.what}{times}{f' – {self.where}' if self.where else ''}"


class Notes:
    """Collects notes. The same thing said again is counted; the first place is kept. What varies much is cut short."""

    def __init__(self) -> None:
        self._found: dict[tuple[NoteLevel, str], tuple[str, int]] = {}

    def __call__(self, level: NoteLevel, what: str, *, where: str = "", count: int = 1) -> None:
        if count > 0:
            if len(self._found) >= MOST_NOTES and (level, what) not in self._found:
                what, where = gettext_noop("more of the like"), ""
            first, so_far = self._found.get((level, what), (where, 0))
            self._found[level, what] = (first, so_far + count)

    def as_tuple(self) -> tuple[Note, ...]:
        return tuple(
            Note(level=level, what=what, where=where, count=count)
            for (level, what), (where, count) in self._found.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """One entry of a conversation, after node `parent`. `source_id` is unique within its conversation."""

    entry: Entry
    parent: int | None
    source_id: str

    @property
    def created_at(self) -> datetime:
        return self.entry.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation of a source. `leaf` is the node that it stands at; None: the last one.

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
    updated_at: datetime | None = None
    model: str = ""
    agent: str = ""
    workspace: str = ""
    parent_id: str = ""
    parent_call: str = ""
    metadata: Mapping[str, Any] = field(default_factory=nothing)
    blobs: Mapping[str, bytes] = field(default_factory=nothing)
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableConversation:
    """One conversation of a source that cannot be read; the others can."""

    why: str
    source_id: str = ""
    title: str = ""


def chain_id(before: str, said: str) -> str:
    """An id for what has none: made from what it says and from the id of what came before."""
    return hashlib.sha256(f"{before}\0{said}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
