"""A client that tries again sends the same body and says which try it is: that is one call with attempts, not two.

The earlier try's row goes on under the id of the later one, which is the id that the client was told last; the earlier
id leads there. What the earlier one had said already (an error, half an answer) stays in the record, beside the answer
that came in the end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from history.entries import HeadMoved
from history.models import EarlierTry, Exchange
from relay.gateway.digest.exchange_rows import cost_of_tries
from relay.gateway.digest.plans import Plan
from relay.gateway.digest.reading import Asked

# SDKs wait at most two minutes before they try again, and a call may take ten until they give it up.
WITHIN = timedelta(minutes=15)


def earlier_try(asked: Asked) -> Exchange | None:
    if not asked.retry or not asked.body_hash:
        return None
    same = Exchange.objects.filter(
        api_key_id=asked.record.key,
        request_hash=asked.body_hash,
        started_at__gte=asked.at - WITHIN,
        started_at__lte=asked.at,
        ended_at__isnull=False,
    )
    return same.select_related("message", "session").order_by("-started_at", "-id").first()


def go_on(plan: Plan, earlier: Exchange) -> None:
    """Plan the later try as one more attempt of the earlier one."""
    plan.earlier, plan.session_id, plan.after = earlier, earlier.session_id, earlier.after
    plan.attempts = earlier.attempts
    plan.metadata = {**_kept(earlier), "retried": [*earlier.metadata.get("retried", []), _told(earlier)]}
    session = earlier.session
    if session is not None and session.head != earlier.after:
        plan.entries = [HeadMoved(at=plan.asked.at, to=earlier.after, reason="retry")]
        plan.start = earlier.after


def rename(plan: Plan) -> None:
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


_OF_ONE_TRY = ("headers", "upstream", "error_body", "reply_bytes", "lost_bytes", "skipped_events")


def _kept(earlier: Exchange) -> dict[str, Any]:
    return {name: value for name, value in earlier.metadata.items() if name not in _OF_ONE_TRY}


def _told(earlier: Exchange) -> dict[str, Any]:
    said = {
        "exchange": str(earlier.pk),
        "at": earlier.started_at.isoformat(),
        "end_reason": earlier.end_reason,
        "status": earlier.status_code,
        "error": earlier.error[:500],
        "entry": earlier.message.seq if earlier.message else None,
        "cost": str(own) if (own := earlier.cost - cost_of_tries(earlier.metadata)) else "",
    }
    return {name: value for name, value in said.items() if value}
