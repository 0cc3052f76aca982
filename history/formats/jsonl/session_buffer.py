"""Buffer of one session that is being restored, and the result of its restore."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from history.entries import JsonObject
from history.formats.base import Note, Notes
from history.formats.jsonl.reading import RestoredEntry
from history.models import ApiKey, Message, Session
from history.text.lazy import LazyText
from history.text.lazy import gettext_noop as _

WINDOW = 500

Outcome = Literal["imported", "extended", "already there", "deleted", "noted", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The outcome of one session of a file, or of one line of another section (`session` None).

    `extended`: it was stored before, and has got what the file adds. `noted`: nothing was done.
    """

    session: UUID | None
    outcome: Outcome
    title: str = ""
    entries: int = 0  # that were stored now
    why: str = ""
    notes: tuple[Note, ...] = ()


@dataclass
class SessionBuffer:
    """`entries` and `exchanges` are stored with the next batch; the other fields are about the whole session."""

    id: UUID
    title: str = ""
    fields: JsonObject = field(default_factory=dict)
    owner: Any = None
    key: ApiKey | None = None
    is_strict: bool = False  # refuse altered entries; the operator's are stored and noted
    links: Mapping[str, UUID] = field(default_factory=dict)
    version: int = 0
    stored_session: Session | None = None  # the session as it is stored already
    notes: Notes = field(default_factory=Notes)

    entries: list[RestoredEntry] = field(default_factory=list)
    exchanges: list[JsonObject] = field(default_factory=list)
    is_stored: bool = False  # its row is stored
    is_over: bool = False  # its last line was read
    is_marked: bool = False  # it was stored before, and got the file's title and marks
    refused: str = ""
    problem: str = ""  # why no more entries can be stored
    last: int = 0
    last_seal: bytes = b""
    stored_count: int = 0
    dropped: list[int] = field(default_factory=lambda: [0, 0])  # how many entries have no text, and the last of them
    seals: dict[int, bytes] = field(default_factory=dict)  # of a window of stored entries
    kept: dict[str, str] = field(default_factory=dict)  # before the anchor of a trim: number → digest

    @property
    def trimmed_through(self) -> int:
        return int(self.fields.get("trimmed_through", 0))

    def differs(self, stored: Session, restored: RestoredEntry) -> bool:
        """Whether the stored entry of this number is another one. Trimmed entries cannot be compared."""
        if restored.seq <= stored.trimmed_through:
            return False
        if restored.seq not in self.seals:
            window = Message.objects.of(stored).filter(seq__gte=restored.seq, seq__lt=restored.seq + WINDOW)
            self.seals = {seq: bytes(seal) for seq, seal in window.values_list("seq", "seal")}
        return self.seals.get(restored.seq) != restored.seal

    def __post_init__(self) -> None:
        self.last, self.last_seal = self.trimmed_through, self.fields.get("anchor_seal", b"")
        if self.stored_session and self.trimmed_through > self.stored_session.version:
            self.refused = _("entries between those here and those in the file were trimmed before the export")

    def add(self, restored: RestoredEntry) -> None:
        """Add one entry: it is new, stored already, or the reason why no more can be stored."""
        seq = restored.seq
        if self.refused or self.problem:
            return
        if seq <= self.trimmed_through:
            self.kept[str(seq)] = restored.digest.hex()
            if self.stored_session is None:
                self._take(restored)
            return
        if seq != self.last + 1:
            self.problem = LazyText(_("entry %(seq)s is missing"), seq=self.last + 1)
            return
        stored = self.stored_session
        is_new = stored is None or seq > stored.version
        if stored and seq == stored.version + 1 and bytes(stored.last_seal) != self.last_seal:
            template = _("another session with this id exists: entry %(seq)s does not follow its last entry")
            self.refused = LazyText(template, seq=seq)
            return
        if not restored.follows(self.last_seal):
            if self.is_strict or (stored and is_new):
                self.problem = LazyText(_("the seal of entry %(seq)s does not match"), seq=seq)
                return
            self.notes("lost", _("seals that do not match: changed before the export or in transit"), where=f"#{seq}")
        self.last, self.last_seal = seq, restored.seal
        if is_new:
            self._take(restored)
        elif stored and self.differs(stored, restored):
            template = _("another session with this id exists: they differ from entry %(seq)s on")
            self.refused = LazyText(template, seq=seq)

    def _take(self, restored: RestoredEntry) -> None:
        self.entries.append(restored)
        if restored.entry is None:
            self.dropped = [self.dropped[0] + 1, restored.seq]
        if restored.missing:
            self.notes("lost", _("attachments without data in the file"), where=f"#{restored.seq}")

    def end(self, line: JsonObject | None) -> None:
        """Take the last line of the session; None if the file ends or continues without it."""
        self.is_over = True
        if self.problem:
            what = LazyText(_("%(problem)s: everything after it was left out"), problem=self.problem)
            self.notes("lost", what, where=LazyText(_("after #%(seq)s"), seq=self.last))
        elif line is None:
            place = LazyText(_("after #%(seq)s of %(count)s"), seq=self.last, count=self.version)
            self.notes("lost", _("the file ends within this session"), where=place)
        elif not self.refused and (line.get("version"), line.get("seal")) != (self.last, self.last_seal.hex()):
            self.notes("lost", _("the checkpoint of the session does not match its entries"))

    def has_newer_marks(self, *, or_as_new: bool) -> bool:
        """Whether title, agent, pin and archive were changed at the source after they were changed here."""
        theirs = self.fields.get("marked_at")
        ours = self.stored_session.marked_at if self.stored_session else None
        if theirs == ours:
            return or_as_new
        return ours is None or (theirs is not None and theirs > ours)

    def result(self) -> Restored:
        if self.refused:
            outcome: Outcome = "refused"
        elif self.stored_session is None:
            outcome = "imported"
        else:
            outcome = "extended" if self.stored_count or self.is_marked else "already there"
        return Restored(
            session=self.id,
            title=self.title,
            outcome=outcome,
            entries=self.stored_count,
            why=self.refused,
            notes=self.notes.as_tuple(),
        )
