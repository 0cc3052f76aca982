"""Trimming of the oldest turns, and dropping of the oldest texts, of sessions that stay.

A long trim is a series of small ones, each in one transaction with its audit event. A drop is written to the audit
chain first and done in batches; `dropped_through` says how far it went, so that the next purge can continue.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.utils import timezone

from history.access import audit
from history.db.packing import unpack
from history.db.transactions import writing
from history.entries import CONVERSATION, MESSAGES, ToolResults
from history.models import Exchange, Message, Session, ToolCall
from history.models.append_only import writable
from history.record import daily_counts, projections
from history.retention import removal, turns
from history.retention.removal import Removed

STEP = 500


def plan_trim(session: Session, *, limit: int) -> "TrimPlan":
    stored = Message.objects.of(session).filter(kind__in=CONVERSATION)
    outline = outline_of(session) if stored.count() > limit else turns.Outline()
    return TrimPlan(session.pk, session.version, turns.cut_for(outline, limit=limit), outline)


def trim(plan: "TrimPlan") -> Iterator[Removed]:
    for cut in turns.steps_to(plan.cut, plan.outline, entries=STEP):
        removed = _trim_once(replace(plan, cut=cut))
        if removed is None:
            return
        yield removed


def _trim_once(plan: "TrimPlan") -> Removed | None:
    """One whole step. None if the session has changed since the plan was made; the next purge plans again."""
    cut = plan.cut
    with writing():
        session = lock_if_unchanged(plan)
        if session is None or session.trimmed_through >= cut:  # by another purge with the same plan
            return None
        rows = plan.entries()
        _count_out(session, rows)
        seal = Message.objects.at(session, cut).values_list("seal", flat=True).get()
        leaving = Message.objects.of(session).filter(seq__in=plan.outline.still_holding(cut))
        kept = {str(seq): digest.hex() for seq, digest in leaving.values_list("seq", "digest")}
        audit.record("trim", session=session.pk, through=cut, entries=rows.count(), seal=seal.hex(), kept=kept)
        session.trimmed_through, session.anchor_seal, session.changed_at = cut, seal, timezone.now()
        failed = Exchange.objects.filter(session=session).filter(after__lt=cut, message=None)
        with daily_counts.recounting(exchanges=failed):
            session.save(update_fields=["trimmed_through", "anchor_seal", "changed_at", *Session.COUNTERS])
        return removal.remove_messages(list(rows.values_list("pk", flat=True)))


def _count_out(session: Session, rows: QuerySet[Message]) -> None:
    tokens = rows.aggregate(read=Sum("input_tokens", default=0), written=Sum("output_tokens", default=0))
    gone = {
        "message_count": rows.filter(on_path=True, kind__in=MESSAGES, is_internal=False).count(),
        "tool_call_count": ToolCall.objects.filter(message__in=rows).count(),
        "error_count": errors_in(rows),
        "input_tokens": tokens["read"],
        "output_tokens": tokens["written"],
    }
    for name, count in gone.items():
        setattr(session, name, max(0, getattr(session, name) - count))


def errors_in(rows: QuerySet[Message]) -> int:
    failed = rows.filter(kind="model_output", status=Message.Status.FAILED).count()
    results = rows.filter(kind=ToolResults.kind, body__contains='"status":"failed"').values_list("body", flat=True)
    dropped = rows.filter(kind=ToolResults.kind, body=None).exclude(metadata={}).values_list("metadata", flat=True)
    kept = sum(int(left.get(projections.FAILED_RESULTS, 0)) for left in dropped.iterator())
    return failed + kept + sum(failures_in(body) for body in results.iterator())


def failures_in(body: str | None) -> int:
    any_text: defaultdict[str, bytes] = defaultdict(lambda: b"null")
    return projections.errors_in(unpack(body or "null", any_text))


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """The plan for one session: cut after entry `cut`, except for entries that still apply."""

    session_id: UUID
    version: int
    cut: int
    outline: turns.Outline

    def entries(self) -> QuerySet[Message]:
        leaving = self.outline.still_holding(self.cut)
        return Message.objects.of(self.session_id).filter(seq__lte=self.cut).exclude(seq__in=leaving)


def outline_of(session: Session) -> turns.Outline:
    outline = turns.Outline(trimmed_through=session.trimmed_through, head=session.head)
    rows = Message.objects.of(session).order_by("seq").values_list("seq", "parent_seq", "kind")
    for seq, parent, kind in rows.iterator(chunk_size=2_000):
        outline.add(seq, parent, kind)
    return outline


def lock_if_unchanged(plan: TrimPlan) -> Session | None:
    """The locked session. None if it has new entries since the plan was made, or is held."""
    return Session.objects.select_for_update().filter(pk=plan.session_id, version=plan.version, hold=False).first()


def with_old_texts(sessions: QuerySet[Session], *, before: datetime) -> QuerySet[Session]:
    """Sessions whose oldest text is older than `before`. Texts of an import are as old as the import."""
    left = sessions.filter(hold=False, created_at__lt=before, version__gt=F("dropped_through"))
    texts = Message.objects.filter(session=OuterRef("pk"), seq__gt=OuterRef("dropped_through")).order_by("seq")
    imported = Q(source=Session.Source.IMPORT)
    old = (~imported & Q(oldest_text__lt=before)) | (imported & Q(stored_at__lt=before))
    return left.annotate(oldest_text=Subquery(texts.values("created_at")[:1])).filter(old)


def plan_drop(session: Session, *, before: datetime) -> TrimPlan:
    outline = outline_of(session)
    young = Message.objects.of(session).filter(created_at__gte=before).order_by("seq").values_list("seq", flat=True)
    first = None if session.source == Session.Source.IMPORT else young.first()
    return TrimPlan(session.pk, session.version, turns.cut_before(first or session.version + 1, outline), outline)


def drop(plan: TrimPlan, *, now: datetime) -> Iterator[tuple[int, int]]:
    """Yields the numbers of dropped texts and search rows of each batch."""
    rows = plan.entries().filter(dropped_at=None)
    if not plan.cut or not _record_drop(plan, rows):
        return
    while ids := list(rows.order_by().values_list("pk", flat=True)[: removal.BATCH]):
        dropped = _drop_batch(plan.session_id, ids, now)
        if dropped is None:
            return
        yield dropped
    with writing():
        _note_done(plan)


def _record_drop(plan: TrimPlan, rows: QuerySet[Message]) -> bool:
    """Write the drop to the audit chain. False if there is nothing to drop."""
    with writing():
        session = lock_if_unchanged(plan)
        if session is None:
            return False
        count = rows.count()
        if not count:
            _note_done(plan)
            return False
        title: dict[str, Any] = {"title": ""} if plan.cut == session.version else {}
        audit.record("drop", session=session.pk, through=plan.cut, entries=count, **title)
        if title:
            Session.objects.filter(pk=session.pk).update(**title)
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
        # First, to wait for a rebuild of these search rows, whose new rows are then found.
        dropped = writable(texts).update(**nothing)
        for pk, number in failed.items():
            writable(Message.objects.filter(pk=pk)).update(metadata={projections.FAILED_RESULTS: number})
        removal.unlink_blobs(ids)
        writable(ToolCall.objects.filter(message_id__in=ids)).update(arguments="", result="", error="")
        return dropped, removal.remove_search_rows(ids)


def _drop_inputs(plan: TrimPlan) -> None:
    """The inputs of calls are as old as their turns."""
    ended = Exchange.objects.filter(session=plan.session_id).filter(after__lte=plan.cut).exclude(ended_at=None)
    ids = list(ended.filter(~Q(inputs={}) | ~Q(error="") | ~Q(metadata={})).values_list("pk", flat=True))
    for start in range(0, len(ids), removal.BATCH):
        batch = ids[start : start + removal.BATCH]
        removal.unlink_inputs(batch)
        Exchange.objects.filter(pk__in=batch).update(inputs={}, error="", metadata={})
