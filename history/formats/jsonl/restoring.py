"""Restore of a JSONL file in bounded memory; invalid sessions are reported and skipped."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError
from django.utils import timezone

from history import redaction, retention
from history.entries import JsonObject
from history.errors import HistoryError
from history.formats.base import FormatError, Note, Notes
from history.formats.jsonl import lines, storing
from history.formats.jsonl.owners import OwnerMap
from history.formats.jsonl.reading import Payloads, RestoredEntry, SessionBuffer, read_entry
from history.formats.reports import ImportItem, ImportOutcome
from history.models import ApiKey, AuditEvent, Session
from history.record import writer
from history.record.recorder import refuse_when_off
from history.redaction.walker import redacted_files
from history.text.lazy import LazyText, error_text, gettext_noop as _

BATCH = 300
BATCH_BYTES = 4_000_000
STALE_AFTER = timedelta(minutes=1)  # without a write by another restore of the same session

REFUSALS = (HistoryError, FormatError, DataError, IntegrityError, ValueError, TypeError, OverflowError, KeyError)


def restore(
    export: Iterable[bytes],
    *,
    owner: Any = None,
    recording_key: ApiKey | None = None,
    recording: str = "full",
    deletions: bool = False,
) -> Iterator[ImportItem | None]:
    """Yields the outcome of each session, and None after each batch: nothing is locked then, other imports may run.

    Without `owner` the operator restores: sessions go to the user with the owner's name, and extra sections are
    restored. With `owner` that user gets everything, recorded under `recording_key` if there is one. A second restore
    changes nothing; a file with more entries of a session extends it. Entries are stored exactly as they were sealed.
    So a session with texts that the mode `recording` of a sending key does not keep (credentials, answers) is refused
    as a whole; titles and metadata are redacted. `deletions`: sessions that were deleted at the source are deleted
    here, too. Raises FormatError if the file is not an export.
    """
    refuse_when_off()
    owner_map = OwnerMap(owner=owner, recording_key=recording_key)
    run = _Restore(owner_map, recording=recording, deletions=deletions)
    for number, line in enumerate(export):
        if line.strip():
            yield from run.feed(line, is_first=number == 0)
            if run.has_just_stored:
                yield None
    yield from run.close()


class _Restore:
    def __init__(self, owners: OwnerMap, *, recording: str, deletions: bool) -> None:
        self.owners, self.recording, self.deletions = owners, recording, deletions
        self.keeps_texts = redaction.stores_bodies(recording)
        self.redactors = redaction.redactors_for(recording if self.keeps_texts else "redacted")
        self.payloads = Payloads(owners)
        self.batch: list[SessionBuffer] = []
        self.current: SessionBuffer | None = None
        self.bytes = 0
        self.has_just_stored = False
        self.waiting: dict[UUID, list[tuple[UUID, str]]] = {}  # a session that is still to come → the links to it

    def feed(self, line: bytes, *, is_first: bool) -> Iterator[ImportItem]:
        self.bytes += len(line)
        self.has_just_stored = False
        try:
            value = lines.read_line(line)
            if is_first:
                lines.check_header(value)
                return
            yield from self._take(value)
        except (FormatError, RecursionError) as error:
            if is_first:
                raise
            if self.current is None:
                yield ImportItem(outcome=ImportOutcome.REFUSED, why=error_text(error))
            elif not self.current.problem:
                self.current.problem = error_text(error)
        size = self.bytes + self.payloads.pending_bytes
        if size >= BATCH_BYTES or sum(len(buffer.entries) + 5 for buffer in self.batch) >= BATCH:
            yield from self._store()

    def close(self) -> Iterator[ImportItem]:
        self._end(None)
        yield from self._store()
        for target, pointing in self.waiting.items():
            for session_id, name in pointing:
                what = LazyText(_("the linked session (%(name)s) does not exist here"), name=name)
                note = Note(level="lost", what=what, where=str(target))
                yield ImportItem(outcome=ImportOutcome.NOTED, session=session_id, notes=(note,))

    def _take(self, value: JsonObject) -> Iterator[ImportItem]:
        kind = str(value.get("type"))
        if kind in ("entry", "exchange") and self.current is not None:
            if not (self.current.refused or self.current.problem):
                self._take_entry_or_exchange(kind, self.current, value)
        elif kind == "exchange" and value.get("session", "") is None:
            yield from self._store()
            storing.store_sessionless_exchange(redaction.redacted_json(value, self.redactors), self.owners)
        elif kind == "blob":
            self.payloads.add(value)
        elif kind == "session":
            self._end(None)
            self._start_session(value)
        elif kind == "session_end":
            self._end(value)
        elif kind == "deleted":
            yield from self._take_deletion(value)
        elif kind in lines.sections():
            yield self._take_section(lines.sections()[kind], value)
        elif kind not in ("end", "header"):
            why = LazyText(_("a line of unknown kind was left out: %(kind)s"), kind=repr(kind))
            yield ImportItem(outcome=ImportOutcome.NOTED, why=why)

    def _take_entry_or_exchange(self, kind: str, current: SessionBuffer, value: JsonObject) -> None:
        if kind == "exchange":
            lines.parse_exchange(value)  # raises FormatError
            current.exchanges.append(redaction.redacted_json(value, self.redactors))
            return
        restored = read_entry(value, self.payloads)
        if self._can_store(restored):
            current.add(restored)
        else:
            self._refuse(current)

    def _can_store(self, restored: RestoredEntry) -> bool:
        """Whether the recording mode allows to store the entry as it was sealed."""
        if restored.entry is None or self.recording == "full":
            return True
        kept = redaction.redacted(restored.entry, self.redactors).entry
        files = redacted_files(restored.entry, self.redactors, read=self.payloads.__getitem__)
        return self.keeps_texts and kept == restored.entry and not files.files

    def _refuse(self, current: SessionBuffer) -> None:
        why = _(
            "it has texts that this key does not record: use a key that records everything, or import it on the page"
        )
        current.entries, current.exchanges = [], []
        if current.stored_session is not None:
            current.problem = why
            return
        current.refused = why
        if current.is_stored:
            storing.remove_interrupted_restore(current.id)

    def _start_session(self, value: JsonObject) -> None:
        try:
            self.current = self._start_buffer(value)
        except FormatError as error:
            session_id = UUID(int=0)
            with suppress(FormatError):
                session_id = self.owners.session_id(lines.id_of(value, "id"))
            # The lines that follow belong to it and are skipped.
            title = redaction.redacted_text(str(value.get("title", "")), self.redactors)[0]
            self.current = SessionBuffer(session_id, title=title, refused=error_text(error))
        self.batch.append(self.current)

    def _start_buffer(self, value: JsonObject) -> SessionBuffer:
        notes = Notes()
        fields = writer.kept_fields(lines.parse_session(value), recording=self.recording)
        owner = self.owners.find_owner(value.get("owner"))
        if not self.owners.is_operator:
            fields |= {"hold": False, "hidden_at": None}
        if value.get("continues"):  # the column of linked sessions: release 0.1.0 exported it
            linked = self.owners.session_id(lines.id_of(value, "continues"))
            fields["metadata"] = {"continues": str(linked), **fields["metadata"]}
        session_id = self.owners.session_id(lines.id_of(value, "id"))
        key = self.owners.key(value.get("key"), owner=owner, notes=notes)
        linked_names = [name for name in ("parent", "forked_from") if value.get(name)]
        return SessionBuffer(
            session_id,
            title=fields["title"],
            fields=fields,
            owner=owner,
            key=key,
            is_strict=not self.owners.is_operator,
            links={name: self.owners.session_id(lines.id_of(value, name)) for name in linked_names},
            version=lines.whole(value, "version"),
            stored_session=self._find_stored(session_id, owner, notes),
            notes=notes,
        )

    def _find_stored(self, session_id: UUID, owner: Any, notes: Notes) -> Session | None:
        """The stored session of this id. A removed one is noted, the rest of an interrupted restore is cleared."""
        stored = Session.objects.filter(pk=session_id).first()
        if stored is None:
            removed = AuditEvent.objects.filter(session=session_id, action="remove").order_by("-seq").first()
            if removed is not None:
                what = _("it was removed from this server before")
                notes("ignored", what, where=removed.at.date().isoformat())
            return None
        if stored.owner_id != owner.pk or not self.owners.can_link_to(stored):
            raise FormatError(_("a session with this id belongs to another user"))
        if stored.state == Session.State.INCOMPLETE and stored.stored_at < timezone.now() - STALE_AFTER:
            storing.remove_interrupted_restore(session_id)
            return None
        if stored.state not in Session.WHOLE:
            raise FormatError(_("the session is being restored or removed: try again in a minute"))
        return stored

    def _end(self, value: JsonObject | None) -> None:
        if self.current is not None:
            self.current.end(value)
            self.current = None

    def _take_deletion(self, value: JsonObject) -> Iterator[ImportItem]:
        yield from self._store()
        session_id = self.owners.session_id(lines.id_of(value, "session"))
        session = Session.objects.open().filter(pk=session_id).first()
        if session is None or not self.owners.can_link_to(session):
            return
        why = _("it was deleted at its origin")
        if self.deletions:
            retention.hide(session, actor=self.owners.owner, reason=why)
        yield ImportItem(outcome=ImportOutcome.NOTED, session=session.pk, title=session.title, why=why)

    def _take_section(self, section: lines.ExtraSection, value: JsonObject) -> ImportItem:
        if not self.owners.is_operator:
            only = LazyText(_("only operators can restore lines of %(name)s"), name=repr(section.name))
            return ImportItem(outcome=ImportOutcome.NOTED, why=only)
        why = section.take({name: item for name, item in value.items() if name != "type"})
        title = f"{section.name} {value.get('name', '')}".strip()
        return ImportItem(outcome=ImportOutcome.THERE if why else ImportOutcome.IMPORTED, title=title, why=why)

    def _store(self) -> Iterator[ImportItem]:
        batch, blobs = self.batch, self.payloads.take()
        try:
            storing.store(batch, blobs=blobs, owners=self.owners)
        except REFUSALS:  # leave out the sessions of the batch that cannot be stored
            storing.store([], blobs=blobs, owners=self.owners)
            for buffer in batch:
                try:
                    storing.store([buffer], blobs=(), owners=self.owners)
                except REFUSALS as error:
                    buffer.refused = LazyText(_("it could not be stored: %(error)s"), error=error_text(error))
                    storing.remove_interrupted_restore(buffer.id)
        for buffer in batch:
            buffer.entries, buffer.exchanges = [], []
            if buffer.is_over or buffer.refused:
                if not buffer.refused:
                    self._link(buffer)
                if buffer is not self.current:
                    yield buffer.result()
        self.batch, self.bytes = [self.current] if self.current is not None else [], 0
        self.has_just_stored = True

    def _link(self, buffer: SessionBuffer) -> None:
        for name, target in buffer.links.items():
            if not storing.link_to_source(buffer.id, name, target, self.owners):
                self.waiting.setdefault(target, []).append((buffer.id, name))
        for session_id, name in self.waiting.pop(buffer.id, ()):
            storing.link_to_source(session_id, name, buffer.id, self.owners)
