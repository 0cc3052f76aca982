"""Rows that verification reads, blob checks, and removals recorded in the audit chain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from history.models import AuditEvent, Blob, Message, Session

PAGE = 500
PAGE_CHARS = 4_000_000  # of bodies, about, that are in memory at a time


class MessageRow(NamedTuple):
    """The columns of one message, in the order in which they are read."""

    id: int
    seq: int
    parent_seq: int
    on_path: bool
    moved_head: bool
    body: str | None
    salt: bytes | None
    digest: bytes
    seal: bytes
    fingerprint: bytes
    dropped_at: datetime | None
    kind: str
    is_state: bool
    role: str
    content: str
    content_chars: int
    agent: str
    is_internal: bool
    created_at: datetime
    metadata: Any
    provider: str
    model: str
    status: str
    end_reason: str
    input_tokens: int
    output_tokens: int
    usage_source: str
    latency: float | None
    duration: float | None
    request_id: str


def pages_of(session: Session) -> Iterator[list[MessageRow]]:
    """The entries that the session knew of when it was read, oldest first; short pages where texts are long."""
    last, size = 0, 100
    entries = Message.objects.in_order(session)
    while rows := [
        MessageRow._make(row) for row in entries.filter(seq__gt=last).values_list(*MessageRow._fields)[:size]
    ]:
        yield rows
        last = rows[-1].seq
        if last >= session.version:
            return
        mean = sum(len(row.body or "") + len(row.content) for row in rows) // len(rows) + 1
        size = max(1, min(PAGE, PAGE_CHARS // mean))


@dataclass
class Blobs:
    """Blobs by hash. Each is hashed once; those that agents send again and again stay in memory."""

    healthy: set[str] = field(default_factory=set)
    kept: dict[str, bytes] = field(default_factory=dict)

    KEPT, KEPT_BYTES, KNOWN = 64, 262_144, 200_000

    def content(self, name: str) -> bytes | None:
        """None: it is not there, or not what its name says."""
        if name in self.kept:
            return self.kept[name]
        content, size = Blob.objects.filter(pk=name).values_list("data", "size").first() or (None, 0)
        if content is None or size != len(content):
            return None
        if name not in self.healthy and sha256(content).hexdigest() != name:
            return None
        self._remember(name, bytes(content))
        return bytes(content)

    def is_healthy(self, name: str) -> bool:
        return name in self.healthy or self.content(name) is not None

    def _remember(self, name: str, content: bytes) -> None:
        if len(self.healthy) >= self.KNOWN:
            self.healthy.clear()
        self.healthy.add(name)
        if len(content) <= self.KEPT_BYTES:
            if len(self.kept) >= self.KEPT:
                self.kept.pop(next(iter(self.kept)))
            self.kept[name] = content


@dataclass(frozen=True)
class Excuses:
    """What the audit chain says was taken from a session, on purpose."""

    dropped_through: int = 0
    trimmed: tuple[int, str] = (0, "")  # the newest trim, and the seal of its anchor
    kept: dict[int, str] = field(default_factory=dict)  # entries before the anchor that still hold: their digests
    is_removed: bool = False
    is_held: bool = False
    hidden_at: datetime | None = None  # when its owner deleted it
    title: str | None = None  # the mark of the title that was set by hand last


def excuses_for(session_id: UUID) -> Excuses:
    events = AuditEvent.objects.filter(session=session_id, action__in=_TOLD).order_by("seq")
    dropped, trimmed, kept, removed = 0, (0, ""), {}, False
    held, hidden_at, title = False, None, None
    for action, text, at in events.values_list("action", "details", "at").iterator():
        details = json.loads(text) if text else {}
        if action in ("hold", "release"):
            held = action == "hold"
        elif action in ("hide", "unhide"):
            told = details.get("hidden_at")
            hidden_at = None if action == "unhide" else datetime.fromisoformat(told) if told else at
        elif action == "rename":
            title = details["title"]
        elif action == "drop":
            dropped = max(dropped, details["through"])
        elif action == "trim":
            trimmed = (details["through"], details["seal"])
            kept = {int(seq): digest for seq, digest in details["kept"].items()}
        removed = removed or action == "remove"
    return Excuses(dropped, trimmed, kept, removed, held, hidden_at, title)


_TOLD = ("drop", "trim", "remove", "hold", "release", "hide", "unhide", "rename")


def linked_blobs(message_ids: Iterable[int]) -> set[tuple[int, str]]:
    links = Message.blobs.through.objects.filter(message_id__in=list(message_ids))
    return set(links.values_list("message_id", "blob_id"))
