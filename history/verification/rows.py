"""Findings of a verification, and the rows, blobs and audit events that it reads."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from history.models import AuditEvent, Blob, Session

STATE_ACTIONS = ("drop", "trim", "remove", "hold", "release", "hide", "unhide", "rename")


class FindingSeverity(StrEnum):
    DAMAGE = "damage"  # the record itself is not what was written
    PROJECTION = "projection"  # something derived from the entries is wrong, and can be rebuilt


@dataclass(frozen=True, slots=True)
class VerificationFinding:
    session: UUID | None
    seq: int
    code: str
    sentence: str
    severity: FindingSeverity = FindingSeverity.DAMAGE

    @property
    def is_damage(self) -> bool:
        return self.severity is FindingSeverity.DAMAGE

    def __str__(self) -> str:
        where = f"session {self.session}, entry {self.seq}" if self.session else f"number {self.seq}"
        return f"{where}: {self.sentence} ({self.code})"


def projection_finding(session: Session, seq: int, code: str, sentence: str) -> VerificationFinding:
    return VerificationFinding(session.pk, seq, code, sentence, FindingSeverity.PROJECTION)


@dataclass
class Blobs:
    """Blobs by hash. Each is hashed once; those that agents send again and again stay in memory."""

    healthy: set[str] = field(default_factory=set)
    cached: dict[str, bytes] = field(default_factory=dict)

    MAX_CACHED, MAX_CACHED_BYTES, MAX_KNOWN = 64, 262_144, 200_000

    def content(self, name: str) -> bytes | None:
        """The bytes; None if they are missing or do not match the name or the size."""
        if name in self.cached:
            return self.cached[name]
        content, size = Blob.objects.filter(pk=name).values_list("data", "size").first() or (None, 0)
        if content is None or size != len(content):
            return None
        if name not in self.healthy and sha256(content).hexdigest() != name:
            return None
        content = bytes(content)
        if len(self.healthy) >= self.MAX_KNOWN:
            self.healthy.clear()
        self.healthy.add(name)
        if size <= self.MAX_CACHED_BYTES:
            if len(self.cached) >= self.MAX_CACHED:
                self.cached.pop(next(iter(self.cached)))
            self.cached[name] = content
        return content

    def is_healthy(self, name: str) -> bool:
        return name in self.healthy or self.content(name) is not None


@dataclass
class AuditedState:
    """What the audit chain says of a session: removals on purpose, hold, deletion and title."""

    dropped_through: int = 0
    trimmed: tuple[int, str] = (0, "")  # the newest trim, and the seal of its anchor
    kept: dict[int, str] = field(default_factory=dict)  # entries before the anchor that still hold: their digests
    is_removed: bool = False
    is_held: bool = False
    hidden_at: datetime | None = None  # when its owner deleted it
    title: str | None = None  # the mark of the last title that was set by hand
    is_title_dropped: bool = False  # with the last text, and not set by hand since


def audited_state(session_id: UUID) -> AuditedState:
    state = AuditedState()
    events = AuditEvent.objects.filter(session=session_id, action__in=STATE_ACTIONS).order_by("seq")
    for action, text, at in events.values_list("action", "details", "at").iterator():
        details = json.loads(text) if text else {}
        match action:
            case "hold" | "release":
                state.is_held = action == "hold"
            case "hide":
                hidden_at = details.get("hidden_at")
                state.hidden_at = datetime.fromisoformat(hidden_at) if hidden_at else at
            case "unhide":
                state.hidden_at = None
            case "rename":
                state.title, state.is_title_dropped = details["title"], False
            case "drop":
                state.dropped_through = max(state.dropped_through, details["through"])
                if "title" in details:
                    state.title, state.is_title_dropped = None, True
            case "trim":
                state.trimmed = (details["through"], details["seal"])
                state.kept = {int(seq): digest for seq, digest in details["kept"].items()}
            case "remove":
                state.is_removed = True
    return state
