"""Bodies of a call, read before its transaction: the answer, or a gap that says why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from history.entries import Gap
from relay.digest import raw_bytes
from relay.digest.answers import TOO_LARGE, read_answer, too_large
from relay.digest.calls import CallPlan, LargeBody, PendingCall, RecordedAnswer
from relay.digest.requests import largest_body


def read_bodies(folder: Path, call: PendingCall, *, mode: str) -> None:
    """Parse the reply, if the call has ended. What is too large is put aside instead, if `mode` allows it."""
    record = call.asked.record
    if record.skipped and call.large_request is None:
        call.large_request = raw_bytes.put_aside(folder, call, "request", mode=mode)
    if call.ended is None or call.answer is not None:
        return
    most = largest_body()
    try:
        if call.received > most:
            call.answer = too_large(record, call.ended)
        else:
            pieces = call.pieces if call.is_held else list(raw_bytes.pieces_of(folder, call, "reply"))
            call.answer = read_answer(record, call.ended, pieces, missing=call.missing, most=most)
    except Exception:
        # Of a call that is given up, at least how it ended.
        if not call.is_given_up:
            raise
        call.answer = RecordedAnswer(reason=call.ended.reason)
    if call.answer.unread == TOO_LARGE:
        call.large_reply = raw_bytes.put_aside(folder, call, "reply", mode=mode)


def gap_in_request(plan: CallPlan) -> Gap:
    reason = f"The request is too large to be read: {plan.asked.record.skipped:,} bytes"
    return Gap(at=plan.asked.at, reason=reason, metadata=_kept(plan.under.large_request))


def gap_in_reply(plan: CallPlan) -> Gap | None:
    """What is missing of an answer in the session; None if nothing is, or it would not be there anyway."""
    call, answer = plan.under, plan.answer
    if plan.session_id is None or not plan.keeps_texts or plan.asked.side or call.ended is None or answer is None:
        return None
    if call.large_reply is not None:
        reason = f"The reply is too large to be read: {call.large_reply.size:,} bytes"
        return Gap(at=plan.asked.at, reason=reason, metadata=_kept(call.large_reply))
    if call.missing:
        return Gap(at=plan.asked.at, reason=f"{call.missing:,} bytes of the reply were damaged on disk.")
    return None


def _kept(large: LargeBody | None) -> dict[str, Any]:
    if large is None:
        return {}
    return {"size": large.size, "sha256": large.sha256, **({"file": large.file} if large.file else {})}
