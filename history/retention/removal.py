"""Removal of sessions, exchanges and blobs: by primary key, a few hundred rows per transaction."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import CASCADE, Exists, ManyToOneRel, OuterRef, QuerySet
from django.utils import timezone

from history.access import audit
from history.db.transactions import writing
from history.models import Blob, EarlierTry, Exchange, Message, SearchRow, Session, ShareLink, ToolCall
from history.models.append_only import writable
from history.record import daily_counts

BATCH = 500
GROUP = 20  # sessions that share their batches

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Removed:
    messages: int = 0
    tool_calls: int = 0
    search_rows: int = 0
    exchanges: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


def mark(sessions: QuerySet[Session], *, why: str, reason: str = "", **who: int | None) -> list[UUID]:
    """Begin the removal of the first of these sessions, without held ones. They are not shown any more."""
    with writing():
        free = sessions.filter(hold=False).exclude(state=Session.State.REMOVING).order_by("pk")
        ids = list(free.values_list("pk", flat=True)[:GROUP])
        # Again under the lock: one of them may have been held or restored.
        locked = list(free.filter(pk__in=ids).select_for_update(of=("self",)))
        for session in locked:
            hidden_at = session.hidden_at or timezone.now()
            Session.objects.filter(pk=session.pk).update(state=Session.State.REMOVING, hidden_at=hidden_at)
            details = {"why": why, "version": session.version, "seal": session.last_seal.hex()}
            details |= {"entries": Message.objects.of(session).count(), "owner": session.owner_id}
            details |= {"by_key": session.api_key_id} if session.api_key_id else {}
            audit.record("remove", session=session.pk, reason=reason, **who, **details)
    return [session.pk for session in locked]


def finish(ids: Sequence[UUID]) -> Iterator[Removed]:
    """Remove marked sessions batch by batch. An interrupted removal can be continued."""
    yield from _remove_rows(ids)
    yield _remove_sessions(ids)


def _remove_rows(session_ids: Sequence[UUID]) -> Iterator[Removed]:
    for exchanges in batches(Exchange.objects.filter(session_id__in=session_ids)):
        yield remove_exchanges(exchanges)
    for messages in batches(Message.objects.filter(session_id__in=session_ids)):
        yield remove_messages(messages)


def remove_messages(ids: Sequence[int]) -> Removed:
    """Remove messages with everything that belongs to them."""
    with writing():
        messages = Message.objects.filter(pk__in=ids)
        exchanges = list(Exchange.objects.filter(message_id__in=ids).values_list("pk", flat=True))
        with daily_counts.recounting(messages=messages, exchanges=Exchange.objects.filter(pk__in=exchanges)):
            unlink_blobs(ids)
            Exchange.objects.filter(message_id__in=ids).update(message=None)
            search_rows = remove_search_rows(ids)
            tool_calls = _remove(ToolCall.objects.filter(message_id__in=ids))
            return Removed(_remove(messages), tool_calls, search_rows)


def remove_search_rows(message_ids: Sequence[int]) -> int:
    return _remove(SearchRow.objects.filter(message_id__in=message_ids))


def unlink_blobs(message_ids: Sequence[int]) -> None:
    _remove(Message.blobs.through.objects.filter(message_id__in=message_ids))


def remove_exchanges(ids: Sequence[UUID]) -> Removed:
    with daily_counts.recounting(exchanges=Exchange.objects.filter(pk__in=ids)):
        unlink_inputs(ids)
        _remove(EarlierTry.objects.filter(exchange_id__in=ids))
        return Removed(exchanges=_remove(Exchange.objects.filter(pk__in=ids)))


def unlink_inputs(exchange_ids: Sequence[UUID]) -> None:
    _remove(Exchange.blobs.through.objects.filter(exchange_id__in=exchange_ids))


def _remove_sessions(ids: Sequence[UUID]) -> Removed:
    """Remove the session rows, and entries that a concurrent writer has appended."""
    with writing():
        going = Session.objects.being_removed().filter(pk__in=ids).order_by("pk").select_for_update()
        locked = list(going.values_list("pk", flat=True))
        removed = sum(_remove_rows(locked), Removed())
        _remove(ShareLink.objects.filter(session_id__in=locked))
        for relation in Session._meta.get_fields(include_hidden=True):
            if isinstance(relation, ManyToOneRel) and relation.on_delete is CASCADE:
                rows = relation.related_model._base_manager.filter(**{f"{relation.field.name}__in": locked})
                if rows.model._meta.app_label != Session._meta.app_label:  # of another app
                    _remove(rows)
        Session.objects.filter(parent__in=locked).update(parent=None, changed_at=timezone.now())
        forks = Session.objects.filter(forked_from__in=locked)
        with daily_counts.recounting_copies(forks):
            forks.update(forked_from=None, changed_at=timezone.now())
        _remove(Session.objects.filter(pk__in=locked))
    return removed


def batches(rows: QuerySet[Any]) -> Iterator[list[Any]]:
    """Primary keys of the rows that are left. The caller removes each batch before the next."""
    while ids := list(rows.order_by().values_list("pk", flat=True)[:BATCH]):
        yield ids


def _remove(rows: QuerySet[Any]) -> int:
    """One DELETE. Django's `delete` would read every row first, to follow relations that are followed here."""
    return writable(rows)._raw_delete(rows.db)


BLOB_BATCH = 200
GRACE = timedelta(hours=1)  # an attachment is stored before the entry that names it, so young blobs stay


def orphaned_blobs(now: datetime) -> QuerySet[Blob]:
    return _unused().filter(created_at__lt=now - GRACE)


def _unused() -> QuerySet[Blob]:
    linked = Message.blobs.through.objects.filter(blob_id=OuterRef("pk"))
    used = Exchange.blobs.through.objects.filter(blob_id=OuterRef("pk"))
    return Blob.objects.filter(~Exists(linked), ~Exists(used))


def remove_orphaned_blobs(now: datetime) -> Iterator[int]:
    last = ""
    while ids := list(orphaned_blobs(now).filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BLOB_BATCH]):
        last = ids[-1]
        yield _remove_blobs(ids, orphaned_blobs(now))


def remove_at_once(names: Sequence[str]) -> Iterator[int]:
    """Remove those of these blobs that are unused, however young: their sessions were erased."""
    for start in range(0, len(names), BLOB_BATCH):
        yield _remove_blobs(names[start : start + BLOB_BATCH], _unused())


def _remove_blobs(ids: Sequence[str], going: QuerySet[Blob]) -> int:
    """Check again under a lock: a writer may have used one of them since."""
    with writing():
        locked = Blob.objects.filter(pk__in=ids).order_by("pk").values_list("pk", flat=True)
        skips = connection.features.has_select_for_update_skip_locked
        free = list(locked.select_for_update(skip_locked=True) if skips else locked)
        unused = list(going.filter(pk__in=free).values_list("pk", flat=True))
        return _remove(Blob.objects.filter(pk__in=unused)) if unused else 0


def erase_everything_of(
    owner: Any, *, reason: str, progress: Callable[[int], None] = lambda count: None
) -> dict[str, int]:
    """Erase sessions, exchanges without a session, and unused blobs of an owner, and count. Held sessions stay."""
    removed, sessions, blobs = Removed(), 0, set[str]()
    inputs, outputs = Exchange.blobs.through.objects, Message.blobs.through.objects
    with _without_a_trace():
        for ids in _marked(owner, reason=reason):
            blobs |= set(outputs.filter(message__session_id__in=ids).values_list("blob_id", flat=True))
            blobs |= set(inputs.filter(exchange__session_id__in=ids).values_list("blob_id", flat=True))
            removed += sum(finish(ids), Removed())
            sessions += len(ids)
            progress(len(ids))
        for exchanges in batches(loose_exchanges_of(owner)):
            blobs |= set(inputs.filter(exchange_id__in=exchanges).values_list("blob_id", flat=True))
            removed += remove_exchanges(exchanges)
        return {"sessions": sessions, **asdict(removed), "blobs": sum(remove_at_once(sorted(blobs)))}


def loose_exchanges_of(owner: Any) -> QuerySet[Exchange]:
    return Exchange.objects.filter(owner=owner, session=None)


def held_sessions_of(owner: Any) -> QuerySet[Session]:
    return Session.objects.filter(owner=owner, hold=True).order_by("pk")


def _marked(owner: Any, *, reason: str) -> Iterator[Sequence[UUID]]:
    """Ids of sessions to remove, in groups, beginning with interrupted removals."""
    own = Session.objects.filter(owner=owner)
    if begun := list(own.being_removed().values_list("pk", flat=True)):
        yield begun
    while ids := mark(own, why="erased", reason=reason):
        yield ids


@contextmanager
def _without_a_trace() -> Iterator[None]:
    """Overwrite what is deleted: SQLite leaves it in free pages, and words in its index.

    PostgreSQL's vacuum does the same some minutes later.
    """
    if connection.vendor != "sqlite":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA secure_delete = ON")
        try:
            yield
            cursor.execute("INSERT INTO history_searchindex(history_searchindex) VALUES ('optimize')")
            if not connection.in_atomic_block:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            cursor.execute("PRAGMA secure_delete = OFF")
