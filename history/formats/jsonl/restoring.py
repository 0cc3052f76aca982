"""Restore of a JSONL file in bounded memory; invalid sessions are reported and skipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import DataError, IntegrityError
from django.utils import timezone

from history import redaction, retention
from history.db.packing import MissingBlob
from history.errors import HistoryError
from history.formats.base import FormatError, Note, Notes, gettext_noop
from history.formats.jsonl import storing
from history.formats.jsonl.lines import check_header, read_line
from history.formats.jsonl.owners import OwnerMap
from history.formats.jsonl.reading import EntryReader, Payloads, RestoredEntry
from history.formats.jsonl.sections import sections
from history.formats.jsonl.serialise import id_of, parse_exchange, parse_session, whole
from history.formats.jsonl.session_buffer import Restored, SessionBuffer, StoredSession
from history.models import COPY_UNFINISHED, REMOVAL_STARTED, ApiKey, AuditEvent, Session
from history.record import writer
from history.record.recorder import refuse_when_off
from history.redaction.files import redacted_files
from history.text.lazy import LazyText, why_of

BATCH = 300
BATCH_BYTES = 4_000_000
SIGN_OF_LIFE = timedelta(minutes=1)  # of another restore that is at the same session

REFUSALS = (HistoryError, FormatError, DataError, IntegrityError, ValueError, TypeError, OverflowError, KeyError)


def restore(
    lines: Iterable[bytes],
    *,
    owner: Any = None,
    owners: Mapping[str, Any] | None = None,
    under: ApiKey | None = None,
    recording: str = "full",
    deletions: bool = False,
) -> Iterator[Restored | None]:
    """Lay down what an export holds, and tell what became of each session. Raises FormatError for no export at all.

    None after each batch: nothing is locked then, and other imports may run.

    Without `owner` this is the operator's: sessions go to the user with the owner's name here, or as mapped in
    `owners`, and sections of others are taken. With `owner` everything becomes that person's, recorded under the key
    `under` if there is one. Doing it again changes nothing; a file that knows more of a session than we do extends it.
    What is laid down is exactly what was sealed. So a session with texts that the mode `recording` of a sending key
    does not keep (credentials, answers) is refused as a whole; titles and metadata are redacted.

    `deletions`: what the file says was deleted is put into the trash here, too.
    """
    refuse_when_off()
    run = _Restore(OwnerMap(owner=owner, owners=owners, under=under), recording=recording, deletions=deletions)
    for number, line in enumerate(lines):
        if line.strip():
            yield from run.feed(line, is_first=number == 0)
            if run.has_just_stored:
                yield None
    yield from run.close()


class _Restore:
    def __init__(self, people: OwnerMap, *, recording: str, deletions: bool) -> None:
        self.people = people
        self.recording = recording
        self.keeps_texts = redaction.stores_bodies(recording)
        self.redactors = redaction.redactors_for(recording if self.keeps_texts else "redacted")
        self.deletions = deletions
        self.reader = EntryReader(Payloads(people))
        self.batch: list[SessionBuffer] = []
        self.current: SessionBuffer | None = None
        self.bytes = 0
        self.has_just_stored = False
        self.waiting: dict[UUID, list[tuple[UUID, str]]] = {}  # a session that is still to come → who points to it

    def feed(self, line: bytes, *, is_first: bool) -> Iterator[Restored]:
        self.bytes += len(line)
        self.has_just_stored = False
        try:
            value = read_line(line)
            if is_first:
                check_header(value)
                return
            yield from self._take(value)
        except (FormatError, RecursionError) as error:
            if is_first:
                raise
            yield from self._complain(why_of(error))
        if self._is_full():
            yield from self._store()

    def close(self) -> Iterator[Restored]:
        self._end(None)
        yield from self._store()
        for target, pointing in self.waiting.items():
            for session_id, name in pointing:
                what = LazyText(gettext_noop("the session that it points to (%(name)s) is not here"), name=name)
                yield Restored(
                    session=session_id, outcome="noted", notes=(Note(level="lost", what=what, where=str(target)),)
                )

    # What the lines say.

    def _take(self, value: Mapping[str, Any]) -> Iterator[Restored]:
        kind = str(value.get("type"))
        if kind == "entry" and self.current is not None:
            self._take_entry(self.current, value)
        elif kind == "exchange" and self.current is not None:
            if not (self.current.refused or self.current.broken):
                parse_exchange(value)  # raises where it is none
                self.current.exchanges.append(redaction.redacted_json(value, self.redactors))
        elif kind == "exchange" and value.get("session", "") is None:
            yield from self._take_loose(value)
        elif kind == "blob":
            self.reader.payloads.add(value)
        elif kind == "session":
            self._end(None)
            self._begin(value)
        elif kind == "session_end":
            self._end(value)
        elif kind == "deleted":
            yield from self._delete(value)
        elif kind in sections():
            yield self._take_section(sections()[kind], value)
        elif kind not in ("end", "header"):
            why = LazyText(gettext_noop("a line of an unknown kind was left out: %(kind)s"), kind=repr(kind))
            yield Restored(session=None, outcome="noted", why=why)

    def _complain(self, problem: str) -> Iterator[Restored]:
        """A line that cannot be used: of the session that is being read, or of none."""
        if self.current is None:
            yield Restored(session=None, outcome="refused", why=problem)
        elif not self.current.broken:
            self.current.broken = problem

    def _take_entry(self, current: SessionBuffer, value: Mapping[str, Any]) -> None:
        if current.refused or current.broken:
            current.met += 1
        else:
            laid = self.reader.read(value)
            if self._may_keep(laid):
                current.add(laid)
            else:
                self._refuse(current)

    def _may_keep(self, laid: RestoredEntry) -> bool:
        """Whether the recording mode lets it be stored as it was sealed."""
        if laid.entry is None or self.recording == "full":
            return True
        kept = redaction.redacted(laid.entry, self.redactors).entry
        files = redacted_files(laid.entry, self.redactors, read=self._file)
        return self.keeps_texts and kept == laid.entry and not files.files

    def _file(self, name: str) -> bytes | None:
        try:
            return self.reader.payloads[name]
        except MissingBlob:
            return None

    def _refuse(self, current: SessionBuffer) -> None:
        why = gettext_noop(
            "it holds texts that this key does not keep: import it with a key that records everything, or on the page"
        )
        current.entries, current.exchanges = [], []
        if current.known is not None:
            current.broken = why
            return
        current.refused = why
        if current.is_begun:
            storing.clear(current.id)

    def _begin(self, value: Mapping[str, Any]) -> None:
        try:
            self.current = self._incoming(value)
        except FormatError as error:
            session_id = UUID(int=0)
            with suppress(FormatError):
                session_id = self.people.session_id(id_of(value, "id"))
            # What follows belongs to it, and is read past.
            self.current = SessionBuffer(session_id, title=self._kept_title(value), refused=why_of(error))
        self.batch.append(self.current)

    def _kept_title(self, value: Mapping[str, Any]) -> str:
        return redaction.redacted_text(str(value.get("title", "")), self.redactors)[0]

    def _incoming(self, value: Mapping[str, Any]) -> SessionBuffer:
        notes = Notes()
        fields = writer.kept_fields(parse_session(value), recording=self.recording)
        owner = self.people.named(value.get("owner"))
        if not self.people.is_operator:
            fields |= {"hold": False, "hidden_at": None}
        if value.get("continues"):  # the column of linked sessions: release 0.1.0 exported it
            linked = self.people.session_id(id_of(value, "continues"))
            fields["metadata"] = {"continues": str(linked), **fields["metadata"]}
        incoming = SessionBuffer(
            self.people.session_id(id_of(value, "id")),
            title=fields["title"],
            fields=fields,
            owner=owner,
            key=self.people.key(value.get("key"), owner=owner, notes=notes),
            is_strict=not self.people.is_operator,
            links={
                name: self.people.session_id(id_of(value, name))
                for name in ("parent", "forked_from")
                if value.get(name)
            },
            version=whole(value, "version"),
            notes=notes,
        )
        self._look_for(incoming)
        incoming.begin()
        return incoming

    def _look_for(self, incoming: SessionBuffer) -> None:
        """Compare with a stored, removed or half-restored session of the same id."""
        found = Session.objects.filter(pk=incoming.id).first()
        if found is None:
            removed = AuditEvent.objects.filter(session=incoming.id, action="remove").order_by("-seq").first()
            if removed is not None:
                what = gettext_noop("it had been removed here before")
                incoming.notes("ignored", what, where=removed.at.date().isoformat())
        elif found.owner_id != incoming.owner.pk or not self.people.may_point_to(found):
            raise FormatError(gettext_noop("a session with this id belongs to another user"))
        elif found.hidden_at == COPY_UNFINISHED and found.stored_at < timezone.now() - SIGN_OF_LIFE:
            storing.clear(incoming.id)
        elif found.hidden_at in (COPY_UNFINISHED, REMOVAL_STARTED):
            raise FormatError(gettext_noop("the session is just being restored or removed: try again in a minute"))
        else:
            incoming.known = StoredSession(found)

    def _end(self, value: Mapping[str, Any] | None) -> None:
        if self.current is not None:
            self.current.end(value)
            self.current = None

    def _delete(self, value: Mapping[str, Any]) -> Iterator[Restored]:
        yield from self._store()
        session_id = self.people.session_id(id_of(value, "session"))
        session = Session.objects.not_hidden().filter(pk=session_id).first()
        if session is None or not self.people.may_point_to(session):
            return
        why = gettext_noop("it was deleted where it comes from")
        if self.deletions:
            retention.hide(session, actor=self.people.owner, reason=why)
        outcome: Any = "deleted" if self.deletions else "noted"
        yield Restored(session=session.pk, title=session.title, outcome=outcome, why=why)

    def _take_loose(self, value: Mapping[str, Any]) -> Iterator[Restored]:
        """A call that is no conversation is told of neither when it is taken nor when it is there already."""
        yield from self._store()
        storing.store_loose(redaction.redacted_json(value, self.redactors), self.people)

    def _take_section(self, section: Any, value: Mapping[str, Any]) -> Restored:
        if not self.people.is_operator:
            only = LazyText(gettext_noop("only the operator restores lines of %(name)s"), name=repr(section.name))
            return Restored(session=None, outcome="noted", why=only)
        why = section.take({name: item for name, item in value.items() if name != "type"})
        title = f"{section.name} {value.get('name', '')}".strip()
        return Restored(session=None, title=title, outcome="already there" if why else "imported", why=why)

    # What is stored.

    def _is_full(self) -> bool:
        size = self.bytes + self.reader.payloads.fresh_bytes
        return size >= BATCH_BYTES or sum(len(incoming.entries) + 5 for incoming in self.batch) >= BATCH

    def _store(self) -> Iterator[Restored]:
        batch, blobs = self.batch, self.reader.payloads.taken()
        try:
            storing.store(batch, blobs=blobs, people=self.people)
        except REFUSALS:
            self._store_one_by_one(batch, blobs)
        for incoming in batch:
            incoming.entries, incoming.exchanges = [], []
            if incoming.is_over or incoming.refused:
                if not incoming.refused:
                    self._link(incoming)
                if incoming is not self.current:
                    yield incoming.outcome()
        self.batch, self.bytes = [self.current] if self.current is not None else [], 0
        self.has_just_stored = True

    def _store_one_by_one(self, batch: list[SessionBuffer], blobs: list[Any]) -> None:
        """Something in the batch cannot be stored: find out what, and leave that out."""
        storing.store([], blobs=blobs, people=self.people)
        for incoming in batch:
            try:
                storing.store([incoming], blobs=(), people=self.people)
            except REFUSALS as error:
                incoming.refused = LazyText(gettext_noop("it could not be stored: %(error)s"), error=why_of(error))
                storing.clear(incoming.id)

    def _link(self, incoming: SessionBuffer) -> None:
        for name, target in incoming.links.items():
            if not storing.link(incoming.id, name, target, self.people):
                self.waiting.setdefault(target, []).append((incoming.id, name))
        for session_id, name in self.waiting.pop(incoming.id, ()):
            storing.link(session_id, name, incoming.id, self.people)
