"""Rows of `Exchange` for relayed calls: what was accepted, how it ended, cost, and how the session was found."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from msgspec.structs import asdict

from history import redaction
from history.db import bulk, packing
from history.entries import JsonDict, Usage, thaw
from history.models import Exchange
from history.redaction.walker import Redactors
from relay.digest.answers import answering_model
from relay.digest.calls import NO_COST, CallPlan, RecordedAnswer
from relay.digest.recognisers.retries import NAMED, TRY, cost_of_tries, session_name
from relay.gateway.journal.records import CallEnded
from relay.gateway.replies import COUNTS
from relay.gateway.routes import PLAN
from relay.usage import prices

HELPER = "helper"  # the kind of side call that an exchange is
SHOWN_BODY, SHOWN_ERROR = 10_000, 500
# A relayed call has no heartbeat but its journal. If that is never read again, the call counts as lost after so long.
WAITS_FOR = timedelta(days=1)

# The columns that the end of a call changes.
ENDING = (
    *("session", "provider", "model", "ended_at", "end_reason", "message", "attempts", "status_code", "error"),
    *("usage", "cost", "metadata"),
)


def redacted_columns(plan: CallPlan) -> JsonDict:
    """The columns with texts, made before the transaction that writes the row."""
    record, ended, answer = plan.request.record, plan.call.ended, plan.answer
    columns: JsonDict = {
        "provider": record.provider,
        "model": redact_name(plan, record.model),
        "dialect": record.dialect,
        "attempts": max(1, plan.attempts),
        "metadata": plan.metadata,
    }
    if ended is not None and answer is not None:
        upstream = answering_model(record, ended)
        error = redact_text(plan, answer.error)[: packing.LONG_TEXT]
        columns |= {
            "provider": upstream.provider,
            "model": redact_name(plan, upstream.model),
            "ended_at": datetime.fromtimestamp(ended.at, UTC),
            "end_reason": answer.reason or "done",
            "attempts": plan.attempts + max(1, len(ended.attempts)),
            "status_code": ended.status or None,
            "error": error or redact_text(plan, answer.error_body)[:SHOWN_ERROR],
            "usage": _usage(answer.usage) if answer.usage else {},
            "cost": plan.cost + cost_of_tries(plan.metadata),
            "metadata": {**plan.metadata, **_ending_metadata(plan, ended, answer)},
        }
    return bulk.fit_values(Exchange, columns)


def row_of(plan: CallPlan) -> Exchange:
    request = plan.request
    return bulk.new(
        Exchange,
        id=request.record.exchange,
        session_id=plan.session_id,
        owner_id=plan.key.owner_id,
        api_key=plan.key,
        after=plan.after,
        history_version=plan.after,
        request_hash=request.body_hash,
        started_at=request.at,
        heartbeat_at=request.at + WAITS_FOR,
        message_id=plan.message_id if plan.answer else None,
        **plan.columns,
    )


def request_metadata(plan: CallPlan) -> JsonDict:
    request, record = plan.request, plan.request.record
    facts = {
        "client": redact_client(plan, request.client),
        "path": redact_client(plan, record.path),
        "request_bytes": record.body_size,
        "streamed": record.stream,
        HELPER: request.side_call,
        "removed_session_field": record.removed_session_field,
        "translated_to": record.upstream_dialect if record.upstream_dialect != record.dialect else "",
        "problem": request.problem,
        "request_file": plan.call.large_request.file if plan.call.large_request else "",
        TRY: request.retry,
        NAMED: session_name(request),
    }
    return {name: value for name, value in facts.items() if value}


def cost_of(plan: CallPlan) -> Decimal:
    """The cost of the call; nothing if the caller's own subscription pays."""
    return NO_COST if _is_paid_by_plan(plan) else _price_of(plan, "cost")


def _is_paid_by_plan(plan: CallPlan) -> bool:
    ended, record = plan.call.ended, plan.request.record
    return (ended.metadata.get("billing", record.billing) if ended else record.billing) == PLAN


def _billing(plan: CallPlan) -> JsonDict:
    """For a call that a subscription pays, what it would have cost at list price."""
    if not _is_paid_by_plan(plan):
        return {}
    price = _price_of(plan, "list_price")
    return {"billing": PLAN} | ({"list_price": str(price)} if price else {})


def _price_of(plan: CallPlan, name: str) -> Decimal:
    """As it was counted when the call ended, or at the price of that day."""
    ended, answer = plan.call.ended, plan.answer
    if ended is None:
        return NO_COST
    if answer is not None and not ended.is_counted:
        upstream, day = answering_model(plan.request.record, ended), date.fromtimestamp(ended.at)
        if answer.usage is None:
            return NO_COST
        return prices.cost_of(answer.usage, provider=upstream.provider, model=upstream.model, on=day)
    try:
        return Decimal(str(ended.metadata.get(name, 0)))
    except InvalidOperation:
        return NO_COST


def redact_text(plan: CallPlan, text: str) -> str:
    """A text outside entries, as the key lets it be kept. Redact before cutting: half a secret is not detected."""
    if not text or not plan.keeps_texts:
        return ""
    return redaction.redacted_text(text, redaction.redactors_for(plan.mode))[0]


def redact_client(plan: CallPlan, text: str) -> str:
    """Client and path are kept in every mode, without a secret that a caller wrote into them."""
    return redaction.redacted_text(text, _redactors(plan))[0]


def redact_name(plan: CallPlan, name: str) -> str:
    """The name of a model or a header may hold a secret as well."""
    return redaction.redacted_name(name, _redactors(plan))


def _redactors(plan: CallPlan) -> Redactors:
    return redaction.redactors_for(plan.mode if plan.keeps_texts else "redacted")


def _usage(usage: Usage) -> JsonDict:
    raw = packing.clean_json(thaw(usage.raw))
    return {name: getattr(usage, name) for name in (*COUNTS, "source")} | ({"raw": raw} if raw else {})


def _ending_metadata(plan: CallPlan, ended: CallEnded, answer: RecordedAnswer) -> JsonDict:
    large = plan.call.large_reply
    # Of one attempt without an error there is nothing more to say.
    attempts = ended.attempts if len(ended.attempts) > 1 or answer.error or answer.error_body else ()
    headers = [(name, value) for name, value in ended.response_headers if name.lower() != "set-cookie"]
    facts = {
        "reply_bytes": ended.reply_size,
        "lost_bytes": ended.lost_bytes,
        "answers": 1 + len(answer.others) if answer.others else 0,
        "skipped_events": answer.skipped,
        "upstream": [asdict(one) | {"error": redact_text(plan, one.error)[:SHOWN_BODY]} for one in attempts],
        "headers": {name: redact_name(plan, value) for name, value in headers},
        "error_body": redact_text(plan, answer.error_body)[:SHOWN_BODY],
        "unread_reply": answer.unread,
        "missing_bytes": plan.call.missing,
        "reply_hash": large.sha256 if large else "",
        "reply_file": large.file if large else "",
    }
    others = {
        name: redact_name(plan, value) if isinstance(value, str) else value
        for name, value in ended.metadata.items()
        if name not in ("cost", "list_price", "billing", "model", "dialect")
    }
    if "dialect" in ended.metadata:
        dialect = str(ended.metadata["dialect"])
        others["translated_to"] = dialect if dialect != plan.request.record.dialect else ""
    return others | _billing(plan) | {name: value for name, value in facts.items() if value}
