"""Taking the texts out of the oldest turns of a session; their places stay.

It is told to the audit chain first and then done batch by batch. Only when all is done the session says how far it went
(`dropped_through`), and nobody looks at those entries again; what a crash leaves undone is found by the next purge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from history.access import audit
from history.db.transactions import writing
from history.entries import ToolResults
from history.models import Exchange, Message, Session, ToolCall
from history.models.append_only import writable
from history.record import projections
from history.retention import removal, turns
from history.retention.plans import TrimPlan, lock_if_unchanged, outline_of
from history.retention.trimming import failures_in


def with_old_texts(sessions: QuerySet[Session], *, before: datetime) -> QuerySet[Session]:
    """Sessions whose oldest text is older than that; an import's texts are as old as the import."""
    left = sessions.filter(hold=False, created_at__lt=before, version__gt=F("dropped_through"))
    texts = Message.objects.filter(session=OuterRef("pk"), seq__gt=OuterRef("dropped_through")).order_by("seq")
    imported = Q(source=Session.Source.IMPORT)
    old = (~imported & Q(oldest_text__lt=before)) | (imported & Q(stored_at__lt=before))
    return left.annotate(oldest_text=Subquery(texts.values("created_at")[:1])).filter(old)


def plan_drop(session: Session, *, before: datetime) -> TrimPlan:
    outline = outline_of(session)
    young = Message.objects.of(session).filter(created_at__gte=before).order_by("seq")
    if session.source == Session.Source.IMPORT:
        young = young.none()
    first = young.values_list("seq", flat=True).first()
    return TrimPlan(session.pk, session.version, turns.cut_before(first or session.version + 1, outline), outline)


def drop(plan: TrimPlan, *, now: datetime) -> Iterator[tuple[int, int]]:
    """How many texts and search rows went, batch by batch."""
    rows = plan.entries().filter(dropped_at=None)
    if not plan.cut or not _tell_drop(plan, rows):
        return
    while ids := list(rows.order_by().values_list("pk", flat=True)[: removal.BATCH]):
        dropped = _drop_batch(plan.session_id, ids, now)
        if dropped is None:
            return
        yield dropped
    with writing():
        _note_done(plan)


def _tell_drop(plan: TrimPlan, rows: QuerySet[Message]) -> bool:
    """Whether there is anything to drop."""
    with writing():
        session = lock_if_unchanged(plan)
        if session is None:
            return False
        count = rows.count()
        if not count:
            _note_done(plan)
            return False
        audit.record("drop", session=session.pk, through=plan.cut, entries=count)
        if plan.cut == session.version:
            Session.objects.filter(pk=session.pk).update(title="")
        _drop_inputs(plan)
    return True


def _note_done(plan: TrimPlan) -> None:
    before = Session.objects.filter(pk=plan.session_id, dropped_through__lt=plan.cut)
    before.update(dropped_through=plan.cut, changed_at=timezone.now())


def _drop_batch(session_id: UUID, ids: Sequence[int], now: datetime) -> tuple[int, int] | None:
    nothing: dict[str, Any] = {"body": None, "salt": None, "content": "", "metadata": {}, "dropped_at": now}
    with writing():
        if not Session.objects.select_for_update().filter(pk=session_id, hold=False).exists():
            return None
        texts = Message.objects.filter(pk__in=ids, dropped_at=None)
        failures = texts.filter(kind=ToolResults.kind, body__contains='"status":"failed"').values_list("pk", "body")
        failed = {pk: failures_in(body) for pk, body in failures}
        # First, so that it waits for a rebuild of the search index that is at these rows; then its rows are seen, too.
        dropped = writable(texts).update(**nothing)
        for pk, number in failed.items():
            writable(Message.objects.filter(pk=pk)).update(metadata={projections.FAILED_RESULTS: number})
        removal.unlink_blobs(ids)
        writable(ToolCall.objects.filter(message_id__in=ids)).update(arguments="", result="", error="")
        return dropped, removal.remove_search_rows(ids)


def _drop_inputs(plan: TrimPlan) -> None:
    """What the calls of those turns were made from is text of the same age."""
    ended = Exchange.objects.of(plan.session_id).filter(after__lte=plan.cut).exclude(ended_at=None)
    ids = list(ended.filter(~Q(inputs={}) | ~Q(error="") | ~Q(metadata={})).values_list("pk", flat=True))
    for start in range(0, len(ids), removal.BATCH):
        batch = ids[start : start + removal.BATCH]
        removal.unlink_inputs(batch)
        Exchange.objects.filter(pk__in=batch).update(inputs={}, error="", metadata={})
