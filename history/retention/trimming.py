"""Taking the oldest turns out of a session that lives on.

A trim of thousands of entries is a row of small trims, each of them whole: its rows, the counters, the anchor and the
audit event in one transaction. So there is no half-trimmed session to repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from history.access import audit
from history.db.packing import unpack
from history.db.transactions import writing
from history.entries import CONVERSATION, MESSAGES, ToolResults
from history.models import Exchange, Message, Session, ToolCall
from history.record import daily_counts, projections
from history.retention import removal, turns
from history.retention.plans import TrimPlan, entries_through, lock_if_unchanged, outline_of
from history.retention.removal import Removed

STEP = 500


def too_long(sessions: QuerySet[Session], *, limit: int) -> QuerySet[Session]:
    """Sessions that may hold more messages than allowed; who looks closer knows."""
    return sessions.filter(hold=False, version__gt=F("trimmed_through") + limit)


def plan_trim(session: Session, *, limit: int) -> TrimPlan:
    stored = Message.objects.of(session).filter(kind__in=CONVERSATION)
    if stored.count() <= limit:
        return TrimPlan(session.pk, session.version, 0, turns.Outline())
    outline = outline_of(session)
    return TrimPlan(session.pk, session.version, turns.cut_for(outline, limit=limit), outline)


def trim(plan: TrimPlan) -> Iterator[Removed]:
    for cut in turns.steps_to(plan.cut, plan.outline, entries=STEP):
        removed = _trim_once(plan, cut, leaving=plan.outline.still_holding(cut))
        if removed is None:
            return
        yield removed


def _trim_once(plan: TrimPlan, cut: int, *, leaving: Sequence[int]) -> Removed | None:
    """One whole step; None when the session has gone on since the plan was made: the next purge plans anew."""
    with writing():
        session = lock_if_unchanged(plan)
        if session is None or session.trimmed_through >= cut:  # by another purge, which had the same plan
            return None
        rows = entries_through(session.pk, cut, leaving=leaving)
        _count_out(session, rows)
        session.trimmed_through = cut
        session.anchor_seal = Message.objects.values_list("seal", flat=True).get(session=session, seq=cut)
        kept = Message.objects.of(session).filter(seq__in=leaving).values_list("seq", "digest")
        audit.record(
            "trim",
            session=session.pk,
            through=cut,
            entries=rows.count(),
            seal=session.anchor_seal.hex(),
            kept={str(seq): digest.hex() for seq, digest in kept},
        )
        session.changed_at = timezone.now()
        with daily_counts.recounting(exchanges=Exchange.objects.of(session).filter(after__lt=cut, message=None)):
            session.save(update_fields=["trimmed_through", "anchor_seal", "changed_at", *COUNTERS])
        return removal.remove_messages(list(rows.values_list("pk", flat=True)))


COUNTERS = ("message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens")


def _count_out(session: Session, rows: QuerySet[Message]) -> None:
    """Counters are sums over what is stored: take out what these rows brought in."""
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
    kept = sum(projections.errors_left(kind=ToolResults.kind, status="", metadata=told) for told in dropped.iterator())
    return failed + kept + sum(failures_in(body) for body in results.iterator())


def failures_in(body: str | None) -> int:
    """Of results, whatever else they say."""
    return projections.errors_in(unpack(body or "null", _NoTexts()))


class _NoTexts(dict[str, bytes]):
    """Blobs whose texts do not matter: only what stands beside them is looked at."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> bytes:
        return b"null"
