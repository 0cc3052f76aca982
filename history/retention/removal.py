"""Taking rows out of the database: by primary key, a few hundred at a time, each batch a short transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from django.db.models import CASCADE, ManyToOneRel, QuerySet
from django.utils import timezone

from history.access import audit
from history.db.transactions import writing
from history.models import REMOVAL_STARTED, EarlierTry, Exchange, Message, SearchRow, Session, ShareLink, ToolCall
from history.models.append_only import writable
from history.record import daily_counts

BATCH = 500
GROUP = 20  # sessions that are removed side by side, so that small ones share their batches

Told = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Removed:
    """How many rows went."""

    messages: int = 0
    tool_calls: int = 0
    search_rows: int = 0
    exchanges: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


def mark(sessions: QuerySet[Session], *, why: str, reason: str = "", **who: int | None) -> list[UUID]:
    """Begin to remove the first of these sessions: from here on nobody is served them. Held ones are left out."""
    with writing():
        free = sessions.filter(hold=False).exclude(hidden_at=REMOVAL_STARTED).order_by("pk")
        ids = list(free.values_list("pk", flat=True)[:GROUP])
        # Asked again under the lock: somebody may have held or brought back one of them.
        locked = free.filter(pk__in=ids).select_for_update(of=("self",))
        return [_mark(session, why=why, reason=reason, who=who) for session in locked]


def _mark(session: Session, *, why: str, reason: str, who: dict[str, int | None]) -> UUID:
    Session.objects.filter(pk=session.pk).update(hidden_at=REMOVAL_STARTED)
    details = {"why": why, "version": session.version, "seal": session.last_seal.hex()}
    details |= {"entries": Message.objects.of(session).count(), "owner": session.owner_id}
    details |= {"by_key": session.api_key_id} if session.api_key_id else {}
    audit.record("remove", session=session.pk, reason=reason, **who, **details)
    return session.pk


def sessions_being_removed() -> QuerySet[Session]:
    return Session.objects.filter(hidden_at=REMOVAL_STARTED)


def finish(ids: Sequence[UUID]) -> Iterator[Removed]:
    """Remove what was marked, batch by batch. Whoever stops asking may go on another time."""
    for exchanges in batches(Exchange.objects.filter(session_id__in=ids)):
        yield remove_exchanges(exchanges)
    for messages in batches(Message.objects.filter(session_id__in=ids)):
        yield remove_messages(messages)
    yield _remove_sessions(ids)


def remove_messages(ids: Sequence[int]) -> Removed:
    """These rows with everything that hangs on them."""
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
    """The sessions' own rows, and what a writer that knew nothing of it has appended meanwhile."""
    removed = Removed()
    with writing():
        going = sessions_being_removed().filter(pk__in=ids).order_by("pk").select_for_update()
        locked = list(going.values_list("pk", flat=True))
        for late in batches(Message.objects.filter(session_id__in=locked)):
            removed += remove_messages(late)
        for exchanges in batches(Exchange.objects.filter(session_id__in=locked)):
            removed += remove_exchanges(exchanges)
        _remove(ShareLink.objects.filter(session_id__in=locked))
        for relation in _of_others():
            _remove(relation.related_model._base_manager.filter(**{f"{relation.field.name}__in": locked}))
        for name in ("parent", "forked_from"):
            others = Session.objects.filter(**{f"{name}__in": locked})
            with daily_counts.recounting_copies(others if name == "forked_from" else Session.objects.none()):
                others.update(**{name: None}, changed_at=timezone.now())
        _remove(Session.objects.filter(pk__in=locked))
    return removed


def _of_others() -> list[Any]:
    """What other apps have hung on a session: the record does not know them, but it goes with the session."""
    related = Session._meta.get_fields(include_hidden=True)
    found = [field for field in related if isinstance(field, ManyToOneRel) and field.on_delete is CASCADE]
    return [field for field in found if field.related_model._meta.app_label != Session._meta.app_label]


def batches(rows: QuerySet[Any]) -> Iterator[list[Any]]:
    """Primary keys of what is there, as long as something is: the caller removes each batch before asking for more."""
    while ids := list(rows.order_by().values_list("pk", flat=True)[:BATCH]):
        yield ids


def _remove(rows: QuerySet[Any]) -> int:
    """One DELETE. Django's own `delete` would read every row first, to follow relations that we follow ourselves."""
    return writable(rows)._raw_delete(rows.db)
