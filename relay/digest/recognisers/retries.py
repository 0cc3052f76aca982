"""Retries: a client that sends the same body again and counts its attempts makes one call with attempts, not two.

The earlier try's row becomes the later one's, under the id that the client got last; the earlier id leads there.
What the earlier try had brought (an error, half an answer) stays in the record, beside the final answer.
"""

from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Q

from history.entries import HeadMoved, JsonDict, JsonObject
from history.models import EarlierTry, Exchange, Session
from relay.digest.calls import NO_COST, CallPlan
from relay.digest.requests import RelayedRequest

WITHIN = timedelta(minutes=15)  # SDKs wait at most two minutes before they try again, and may wait ten for an answer
CLOCKS_DIFFER = timedelta(minutes=1)  # between two hosts
LOST_WITHIN = timedelta(minutes=1)  # a whole answer that was lost on its way to the client is asked for again at once
WHOLE = ("done", "not_kept")
TRY, NAMED = "try", "named"  # metadata by which the next try finds the exchange
TRIED_AT = "tried_at"  # the row began with the first try: the time of a later one is metadata
MOST_SEEN = 100
_OF_ONE_TRY = ("headers", "upstream", "error_body", "reply_bytes", "lost_bytes", "skipped_events")


def is_earlier_try(other: RelayedRequest, *, of: RelayedRequest) -> bool:
    return (
        (other.record.key, other.session, other.body_hash) == (of.record.key, of.session, of.body_hash)
        and other.retry < of.retry
        and other.at <= of.at + CLOCKS_DIFFER
    )


def earlier_try(request: RelayedRequest, *, pending: UUID | None = None) -> Exchange | None:
    """The row of the try before this one; that of a `pending` one only if no failed one fits.

    Many calls have the same body (parallel samples), so only the session that the request names counts. A try that
    failed or is pending comes before one whose answer was whole: a client that has read that does not ask again.
    """
    if not request.retry or not request.body_hash:
        return None
    same = Exchange.objects.filter(
        Q(ended_at__isnull=False) | Q(pk=pending),
        Q(session=None) | Q(session__state=Session.State.OPEN),
        api_key_id=request.record.key,
        request_hash=request.body_hash,
        started_at__range=(request.at - WITHIN, request.at + CLOCKS_DIFFER),
    )
    rows = same.select_related("message", "session").order_by("-started_at", "-id")[:MOST_SEEN]
    return max((row for row in rows if _can_be_retried(row, request)), key=_rank, default=None)


def _can_be_retried(row: Exchange, request: RelayedRequest) -> bool:
    if row.metadata.get(NAMED, "") != session_name(request) or row.metadata.get(TRY, 0) >= request.retry:
        return False
    return row.end_reason not in WHOLE or (row.ended_at is not None and row.ended_at >= request.at - LOST_WITHIN)


def _rank(row: Exchange) -> tuple[bool, bool, int, datetime]:
    return row.end_reason not in WHOLE, row.ended_at is not None, row.metadata.get(TRY, 0), row.started_at


def session_name(request: RelayedRequest) -> str:
    return request.session.hex if request.session else ""


def plan_retry(plan: CallPlan, earlier: Exchange) -> None:
    plan.earlier, plan.session_id, plan.after = earlier, earlier.session_id, earlier.after
    plan.attempts = earlier.attempts
    kept = {name: value for name, value in earlier.metadata.items() if name not in _OF_ONE_TRY}
    retried = [*earlier.metadata.get("retried", []), _describe(earlier)]
    plan.metadata = {**kept, TRY: plan.request.retry, TRIED_AT: plan.request.at.isoformat(), "retried": retried}
    session = earlier.session
    if session is not None and session.head != earlier.after and not earlier.metadata.get("helper"):
        plan.entries = [HeadMoved(at=plan.request.at, to=earlier.after, reason="retry")]
        plan.start = earlier.after


def plan_way_back(plan: CallPlan) -> None:
    """A later try has overtaken this call: what it brings after all becomes a branch beside that answer."""
    if plan.session_id and Session.objects.filter(pk=plan.session_id, head=plan.after).exists():
        plan.way_back = HeadMoved(at=plan.request.at, to=plan.after, reason="retry")


def rename_exchange(plan: CallPlan) -> None:
    if plan.earlier is None:
        return
    before, now = plan.earlier.pk, plan.call.id
    reset = {"ended_at": None, "end_reason": "", "message": None, "status_code": None, "error": ""}
    Exchange.objects.filter(pk=before).update(id=now, attempts=plan.attempts + 1, metadata=plan.metadata, **reset)
    EarlierTry.objects.filter(exchange=before).update(exchange=now)
    EarlierTry.objects.create(pk=before, exchange_id=now)


def cost_of_tries(metadata: JsonObject) -> Decimal:
    """What the client's earlier tries have cost, which are on the same row."""
    return sum((Decimal(one.get("cost", 0)) for one in metadata.get("retried", ())), NO_COST)


def _describe(earlier: Exchange) -> JsonDict:
    own_cost = earlier.cost - cost_of_tries(earlier.metadata)
    facts = {
        "exchange": str(earlier.pk),
        "at": earlier.metadata.get(TRIED_AT) or earlier.started_at.isoformat(),
        "end_reason": earlier.end_reason,
        "status": earlier.status_code,
        "error": earlier.error[:500],
        "entry": earlier.message.seq if earlier.message else None,
        "cost": str(own_cost) if own_cost else "",
    }
    return {name: value for name, value in facts.items() if value}
