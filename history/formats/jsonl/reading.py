"""Entries and blobs of a file, read and checked, and the buffer of the session that they belong to."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import UUID

from history.db.bulk import fit_text
from history.db.packing import MissingBlob, attachments_of, blobs_in, dump, unpack
from history.entries import Entry, JsonDict, JsonObject
from history.formats.base import FormatError, Notes
from history.formats.jsonl.lines import check_year, hash_of, mapping, parse_call, parse_dropped, time_of, whole
from history.formats.jsonl.owners import OwnerMap
from history.formats.reports import ImportItem, ImportOutcome, outcome_of
from history.formats.sources import MAX_CONVERSATION as MAX_BLOB, MEGABYTE, check_values
from history.models import ApiKey, Blob, Message, Session
from history.models.seals import digest_of, seal_of
from history.record import projections
from history.text.lazy import LazyText, gettext_noop as _

RECENT_BLOBS = 64
WINDOW = 500  # of stored entries that are compared at a time


@dataclass(frozen=True, slots=True)
class RestoredEntry:
    """One entry to restore, and its row, which has no session yet. `entry` is None if its texts were dropped."""

    row: Message
    entry: Entry | None = None
    blobs: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()  # attachments without bytes
    calls: Sequence[JsonDict] = ()

    def follows(self, seal: bytes) -> bool:
        row = self.row
        is_whole = row.body is None or row.digest == digest_of(row.salt or b"", row.body)
        expected = seal_of(seal, seq=row.seq, parent=row.parent_seq, kind=row.kind, digest=row.digest)
        return is_whole and bytes(row.seal) == expected


class Payloads:
    """Blobs by hash: those of the last lines, and stored ones that the owner may refer to."""

    def __init__(self, owners: OwnerMap | None = None) -> None:
        self.owners = owners or OwnerMap()
        self.pending: dict[str, Blob] = {}  # to be stored with the next batch
        self.pending_bytes = 0
        self.recent: dict[str, bytes] = {}
        self._begun = bytearray()  # of a large one, which comes in several lines

    def add(self, line: JsonObject) -> None:
        """Raises FormatError if the bytes do not match their hash."""
        try:
            content = b64decode(line.get("data") or "", validate=True)
        except (TypeError, ValueError):
            raise FormatError(_("the data of a blob is not valid base64")) from None
        self._begun += content
        if line.get("more") and len(self._begun) <= MAX_BLOB:
            return
        content, self._begun = bytes(self._begun), bytearray()
        if len(content) > MAX_BLOB:
            raise FormatError(_("a blob is larger than %(size)s MB"), size=MAX_BLOB // MEGABYTE)
        name = sha256(content).hexdigest()
        if name != line.get("sha256"):
            raise FormatError(_("the blob %(name)s… was changed: its hash differs"), name=str(line.get("sha256"))[:12])
        kind = fit_text(Blob, "media_type", str(line.get("media_type") or "text/plain"))
        self.pending[name] = Blob(sha256=name, data=content, size=len(content), media_type=kind)
        self.pending_bytes += len(content)
        self.owners.add_file_blob(name)

    def take(self) -> list[Blob]:
        """Those that are to be stored; from here on they are looked for in the database."""
        blobs, self.pending, self.pending_bytes = list(self.pending.values()), {}, 0
        return blobs

    def __getitem__(self, name: str) -> bytes:
        if name in self.pending:
            return bytes(self.pending[name].data)
        if name not in self.recent:
            data = Blob.objects.filter(pk__in=self.owners.blobs([name])).values_list("data", flat=True).first()
            if data is None:
                raise MissingBlob(f"the blob {name} is missing")
            if len(self.recent) >= RECENT_BLOBS:
                self.recent.clear()
            self.recent[name] = bytes(data)
        return self.recent[name]

    def find_available(self, names: frozenset[str]) -> frozenset[str]:
        others = names - self.pending.keys()
        return names & self.pending.keys() | (self.owners.blobs(others) if others else frozenset())


def read_entry(line: JsonObject, payloads: Payloads) -> RestoredEntry:
    """Raises FormatError for an invalid line. Blobs must have been added before."""
    seq, parent = whole(line, "seq"), whole(line, "parent")
    common: JsonDict = {
        "seq": seq,
        "parent_seq": parent,
        "moved_head": line.get("moved") is True,
        "created_at": time_of(line.get("created_at")),
        "seal": hash_of(line, "seal"),
    }
    if not common["seal"]:
        raise FormatError(_("entry %(seq)s has no seal"), seq=seq)
    if not parent < seq:
        raise FormatError(_("entry %(seq)s cannot follow entry %(parent)s"), seq=seq, parent=parent)
    if "dropped" not in line:
        return _read_content(line, common, payloads)
    facts = mapping(line, "dropped")
    columns, calls = parse_dropped(facts), facts.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise FormatError(_("the calls of an entry must be a list of objects"))
    row = Message(**{**columns, **common}, digest=hash_of(line, "digest"))
    return RestoredEntry(row, calls=[parse_call(call) for call in calls])


def _read_content(line: JsonObject, common: JsonDict, payloads: Payloads) -> RestoredEntry:
    written, salt, seq = line.get("body"), hash_of(line, "salt", size=16), common["seq"]
    body = written if isinstance(written, str) else dump(written)
    if body[:1] != "{":
        raise FormatError(_("entry %(seq)s has no body"), seq=seq)
    names = frozenset(blobs_in(body))
    try:
        blobs = {name: payloads[name] for name in names}
        if "$json_blob" in body or "\\u" in body:  # or spelled so that it is not seen here
            for content in blobs.values():
                check_values(content)
        entry = unpack(body, blobs)
        check_year(entry.at)
    except MissingBlob:
        raise FormatError(_("a text of entry %(seq)s is missing from the file"), seq=seq) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError(_("the body of entry %(seq)s cannot be read"), seq=seq) from None
    digest = hash_of(line, "digest") or digest_of(salt, body)
    row = Message(**{**projections.columns_of(entry), **common}, body=body, salt=salt, digest=digest)
    attached = attachments_of(entry)
    there = payloads.find_available(attached) if attached else attached
    return RestoredEntry(row, entry, names | there, attached - there)


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

    def differs(self, stored: Session, row: Message) -> bool:
        """Whether the stored entry of this number is another one. Trimmed entries cannot be compared."""
        if row.seq <= stored.trimmed_through:
            return False
        if row.seq not in self.seals:
            window = Message.objects.of(stored).filter(seq__gte=row.seq, seq__lt=row.seq + WINDOW)
            self.seals = {seq: bytes(seal) for seq, seal in window.values_list("seq", "seal")}
        return self.seals.get(row.seq) != bytes(row.seal)

    def __post_init__(self) -> None:
        self.last, self.last_seal = self.trimmed_through, self.fields.get("anchor_seal", b"")
        if self.stored_session and self.trimmed_through > self.stored_session.version:
            self.refused = _("entries between those here and those in the file were trimmed before the export")

    def add(self, restored: RestoredEntry) -> None:
        """Add one entry: it is new, stored already, or the reason why no more can be stored."""
        row, seq = restored.row, restored.row.seq
        if self.refused or self.problem:
            return
        if seq <= self.trimmed_through:
            self.kept[str(seq)] = row.digest.hex()
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
        self.last, self.last_seal = seq, row.seal
        if is_new:
            self._take(restored)
        elif stored and self.differs(stored, row):
            template = _("another session with this id exists: they differ from entry %(seq)s on")
            self.refused = LazyText(template, seq=seq)

    def _take(self, restored: RestoredEntry) -> None:
        self.entries.append(restored)
        if restored.entry is None:
            self.dropped = [self.dropped[0] + 1, restored.row.seq]
        if restored.missing:
            self.notes("lost", _("attachments without data in the file"), where=f"#{restored.row.seq}")

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

    def result(self) -> ImportItem:
        stored, why, notes = self.stored_count, self.refused, self.notes.as_tuple()
        outcome = outcome_of(self.stored_session, has_grown=stored > 0 or self.is_marked)
        outcome = ImportOutcome.REFUSED if why else outcome
        return ImportItem(outcome=outcome, session=self.id, title=self.title, entries=stored, why=why, notes=notes)
