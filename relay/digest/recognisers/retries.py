"""A client that tries again sends the same body and says which try it is: that is one call with attempts, not two.

The earlier try's row goes on under the id of the later one, which is the id that the client was told last; the earlier
id leads there. What the earlier one had said already (an error, half an answer) stays in the record, beside the answer
that came in the end.

Many calls have the same body: samples that are asked for at the same time, the same words in two conversations. So a
retry goes on from an earlier try in the session that it names, if it names one, and rather from one that failed, or is
still under way after all, than from one whose answer was whole: whoever saw that does not ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q

from history.entries import HeadMoved
from history.models import EarlierTry, Exchange, Session
from relay.digest.calls import CallPlan
from relay.digest.requests import RelayedRequest

# SDKs wait at most two minutes before they try again, and a call may take ten until they give it up.
WITHIN = timedelta(minutes=15)
# Two hosts need not have the same time to the second.
CLOCKS_DIFFER = timedelta(minutes=1)
# A whole answer that was lost on its last metres is asked for again at once.
LOST_WITHIN = timedelta(minutes=1)
WHOLE = ("done", "not_kept")
# What is kept of a call beside its columns, for the next try to find it.
TRY, NAMED = "try", "named"
# The row began with the first try: when a later one was made is kept beside it.
TRIED_AT = "tried_at"
MOST_SEEN = 100


def is_earlier_try(other: RelayedRequest, *, of: RelayedRequest) -> bool:
    """Whether that one may be what this one tries again."""
    return (
        (other.record.key, other.session, other.body_hash) == (of.record.key, of.session, of.body_hash)
        and other.retry < of.retry
        and other.at <= of.at + CLOCKS_DIFFER
    )


def earlier_try(asked: RelayedRequest, *, under_way: UUID | None = None) -> Exchange | None:
    """The row of the try before this one; that of one `under_way` only if nothing that has failed explains it."""
    if not asked.retry or not asked.body_hash:
        return None
    same = Exchange.objects.filter(
        Q(ended_at__isnull=False) | Q(pk=under_way),
        Q(session=None) | Q(session__hidden_at=None),
        api_key_id=asked.record.key,
        request_hash=asked.body_hash,
        started_at__range=(asked.at - WITHIN, asked.at + CLOCKS_DIFFER),
    )
    rows = same.select_related("message", "session").order_by("-started_at", "-id")[:MOST_SEEN]
    return max((row for row in rows if _explains(row, asked)), key=_rank, default=None)


def _explains(row: Exchange, asked: RelayedRequest) -> bool:
    if row.metadata.get(NAMED, "") != name_of(asked) or row.metadata.get(TRY, 0) >= asked.retry:
        return False
    return row.end_reason not in WHOLE or (row.ended_at is not None and row.ended_at >= asked.at - LOST_WITHIN)


def _rank(row: Exchange) -> tuple[Any, ...]:
    return row.end_reason not in WHOLE, row.ended_at is not None, row.metadata.get(TRY, 0), row.started_at


def name_of(asked: RelayedRequest) -> str:
    return asked.session.hex if asked.session else ""


def go_on(plan: CallPlan, earlier: Exchange) -> None:
    """Plan the later try as one more attempt of the earlier one."""
    plan.earlier, plan.session_id, plan.after = earlier, earlier.session_id, earlier.after
    plan.attempts = earlier.attempts
    retried = [*earlier.metadata.get("retried", []), _told(earlier)]
    plan.metadata = {**_kept(earlier), TRY: plan.asked.retry, TRIED_AT: plan.asked.at.isoformat(), "retried": retried}
    session = earlier.session
    is_beside = bool(earlier.metadata.get("helper"))
    if session is not None and session.head != earlier.after and not is_beside:
        plan.entries = [HeadMoved(at=plan.asked.at, to=earlier.after, reason="retry")]
        plan.start = earlier.after


def set_aside(plan: CallPlan) -> None:
    """It was tried again while it was under way: what it brings after all stands beside the later try's answer."""
    if plan.session_id and Session.objects.filter(pk=plan.session_id, head=plan.after).exists():
        plan.way_back = HeadMoved(at=plan.asked.at, to=plan.after, reason="retry")


def rename(plan: CallPlan) -> None:
    """From now on the row is the later try's, and open again."""
    if plan.earlier is None:
        return
    before, now = plan.earlier.pk, plan.under.id
    Exchange.objects.filter(pk=before).update(
        id=now,
        attempts=plan.attempts + 1,
        ended_at=None,
        end_reason="",
        message=None,
        status_code=None,
        error="",
        metadata=plan.metadata,
    )
    EarlierTry.objects.filter(exchange=before).update(exchange=now)
    EarlierTry.objects.create(pk=before, exchange_id=now)


def cost_of_tries(metadata: Mapping[str, Any]) -> Decimal:
    """What the client's earlier tries have cost, which are told on the same row."""
    return sum((Decimal(one.get("cost", 0)) for one in metadata.get("retried", ())), Decimal(0))


_OF_ONE_TRY = ("headers", "upstream", "error_body", "reply_bytes", "lost_bytes", "skipped_events")


def _kept(earlier: Exchange) -> dict[str, Any]:
    return {name: value for name, value in earlier.metadata.items() if name not in _OF_ONE_TRY}


def _told(earlier: Exchange) -> dict[str, Any]:
    said = {
        "exchange": str(earlier.pk),
        "at": earlier.metadata.get(TRIED_AT) or earlier.started_at.isoformat(),
        "end_reason": earlier.end_reason,
        "status": earlier.status_code,
        "error": earlier.error[:500],
        "entry": earlier.message.seq if earlier.message else None,
        "cost": str(own) if (own := earlier.cost - cost_of_tries(earlier.metadata)) else "",
    }
    return {name: value for name, value in said.items() if value}
