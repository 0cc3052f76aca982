"""One call as a row of `Exchange`: what was accepted, how it ended, what it cost, and how its session was found."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from history import redaction
from history.db import bulk, packing
from history.entries import Usage, thaw
from history.models import Exchange
from history.redaction.walker import Redactors
from relay.digest.answers import answered_by
from relay.digest.calls import NOTHING, CallPlan
from relay.digest.recognisers.retries import NAMED, TRY, cost_of_tries, name_of
from relay.gateway.journal.records import Ended
from relay.usage import prices

# The kind of side call that an exchange is.
HELPER = "helper"
SHOWN_BODY, SHOWN_ERROR = 10_000, 500
# Its sign of life is the journal. Should that never be read again, it counts as lost after so long.
WAITS_FOR = timedelta(days=1)

# The columns that the end of a call changes.
ENDING = (
    *("session", "provider", "model", "ended_at", "end_reason", "message", "attempts", "status_code", "error"),
    *("usage", "cost", "metadata"),
)
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "source")


def columns_of(plan: CallPlan) -> dict[str, Any]:
    """The columns that have texts, redacted: made before the transaction that writes the row."""
    record = plan.asked.record
    texts = {"provider": record.provider, "model": name_told(plan, record.model), "dialect": record.dialect}
    return bulk.fit_values(Exchange, {**texts, **_ending(plan), "metadata": _metadata(plan)})


def row_of(plan: CallPlan) -> Exchange:
    asked, record = plan.asked, plan.asked.record
    return bulk.new(
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
        **plan.columns,
    )


def notes_at_accept(plan: CallPlan) -> dict[str, Any]:
    """What is said of a call besides the columns; only what there is to say."""
    asked, record = plan.asked, plan.asked.record
    said = {
        "client": told(plan, asked.client),
        "path": told(plan, record.path),
        "request_bytes": record.body_size,
        "streamed": record.stream,
        HELPER: asked.side,
        "removed_session_field": record.removed_session_field,
        "translated_to": record.upstream_dialect if record.upstream_dialect != record.dialect else "",
        "problem": asked.problem,
        "request_file": plan.under.large_request.file if plan.under.large_request else "",
        TRY: asked.retry,
        NAMED: name_of(asked),
    }
    return {name: value for name, value in said.items() if value}


def cost_of(plan: CallPlan) -> Decimal:
    """As it was told when it ended, or at the price of that day."""
    ended, answer = plan.under.ended, plan.answer
    if ended is not None and answer is not None and not ended.is_counted:
        by, day = answered_by(plan.asked.record, ended), date.fromtimestamp(ended.at)
        return prices.cost_of(answer.usage, provider=by.provider, model=by.model, on=day) if answer.usage else NOTHING
    try:
        return Decimal(str(ended.metadata.get("cost", 0))) if ended else NOTHING
    except InvalidOperation:
        return NOTHING


def mode_of(plan: CallPlan) -> str:
    """What the caller was told when it was accepted, or what the key says by now: whichever keeps less."""
    return redaction.stricter(plan.asked.record.recording, plan.key.recording)


def redacted(plan: CallPlan, text: str) -> str:
    """A text that is no part of an entry, as the key lets it be kept; cut by the caller, and not before."""
    if not text or not plan.keeps_texts:
        return ""
    return redaction.redacted_text(text, redaction.redactors_for(mode_of(plan)))[0]


def told(plan: CallPlan, text: str) -> str:
    """Which program calls, and where: told in every mode, but not a key that somebody wrote into it."""
    return redaction.redacted_text(text, _redactors(plan))[0]


def name_told(plan: CallPlan, name: str) -> str:
    """A model, a request, a tool: what a vendor or a caller has named may hold a key as well."""
    return redaction.redacted_name(name, _redactors(plan))


def _redactors(plan: CallPlan) -> Redactors:
    return redaction.redactors_for(mode_of(plan) if plan.keeps_texts else "redacted")


def _ending(plan: CallPlan) -> dict[str, Any]:
    ended, answer = plan.under.ended, plan.answer
    if ended is None or answer is None:
        return {"attempts": max(1, plan.attempts)}
    by = answered_by(plan.asked.record, ended)
    return {
        "provider": by.provider,
        "model": name_told(plan, by.model),
        "ended_at": datetime.fromtimestamp(ended.at, UTC),
        "end_reason": answer.reason or "done",
        "attempts": plan.attempts + max(1, len(ended.attempts)),
        "status_code": ended.status or None,
        "error": redacted(plan, answer.error)[: packing.LONG_TEXT] or redacted(plan, answer.error_body)[:SHOWN_ERROR],
        "usage": _usage(answer.usage),
        "cost": plan.cost + cost_of_tries(plan.metadata),
    }


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    raw = packing.clean_json(thaw(usage.raw))
    return {name: getattr(usage, name) for name in _COUNTS} | ({"raw": raw} if raw else {})


def _metadata(plan: CallPlan) -> dict[str, Any]:
    ended, answer = plan.under.ended, plan.answer
    if ended is None or answer is None:
        return plan.metadata
    large = plan.under.large_reply
    said = {
        "reply_bytes": ended.reply_size,
        "lost_bytes": ended.lost_bytes,
        "answers": 1 + len(answer.others) if answer.others else 0,
        "skipped_events": answer.skipped,
        "upstream": _attempts(plan, ended) if len(ended.attempts) > 1 or answer.error or answer.error_body else [],
        "headers": {
            name: name_told(plan, value) for name, value in ended.response_headers if name.lower() != "set-cookie"
        },
        "error_body": redacted(plan, answer.error_body)[:SHOWN_BODY],
        "unread_reply": answer.unread,
        "missing_bytes": plan.under.missing,
        "reply_hash": large.sha256 if large else "",
        "reply_file": large.file if large else "",
    }
    others = {
        name: name_told(plan, value) if isinstance(value, str) else value
        for name, value in ended.metadata.items()
        if name not in ("cost", "model", "dialect")
    }
    if "dialect" in ended.metadata:
        spoken = str(ended.metadata["dialect"])
        others["translated_to"] = spoken if spoken != plan.asked.record.dialect else ""
    return {**plan.metadata, **others, **{name: value for name, value in said.items() if value}}


def _attempts(plan: CallPlan, ended: Ended) -> list[dict[str, Any]]:
    return [
        {
            "provider": one.provider,
            "status": one.status,
            "seconds": one.seconds,
            "error": redacted(plan, one.error)[:SHOWN_BODY],
        }
        for one in ended.attempts
    ]
