"""One call as a row of `Exchange`: what was accepted, how it ended, what it cost, and how its session was found."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from history import bodies, redaction, rows
from history.entries import Usage, thawed
from history.models import Exchange
from relay import prices
from relay.gateway.digest.answers import answered_by
from relay.gateway.digest.plans import Plan
from relay.gateway.digest.retries import NAMED, TRY, name_of
from relay.gateway.records import Ended

NOTHING = Decimal(0)
# Its sign of life is the journal. Should that never be read again, it counts as lost after so long.
WAITS_FOR = timedelta(days=1)

# The columns that the end of a call changes.
ENDING = (
    *("session", "provider", "model", "ended_at", "end_reason", "message", "attempts", "status_code", "error"),
    *("usage", "cost", "metadata"),
)
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "source")


def row_of(plan: Plan) -> Exchange:
    asked, record = plan.asked, plan.asked.record
    texts = {"provider": record.provider, "model": record.model, "dialect": record.dialect}
    said = rows.fitting(Exchange, {**texts, **_ending(plan), "metadata": _metadata(plan)})
    return rows.new(
        Exchange,
        id=record.exchange,
        session_id=plan.session_id,
        owner_id=plan.key.owner_id,
        api_key=plan.key,
        after=plan.after,
        history_version=plan.after,
        request_hash=asked.body_hash,
        started_at=asked.at,
        heartbeat_at=asked.at + WAITS_FOR,
        message_id=plan.message_id if plan.answer else None,
        **said,
    )


def notes_at_accept(plan: Plan) -> dict[str, Any]:
    """What is said of a call besides the columns; only what there is to say."""
    asked, record = plan.asked, plan.asked.record
    said = {
        "client": asked.client,
        "path": record.path,
        "request_bytes": record.body_size,
        "streamed": record.stream,
        "helper": asked.side,
        "removed_session_field": record.removed_session_field,
        "translated_to": record.upstream_dialect if record.upstream_dialect != record.dialect else "",
        "problem": asked.problem,
        TRY: asked.retry,
        NAMED: name_of(asked),
    }
    return {name: value for name, value in said.items() if value}


def cost_of(plan: Plan) -> Decimal:
    """As it was told when it ended, or at the price of that day."""
    ended, answer = plan.under.ended, plan.answer
    if ended is not None and answer is not None and not ended.is_counted:
        by, day = answered_by(plan.asked.record, ended), date.fromtimestamp(ended.at)
        return prices.cost_of(answer.usage, provider=by.provider, model=by.model, on=day) if answer.usage else NOTHING
    try:
        return Decimal(str(ended.metadata.get("cost", 0))) if ended else NOTHING
    except InvalidOperation:
        return NOTHING


def redacted(plan: Plan, text: str) -> str:
    """A text that is no part of an entry, as the key lets it be kept."""
    if not text or not plan.keeps_texts:
        return ""
    return redaction.redacted_text(text, redaction.redactors_for(plan.key.recording))[0][: bodies.LONG_TEXT]


def _ending(plan: Plan) -> dict[str, Any]:
    ended, answer = plan.under.ended, plan.answer
    if ended is None or answer is None:
        return {"attempts": max(1, plan.attempts)}
    by = answered_by(plan.asked.record, ended)
    return {
        "provider": by.provider,
        "model": by.model,
        "ended_at": datetime.fromtimestamp(ended.at, UTC),
        "end_reason": answer.reason or "done",
        "attempts": plan.attempts + max(1, len(ended.attempts)),
        "status_code": ended.status or None,
        "error": redacted(plan, answer.error),
        "usage": _usage(answer.usage),
        "cost": cost_of(plan),
    }


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    raw = bodies.clean_json(thawed(usage.raw))
    return {name: getattr(usage, name) for name in _COUNTS} | ({"raw": raw} if raw else {})


def _metadata(plan: Plan) -> dict[str, Any]:
    ended, answer = plan.under.ended, plan.answer
    if ended is None or answer is None:
        return plan.metadata
    said = {
        "reply_bytes": ended.reply_size,
        "lost_bytes": ended.lost_bytes,
        "skipped_events": answer.skipped,
        "upstream": _attempts(plan, ended) if len(ended.attempts) > 1 or answer.error else [],
        "headers": {name: value for name, value in ended.response_headers if name.lower() != "set-cookie"},
        "error_body": redacted(plan, answer.error_body),
    }
    others = {name: value for name, value in ended.metadata.items() if name not in ("cost", "model", "dialect")}
    if "dialect" in ended.metadata:
        spoken = str(ended.metadata["dialect"])
        others["translated_to"] = spoken if spoken != plan.asked.record.dialect else ""
    return {**plan.metadata, **others, **{name: value for name, value in said.items() if value}}


def _attempts(plan: Plan, ended: Ended) -> list[dict[str, Any]]:
    return [
        {"provider": one.provider, "status": one.status, "seconds": one.seconds, "error": redacted(plan, one.error)}
        for one in ended.attempts
    ]
