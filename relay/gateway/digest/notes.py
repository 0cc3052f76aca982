"""Side calls in the record: a note beside the conversation they belong to, folded away, and a tag on the exchange."""

from __future__ import annotations

from collections.abc import Sequence

from history import recorder
from history.entries import DebugLog, ModelInput
from history.models import Session
from history.recorder import Append
from relay.gateway.digest.exchange_rows import mode_of, redacted
from relay.gateway.digest.plans import Plan
from relay.gateway.digest.recognising import FINGERPRINT, STICKY, current_session, recognise

SHOWN = 2_000
WORDLESS = ("count",)


def plan_side_call(plan: Plan) -> None:
    """Its conversation, if that is known, and the last thing that it asks."""
    asked = plan.asked
    session = _session_of(plan)
    plan.session_id = session.pk if session else None
    said = [entry for entry in asked.entries if isinstance(entry, ModelInput)]
    if said and plan.keeps_texts and asked.side not in WORDLESS:
        plan.metadata["asked"] = _shown(redacted(plan, said[-1].text))


def finish_side_call(plan: Plan) -> None:
    """The conversation may have begun while it was answered: programs make a title beside the first question."""
    if plan.session_id is None and plan.asked.record.session is not None:
        session = current_session(plan.asked.record.session, key=plan.asked.record.key)[1]
        plan.session_id = session.pk if session else None
    output = plan.answer.output if plan.answer else None
    keeps_reply = plan.keeps_texts and mode_of(plan) != "no_replies"
    if output is not None and keeps_reply and plan.asked.side not in WORDLESS:
        plan.metadata["answered"] = _shown(redacted(plan, output.text))


def keep_prefill(plan: Plan) -> None:
    """The beginning of an answer is the client's word: where the answer is not kept, it is told on the exchange."""
    begun, output = plan.asked.begun, plan.answer.output if plan.answer else None
    if begun is not None and (output is None or mode_of(plan) == "no_replies"):
        plan.metadata["prefill"] = _shown(redacted(plan, begun.text))


def write_notes(plans: Sequence[Plan]) -> None:
    wishes = [wish for plan in plans if plan.answer is not None and (wish := _note(plan)) is not None]
    if wishes:
        recorder.append_batch(wishes)


def _shown(text: str) -> str:
    left_out = len(text) - SHOWN
    return f"{text[:SHOWN]} [… {left_out:,} characters more, not kept]" if left_out > 0 else text


def _note(plan: Plan) -> Append | None:
    if not plan.asked.side or plan.session_id is None or not plan.keeps_texts or plan.asked.side in WORDLESS:
        return None
    told = " → ".join(filter(None, [plan.metadata.get("asked", ""), plan.metadata.get("answered", "")]))
    entry = DebugLog(
        at=plan.answer.output.at if plan.answer and plan.answer.output else plan.asked.at,
        category=f"{plan.asked.side} call",
        message=told,
        is_internal=True,
        metadata={"exchange": str(plan.under.id)},
    )
    head = Session.objects.filter(pk=plan.session_id).values_list("head", flat=True).first()
    return Append(plan.session_id, entry, head or 0, mode_of(plan))


def _session_of(plan: Plan) -> Session | None:
    asked = plan.asked
    if asked.record.session is not None:
        return current_session(asked.record.session, key=asked.record.key)[1]
    if asked.first_answer is None:
        return None
    spot = recognise(asked)
    return spot.session if spot.by in (FINGERPRINT, STICKY) else None
