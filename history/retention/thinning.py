"""Taking the oldest turns out of a session that lives on, or only their texts.

A trim of thousands of entries is a row of small trims, each of them whole: its rows, the counters, the anchor and the
audit event in one transaction. So there is no half-trimmed session to repair.

Dropping texts is told to the audit chain first and then done batch by batch; what a crash leaves undone is old enough
to be found by the next purge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum

from history import audit, projections
from history.bodies import unpack
from history.entries import CONVERSATION, ToolResults
from history.models import Exchange, Message, Session, ToolCall
from history.retention import removal, turns
from history.retention.removal import Removed
from history.transactions import writing

STEP = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one session: cut after entry `cut`, and leave the entries that still hold."""

    session_id: UUID
    version: int
    cut: int
    outline: turns.Outline

    def entries(self) -> QuerySet[Message]:
        return entries_through(self.session_id, self.cut, leaving=self.outline.still_holding(self.cut))


def entries_through(session_id: UUID, cut: int, *, leaving: Sequence[int]) -> QuerySet[Message]:
    return Message.objects.filter(session_id=session_id, seq__lte=cut).exclude(seq__in=leaving)


def outline_of(session: Session) -> turns.Outline:
    outline = turns.Outline(trimmed_through=session.trimmed_through, head=session.head)
    rows = Message.objects.filter(session=session).order_by("seq").values_list("seq", "parent_seq", "kind")
    for seq, parent, kind in rows.iterator(chunk_size=2_000):
        outline.add(seq, parent, kind)
    return outline


# Trimming.


def too_long(sessions: QuerySet[Session], *, limit: int) -> QuerySet[Session]:
    """Sessions that may hold more messages than allowed; who looks closer knows."""
    return sessions.filter(hold=False, version__gt=F("trimmed_through") + limit)


def plan_trim(session: Session, *, limit: int) -> Plan:
    stored = Message.objects.filter(session=session, kind__in=CONVERSATION)
    if stored.count() <= limit:
        return Plan(session.pk, session.version, 0, turns.Outline())
    outline = outline_of(session)
    return Plan(session.pk, session.version, turns.cut_for(outline, limit=limit), outline)


def trim(plan: Plan) -> Iterator[Removed]:
    for cut in turns.steps_to(plan.cut, plan.outline, entries=STEP):
        removed = _trim_once(plan, cut, leaving=plan.outline.still_holding(cut))
        if removed is None:
            return
        yield removed


def _trim_once(plan: Plan, cut: int, *, leaving: Sequence[int]) -> Removed | None:
    """One whole step; None when the session has gone on since the plan was made: the next purge plans anew."""
    with writing():
        session = _unchanged(plan)
        if session is None or session.trimmed_through >= cut:  # by another purge, which had the same plan
            return None
        rows = entries_through(session.pk, cut, leaving=leaving)
        _count_out(session, rows)
        session.trimmed_through = cut
        session.anchor_seal = Message.objects.values_list("seal", flat=True).get(session=session, seq=cut)
        kept = Message.objects.filter(session=session, seq__in=leaving).values_list("seq", "digest")
        audit.record(
            "trim",
            session=session.pk,
            through=cut,
            entries=rows.count(),
            seal=session.anchor_seal.hex(),
            kept={str(seq): digest.hex() for seq, digest in kept},
        )
        removed = removal.remove_messages(list(rows.values_list("pk", flat=True)))
        session.save(update_fields=["trimmed_through", "anchor_seal", *COUNTERS])
        return removed


def _unchanged(plan: Plan) -> Session | None:
    locked = Session.objects.select_for_update().filter(pk=plan.session_id, version=plan.version, hold=False)
    return locked.first()


COUNTERS = ("message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens")


def _count_out(session: Session, rows: QuerySet[Message]) -> None:
    """Counters are sums over what is stored: take out what these rows brought in."""
    tokens = rows.aggregate(read=Sum("input_tokens", default=0), written=Sum("output_tokens", default=0))
    gone = {
        "message_count": rows.filter(on_path=True, kind__in=CONVERSATION).count(),
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
    return failed + sum(projections.errors_in(unpack(body or "null", _NoTexts())) for body in results.iterator())


class _NoTexts(dict[str, bytes]):
    """Blobs whose texts do not matter: only what stands beside them is looked at."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> bytes:
        return b"null"


# Dropping texts.


def with_old_texts(sessions: QuerySet[Session], *, before: datetime) -> QuerySet[Session]:
    """Sessions whose oldest text is older than that; an import's texts are as old as the import."""
    texts = Message.objects.filter(session=OuterRef("pk"), dropped_at=None, is_state=False).order_by("seq")
    oldest = Subquery(texts.values("created_at")[:1])
    imported = Q(source=Session.Source.IMPORT)
    old = (~imported & Q(oldest_text__lt=before)) | (imported & Q(stored_at__lt=before, oldest_text__isnull=False))
    return sessions.filter(hold=False, created_at__lt=before).annotate(oldest_text=oldest).filter(old)


def plan_drop(session: Session, *, before: datetime) -> Plan:
    outline = outline_of(session)
    young = Message.objects.filter(session=session, created_at__gte=before).order_by("seq")
    if session.source == Session.Source.IMPORT:
        young = young.none()
    first = young.values_list("seq", flat=True).first()
    return Plan(session.pk, session.version, turns.cut_before(first or session.version + 1, outline), outline)


def drop(plan: Plan, *, now: datetime) -> Iterator[tuple[int, int]]:
    """How many texts and search rows went, batch by batch."""
    rows = plan.entries().filter(dropped_at=None)
    if not plan.cut or not _tell_drop(plan, rows):
        return
    while ids := list(rows.order_by().values_list("pk", flat=True)[: removal.BATCH]):
        dropped = _drop_batch(plan.session_id, ids, now)
        if dropped is None:
            return
        yield dropped


def _tell_drop(plan: Plan, rows: QuerySet[Message]) -> bool:
    with writing():
        session = _unchanged(plan)
        count = rows.count() if session else 0
        if session is None or not count:
            return False
        audit.record("drop", session=session.pk, through=plan.cut, entries=count)
        if plan.cut == session.version:
            Session.objects.filter(pk=session.pk).update(title="")
        _drop_inputs(plan)
    return True


def _drop_batch(session_id: UUID, ids: Sequence[int], now: datetime) -> tuple[int, int] | None:
    nothing: dict[str, Any] = {"body": None, "salt": None, "content": "", "metadata": {}, "dropped_at": now}
    with writing():
        if not Session.objects.select_for_update().filter(pk=session_id, hold=False).exists():
            return None
        # First, so that it waits for a rebuild of the search index that is at these rows; then its rows are seen, too.
        dropped = Message.objects.filter(pk__in=ids, dropped_at=None).update(**nothing)
        removal.unlink_blobs(ids)
        ToolCall.objects.filter(message_id__in=ids).update(arguments="", result="", error="")
        return dropped, removal.remove_search_rows(ids)


def _drop_inputs(plan: Plan) -> None:
    """What the calls of those turns were made from is text of the same age."""
    ended = Exchange.objects.filter(session_id=plan.session_id, after__lte=plan.cut).exclude(ended_at=None)
    ids = list(ended.filter(~Q(inputs={}) | ~Q(error="") | ~Q(metadata={})).values_list("pk", flat=True))
    for start in range(0, len(ids), removal.BATCH):
        batch = ids[start : start + removal.BATCH]
        removal.unlink_inputs(batch)
        Exchange.objects.filter(pk__in=batch).update(inputs={}, error="", metadata={})
