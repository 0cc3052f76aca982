"""Run of an import: detect, read and store each file; errors stay local to it."""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO
from uuid import UUID

from django.db import DataError, IntegrityError

from history.access import audit
from history.access.permissions import can_see_all_of_owner
from history.db.packing import EntryTooLarge
from history.db.transactions import update_statistics
from history.entries import EntryError, JsonDict, ModelInput
from history.errors import HistoryError, HistoryOff
from history.formats import jsonl
from history.formats.base import Conversation, FormatError, UnreadableConversation
from history.formats.readers import reader_for
from history.formats.reports import ImportItem, ImportOutcome, ImportReport
from history.formats.sources import CountedStream, Source, raw_lines
from history.importing.storing import ConversationStore
from history.importing.unpacking import DAMAGE, UnpackedFile, may_hold_text, unpacked
from history.models import ApiKey
from history.record import writer
from history.record.recorder import refuse_when_off
from history.text.lazy import LazyText, error_text, gettext_noop as _
from history.text.titles import title_from

logger = logging.getLogger(__name__)

NOT_RECOGNISED = _("The format is not supported. The import guide lists the supported ones.")
# Errors of a conversation or a file that are not errors of Parley.
REFUSALS = (HistoryError, FormatError, EntryError, EntryTooLarge, DataError, IntegrityError, *DAMAGE)

MANY_ENTRIES = 1_000  # after so many the planner's statistics of the tables may be wrong

Step = ImportItem | None  # a finished item, or None: a moment to pause in the middle of a long one


@dataclass
class Import:
    """An import of files for one owner. `on_bytes` is called with the number of bytes read since its last call.

    Sessions of Parley's own exports become the owner's; with `restore_owners`, which is for the operator, each goes to
    the user with its owner's name. Imports of a key that does not see all sessions of its owner are recorded under it.
    """

    owner: Any
    on_bytes: Callable[[int], None] = lambda count: None
    api_key: ApiKey | None = None
    restore_owners: bool = False
    dry_run: bool = False
    report: ImportReport = field(default_factory=ImportReport)

    def __post_init__(self) -> None:
        key = self.api_key
        recording_key = None if key is None or can_see_all_of_owner(key) else key
        self.store = ConversationStore(self.owner, recording_key, key.recording if key else "full")
        self.links: list[tuple[UUID, str, str]] = []  # a session, its client, the id of its parent

    def run(
        self, pieces: Iterable[UnpackedFile], on_item: Callable[[ImportItem], object] = lambda item: None
    ) -> ImportReport:
        for item in self.steps(pieces):
            if item is not None:
                on_item(item)
        return self.report

    def steps(self, pieces: Iterable[UnpackedFile]) -> Iterator[Step]:
        """The same, step by step. Nothing is locked between steps, so other imports can run."""
        refuse_when_off()
        for piece in pieces:
            for item in self.import_file(piece):
                if item is not None:
                    self.report.add(item)
                yield item
        if not self.dry_run:
            for link in self.links:  # subagents may be read before the session that started them
                self.store.link(*link)
            counts: JsonDict = {name.replace(" ", "_"): count for name, count in self.report.as_json().items()}
            key = self.api_key.pk if self.api_key else None
            audit.record("sessions.imported", actor=self.owner.pk, key=key, **counts)
            if self.report.entries >= MANY_ENTRIES:
                update_statistics()

    def import_file(self, piece: UnpackedFile) -> Iterator[Step]:
        """Everything in one file; errors become items, too."""
        try:
            for inner in unpacked(piece):
                yield from self._import_piece(inner)
        except FormatError as error:
            yield _refusal(piece, error_text(error))
        except OSError as error:
            yield _refusal(piece, LazyText(_("It cannot be read (%(error)s)."), error=str(error.strerror or error)))

    def _import_piece(self, piece: UnpackedFile) -> Iterator[Step]:
        counter = _ByteCounter(piece, self.on_bytes)
        try:
            yield from self._read(piece, counter)
        except (HistoryOff, OSError):
            raise
        except REFUSALS as error:
            yield _refusal(piece, error_text(error))
        except Exception as error:  # unexpected error of a reader: refuse this file, continue with the others
            logger.exception("An imported file could not be read.")
            yield _refusal(piece, LazyText(_("Unexpected format (%(error)s)."), error=str(error)))
        finally:
            counter.add(piece.size)

    def _read(self, piece: UnpackedFile, counter: "_ByteCounter") -> Iterator[Step]:
        reader, why, source = None, NOT_RECOGNISED, Source(piece.name, counter.open, piece.companion)
        if may_hold_text(piece):
            with closing(piece.open()) as stream:
                is_own_export = jsonl.is_header(stream.readline(10_000))
            if is_own_export:
                yield from self._restore(piece, counter)
                return
            try:
                reader = reader_for(source.sample)
            except FormatError as error:
                why = error_text(error)
        if reader is None:
            outcome = ImportOutcome.REFUSED if piece.is_named else ImportOutcome.IGNORED
            yield ImportItem(outcome=outcome, file=piece.name, why=why)
            return
        counter.is_counting = True
        item = partial(ImportItem, file=piece.name, format=reader.name)
        for conversation in reader.read(source):
            if isinstance(conversation, UnreadableConversation):
                yield item(outcome=ImportOutcome.REFUSED, title=conversation.title, why=conversation.why)
            else:
                yield (yield from self._store(conversation, item))
        if notes := source.notes.as_tuple():
            yield item(outcome=ImportOutcome.NOTED, notes=notes)

    def _store(self, conversation: Conversation, item: partial[ImportItem]) -> Generator[None, None, ImportItem]:
        title = writer.kept_fields({"title": _title_of(conversation)}, recording=self.store.recording)["title"]
        try:
            if not conversation.nodes:
                raise FormatError(_("this conversation has no messages"))
            if self.dry_run:
                session, outcome, entries = self.store.preview(conversation)
            else:
                session, outcome, entries = yield from self.store.store(conversation)
        except HistoryOff:
            raise
        except REFUSALS as error:
            return item(outcome=ImportOutcome.REFUSED, title=title, why=error_text(error))
        if conversation.parent_id:
            self.links.append((session, conversation.client, conversation.parent_id))
        return item(outcome=outcome, title=title, session=session, entries=entries, notes=conversation.notes)

    def _restore(self, piece: UnpackedFile, counter: "_ByteCounter") -> Iterator[Step]:
        if self.dry_run:
            why = _("An export of Parley.")
            yield ImportItem(outcome=ImportOutcome.NOTED, file=piece.name, format=jsonl.FORMAT, why=why)
            return
        counter.is_counting = True
        owner = None if self.restore_owners else self.owner
        key, recording = self.store.recording_key, self.store.recording
        with closing(counter.open()) as stream:
            for restored in jsonl.restore(raw_lines(stream), owner=owner, recording_key=key, recording=recording):
                yield restored and replace(restored, file=piece.name, format=jsonl.FORMAT)


def _title_of(conversation: Conversation) -> str:
    if conversation.title.strip():
        return " ".join(conversation.title.split())[:200]
    entries = (node.entry for node in conversation.nodes)
    inputs = (entry for entry in entries if isinstance(entry, ModelInput) and not entry.is_internal)
    return next((title for entry in inputs if (title := title_from(entry.text))), "")


def _refusal(piece: UnpackedFile, why: str) -> ImportItem:
    return ImportItem(outcome=ImportOutcome.REFUSED, file=piece.name, why=why)


class _ByteCounter:
    """Reports how much of a piece was read: not while its format is detected, and the rest at the end."""

    def __init__(self, piece: UnpackedFile, on_bytes: Callable[[int], None]) -> None:
        self.piece, self.on_bytes = piece, on_bytes
        self.counted = 0
        self.is_counting = False

    def open(self) -> BinaryIO:
        return CountedStream(self.piece.open(), self.add) if self.is_counting else self.piece.open()  # type: ignore[return-value]

    def add(self, count: int) -> None:
        count = min(count, self.piece.size - self.counted)
        if count > 0:
            self.counted += count
            self.on_bytes(count)
