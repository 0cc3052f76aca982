"""Run of an import: detect, read and store each file; errors stay local to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, BinaryIO

from django.db import DataError, IntegrityError

from history.access import audit
from history.access.permissions import can_see_all_of_owner
from history.db.packing import EntryTooLarge
from history.entries import EntryError, ModelInput
from history.errors import HistoryError, HistoryOff
from history.formats import jsonl
from history.formats.base import Conversation, FormatError, UnreadableConversation, gettext_noop
from history.formats.jsonl import Restored
from history.formats.readers import Reader, reader_for
from history.formats.sources import Source, raw_lines
from history.importing import storing
from history.importing.reports import ImportItem, ImportOutcome, ImportReport
from history.importing.unpacking import DAMAGE, UnpackedFile, may_hold_text, unpacked
from history.models import ApiKey
from history.record import writer
from history.record.recorder import refuse_when_off
from history.text.lazy import LazyText, why_of
from history.text.titles import title_from

logger = logging.getLogger(__name__)

NOT_RECOGNISED = gettext_noop("The format is not supported. The import guide lists the supported ones.")
# What a conversation or a file can be refused for without anything being wrong with us.
REFUSALS = (HistoryError, FormatError, EntryError, EntryTooLarge, DataError, IntegrityError, *DAMAGE)
OWN_OUTCOMES = {
    "imported": ImportOutcome.IMPORTED,
    "extended": ImportOutcome.GROWN,
    "already there": ImportOutcome.THERE,
    "refused": ImportOutcome.REFUSED,
}

Step = ImportItem | None  # an item that is done, or nothing but a good moment to stop, in the middle of a long one
OnItem = Callable[[ImportItem], None]
OnBytes = Callable[[int], None]


def run(
    owner: Any,
    pieces: Iterable[UnpackedFile],
    *,
    on_item: OnItem | None = None,
    on_bytes: OnBytes | None = None,
    api_key: ApiKey | None = None,
    restore_owners: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Import all that is in these files for `owner`, and tell of each item as it is done.

    `on_bytes` is told how much of the files was read since the last time. Sessions of our own exports become the
    owner's; with `restore_owners`, which is the operator's, each goes to the user with its owner's name. What a key
    imports that does not see all of its owner's sessions is recorded under it, and nothing else is touched.
    """
    report = ImportReport()
    for item in steps(
        owner,
        pieces,
        on_bytes=on_bytes or (lambda count: None),
        api_key=api_key,
        restore_owners=restore_owners,
        dry_run=dry_run,
    ):
        if item is not None:
            report.add(item)
        if item is not None and on_item:
            on_item(item)
    return report


def steps(
    owner: Any,
    pieces: Iterable[UnpackedFile],
    *,
    on_bytes: OnBytes,
    api_key: ApiKey | None = None,
    restore_owners: bool = False,
    dry_run: bool = False,
) -> Iterator[Step]:
    """The same, step by step. Nothing is locked between steps, so imports of other users can run."""
    refuse_when_off()
    import_ = _Import(owner, api_key=api_key, dry_run=dry_run, restore_owners=restore_owners)
    import_.on_bytes = on_bytes
    report = ImportReport()
    for piece in pieces:
        for item in import_.file(piece):
            if item is not None:
                report.add(item)
            yield item
    if not dry_run:
        import_.link_children()
        _tell(owner, api_key, report)


def _tell(owner: Any, api_key: ApiKey | None, report: ImportReport) -> None:
    counts: dict[str, Any] = {name.replace(" ", "_"): count for name, count in report.as_json().items()}
    audit.record("sessions.imported", actor=owner.pk, key=api_key.pk if api_key else None, **counts)


class _Import:
    def __init__(self, owner: Any, *, api_key: ApiKey | None, dry_run: bool, restore_owners: bool) -> None:
        self.owner = owner
        self.under = None if api_key is None or can_see_all_of_owner(api_key) else api_key
        self.recording = api_key.recording if api_key else "full"
        self.dry_run, self.restore_owners = dry_run, restore_owners
        self.on_bytes: OnBytes = lambda count: None
        self.children: list[tuple[str, Any, str]] = []  # (client, session, source id of its parent)

    def file(self, piece: UnpackedFile) -> Iterator[Step]:
        """Everything in one file; errors become items, too."""
        try:
            for inner in unpacked(piece):
                yield from self._piece(inner)
        except FormatError as error:
            yield ImportItem(outcome=ImportOutcome.REFUSED, file=piece.name, why=why_of(error))
        except OSError as error:
            why = LazyText(gettext_noop("It cannot be read (%(error)s)."), error=str(error.strerror or error))
            yield ImportItem(outcome=ImportOutcome.REFUSED, file=piece.name, why=why)

    def _piece(self, piece: UnpackedFile) -> Iterator[Step]:
        counted = _Counted(piece, self.on_bytes)
        try:
            yield from self._read(piece, counted)
        except (HistoryOff, OSError):
            raise
        except REFUSALS as error:
            yield ImportItem(outcome=ImportOutcome.REFUSED, file=piece.name, why=why_of(error))
        except Exception as error:  # unexpected error of a reader: refuse this file, continue with the others
            logger.exception("An imported file could not be read.")
            why = LazyText(gettext_noop("It is not written as expected (%(error)s)."), error=str(error))
            yield ImportItem(outcome=ImportOutcome.REFUSED, file=piece.name, why=why)
        finally:
            counted.finish()

    def _read(self, piece: UnpackedFile, counted: _Counted) -> Iterator[Step]:
        if not may_hold_text(piece):
            yield _unknown(piece)
            return
        if _is_ours(piece):
            yield from self._restored(piece, counted)
            return
        source = Source(piece.name, counted.open, piece.companion)
        try:
            reader = reader_for(source.sample)
        except FormatError as error:
            yield _unknown(piece, why=why_of(error))
            return
        if reader is None:
            yield _unknown(piece)
            return
        counted.begin()
        yield from self._conversations(reader, source)
        if notes := source.notes.as_tuple():
            yield ImportItem(outcome=ImportOutcome.NOTED, file=piece.name, format=reader.NAME, notes=notes)

    def _conversations(self, reader: Reader, source: Source) -> Iterator[Step]:
        for found in reader.read(source):
            if isinstance(found, UnreadableConversation):
                yield ImportItem(
                    outcome=ImportOutcome.REFUSED,
                    file=source.name,
                    format=reader.NAME,
                    title=found.title,
                    why=found.why,
                )
            else:
                yield (yield from self._stored(found, reader.NAME, source.name))

    def _stored(self, found: Conversation, name: str, file: str) -> Generator[None, None, ImportItem]:
        title = writer.kept_fields({"title": _title_of(found)}, recording=self.recording)["title"]
        try:
            if not found.nodes:
                raise FormatError(gettext_noop("it has no messages"))
            if self.dry_run:
                stored = storing.look(found, owner=self.owner, under=self.under)
            else:
                stored = yield from storing.store(found, owner=self.owner, under=self.under, recording=self.recording)
        except HistoryOff:
            raise
        except REFUSALS as error:
            return ImportItem(outcome=ImportOutcome.REFUSED, file=file, format=name, title=title, why=why_of(error))
        if found.parent_id:
            self.children.append((found.client, stored.session_id, found.parent_id))
        return ImportItem(
            outcome=stored.outcome,
            file=file,
            format=name,
            title=title,
            session=stored.session_id,
            entries=stored.entries,
            notes=found.notes,
        )

    def link_children(self) -> None:
        """Subagents may be read before the session that started them."""
        for client, child, parent_id in self.children:
            storing.link(self.owner, child=child, client=client, parent_id=parent_id, under=self.under)

    # Our own exports.

    def _restored(self, piece: UnpackedFile, counted: _Counted) -> Iterator[Step]:
        if self.dry_run:
            yield ImportItem(
                outcome=ImportOutcome.NOTED,
                file=piece.name,
                format=jsonl.FORMAT,
                why=gettext_noop("An export of Parley."),
            )
            return
        counted.begin()
        with closing(counted.open()) as stream:
            owner = None if self.restore_owners else self.owner
            for restored in jsonl.restore(raw_lines(stream), owner=owner, under=self.under, recording=self.recording):
                yield None if restored is None else _item(restored, piece.name)


def _title_of(found: Conversation) -> str:
    """Its own, or the one that its session gets."""
    if found.title.strip():
        return " ".join(found.title.split())[:200]
    said = (node.entry for node in found.nodes if isinstance(node.entry, ModelInput) and not node.entry.is_internal)
    return next((title for entry in said if (title := title_from(entry.text))), "")


def _item(restored: Restored, file: str) -> ImportItem:
    return ImportItem(
        outcome=OWN_OUTCOMES.get(restored.outcome, ImportOutcome.NOTED),
        file=file,
        format=jsonl.FORMAT,
        title=restored.title,
        session=restored.session,
        entries=restored.entries,
        why=restored.why,
        notes=restored.notes,
    )


def _is_ours(piece: UnpackedFile) -> bool:
    with closing(piece.open()) as stream:
        return jsonl.is_header(stream.readline(10_000))


def _unknown(piece: UnpackedFile, *, why: str = NOT_RECOGNISED) -> ImportItem:
    outcome = ImportOutcome.REFUSED if piece.is_named else ImportOutcome.IGNORED
    return ImportItem(outcome=outcome, file=piece.name, why=why)


class _Counted:
    """Tells how much of a piece was read; not while it is only looked at, and all of it at the end."""

    def __init__(self, piece: UnpackedFile, on_bytes: OnBytes) -> None:
        self.piece, self.on_bytes = piece, on_bytes
        self.told = 0
        self.is_on = False

    def begin(self) -> None:
        self.is_on = True

    def open(self) -> BinaryIO:
        return _Told(self.piece.open(), self) if self.is_on else self.piece.open()  # type: ignore[return-value]

    def tell(self, count: int) -> None:
        count = min(count, self.piece.size - self.told)
        if count > 0:
            self.told += count
            self.on_bytes(count)

    def finish(self) -> None:
        self.tell(self.piece.size)


class _Told:
    """A stream whose reads are counted."""

    def __init__(self, stream: BinaryIO, counted: _Counted) -> None:
        self.stream, self.counted = stream, counted

    def read(self, size: int = -1) -> bytes:
        content = self.stream.read(size)
        self.counted.tell(len(content))
        return content

    def readline(self, size: int = -1) -> bytes:
        line = self.stream.readline(size)
        self.counted.tell(len(line))
        return line

    def close(self) -> None:
        self.stream.close()
