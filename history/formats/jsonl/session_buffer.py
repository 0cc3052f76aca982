"""Buffer of one session that is being restored, and the result of its restore."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from history.formats.base import Note, Notes, gettext_noop
from history.formats.jsonl.reading import RestoredEntry
from history.models import ApiKey, Message, Session
from history.text.lazy import LazyText

WINDOW = 500

Outcome = Literal["imported", "extended", "already there", "deleted", "noted", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One session of a file, or one line of another section (`session` None), and what became of it.

    `extended`: it was there already, and has now what the file knew besides. `noted`: nothing was done.
    """

    session: UUID | None
    outcome: Outcome
    title: str = ""
    entries: int = 0  # that were stored now
    why: str = ""
    notes: tuple[Note, ...] = ()


@dataclass
class StoredSession:
    """The session as it is here already, to be compared with the file."""

    session: Session
    seals: dict[int, bytes] = field(default_factory=dict)  # of a stretch of entries

    def ends_with(self, seal: bytes) -> bool:
        return bytes(self.session.last_seal) == seal

    def differs(self, laid: RestoredEntry) -> bool:
        """Whether the entry of this number is another one here. What was trimmed here cannot be asked."""
        if laid.seq <= self.session.trimmed_through:
            return False
        if laid.seq not in self.seals:
            stretch = Message.objects.of(self.session).filter(seq__gte=laid.seq, seq__lt=laid.seq + WINDOW)
            self.seals = {seq: bytes(seal) for seq, seal in stretch.values_list("seq", "seal")}
        return self.seals.get(laid.seq) != laid.seal


@dataclass
class SessionBuffer:
    """`entries` and `exchanges` are what the next batch has to store; the rest is bookkeeping over all of it."""

    id: UUID
    title: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    owner: Any = None
    key: ApiKey | None = None
    is_strict: bool = False  # what was altered is not taken: of the operator alone it is taken, and told
    links: Mapping[str, UUID] = field(default_factory=dict)
    version: int = 0
    known: StoredSession | None = None
    notes: Notes = field(default_factory=Notes)

    entries: list[RestoredEntry] = field(default_factory=list)
    exchanges: list[Mapping[str, Any]] = field(default_factory=list)
    is_begun: bool = False  # its row is stored
    is_over: bool = False  # its last line was read
    refused: str = ""
    is_marked: bool = False  # it was here, and got the file's title and marks
    broken: str = ""  # from here on nothing can be laid down
    last: int = 0
    last_seal: bytes = b""
    stored: int = 0
    met: int = 0  # entries in the file, laid down or not
    dropped: list[int] = field(default_factory=lambda: [0, 0])  # how many without texts, and the last of them
    kept: dict[str, str] = field(default_factory=dict)  # before the anchor of a trim: number → digest

    @property
    def trimmed_through(self) -> int:
        return int(self.fields.get("trimmed_through", 0))

    def begin(self) -> None:
        """Where the first entry of the file belongs; one that does not fit is refused."""
        self.last, self.last_seal = self.trimmed_through, self.fields.get("anchor_seal", b"")
        if self.known and self.trimmed_through > self.known.session.version:
            self.refused = gettext_noop(
                "entries between what is here and what the file has were trimmed before it was exported"
            )

    def add(self, laid: RestoredEntry) -> None:
        """Note one entry: new, known already, or the reason why nothing more can be taken."""
        self.met += 1
        if self.refused or self.broken:
            return
        if laid.seq <= self.trimmed_through:
            self._keep(laid)
            return
        if laid.seq != self.last + 1:
            self.broken = LazyText(gettext_noop("entry %(seq)s is missing"), seq=self.last + 1)
            return
        if self.known and laid.seq == self.known.session.version + 1 and not self.known.ends_with(self.last_seal):
            words = gettext_noop(
                "another session with this id is here: entry %(seq)s does not follow what it ends with"
            )
            self.refused = LazyText(words, seq=laid.seq)
            return
        if not laid.follows(self.last_seal):
            if self.is_strict or (self.known and laid.seq > self.known.session.version):
                self.broken = LazyText(gettext_noop("the seal of entry %(seq)s does not hold"), seq=laid.seq)
                return
            what = gettext_noop("seals that do not hold: altered before the export, or on the way")
            self.notes("lost", what, where=f"#{laid.seq}")
        self.last, self.last_seal = laid.seq, laid.seal
        if self.known is None or laid.seq > self.known.session.version:
            self._take(laid)
        elif self.known.differs(laid):
            words = gettext_noop("another session with this id is here: they differ from entry %(seq)s on")
            self.refused = LazyText(words, seq=laid.seq)

    def _keep(self, laid: RestoredEntry) -> None:
        self.kept[str(laid.seq)] = laid.digest.hex()
        if self.known is None:
            self._take(laid)

    def _take(self, laid: RestoredEntry) -> None:
        self.entries.append(laid)
        if laid.entry is None:
            self.dropped = [self.dropped[0] + 1, laid.seq]
        if laid.missing:
            self.notes("lost", gettext_noop("attachments whose bytes are not in the file"), where=f"#{laid.seq}")

    def end(self, line: Mapping[str, Any] | None) -> None:
        """Its last line, or None: the file went on, or ended, without it."""
        self.is_over = True
        laid = self.last
        if self.broken:
            what = LazyText(gettext_noop("%(problem)s: what comes after it was left out"), problem=self.broken)
            self.notes("lost", what, where=LazyText(gettext_noop("after #%(seq)s"), seq=laid))
        elif line is None:
            place = LazyText(gettext_noop("after #%(seq)s of %(count)s"), seq=laid, count=self.version)
            self.notes("lost", gettext_noop("the file ends within this session"), where=place)
        elif not self.refused and (line.get("version"), line.get("seal")) != (laid, self.last_seal.hex()):
            self.notes("lost", gettext_noop("the checkpoint at the end of the session is not that of its entries"))

    def has_newer_marks(self, *, or_as_new: bool) -> bool:
        """Whether title, agent, pin and archive were changed at the source after they were changed here."""
        theirs = self.fields.get("marked_at")
        ours = self.known.session.marked_at if self.known else None
        if theirs == ours:
            return or_as_new
        return ours is None or (theirs is not None and theirs > ours)

    def outcome(self) -> Restored:
        is_changed = self.stored or self.is_marked
        said: Outcome = "imported" if self.known is None else "extended" if is_changed else "already there"
        return Restored(
            session=self.id,
            title=self.title,
            outcome="refused" if self.refused else said,
            entries=self.stored,
            why=self.refused,
            notes=self.notes.as_tuple(),
        )
