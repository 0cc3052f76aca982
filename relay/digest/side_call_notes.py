"""Side calls in the record: a note beside their conversation, which may begin later, and a tag on the exchange."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import F

from history.entries import DebugLog
from history.models import Exchange, Session
from history.record import recorder, writer
from history.record.recorder import Append
from history.record.row_builder import prepare
from relay.digest.calls import CallPlan
from relay.digest.exchange_rows import HELPER, redact_text
from relay.digest.recognisers.retries import NAMED, session_name
from relay.digest.recognisers.session_lookup import current_session
from relay.digest.recognisers.sessions import FINGERPRINT, STICKY, recognise
from relay.digest.requests import RelayedRequest
from relay.digest.side_calls import COUNT

SHOWN = 2_000
QUESTION, ANSWER = "asked", "answered"
ADOPT_WITHIN = timedelta(days=1)  # how old a side call may be that is filed with a conversation which begins later


def plan_side_call(plan: CallPlan, kind: str, session: Session | None = None) -> None:
    if not plan.request.side_call:
        plan.call.request, plan.metadata[HELPER] = plan.request.as_side_call(kind), kind
    session = session or _session_of(plan.request)
    plan.session_id = session.pk if session else None
    if plan.request.side_call_text and _keeps_question(plan):
        plan.metadata[QUESTION] = _cut(redact_text(plan, plan.request.side_call_text))


def finish_side_call(plan: CallPlan) -> None:
    """The conversation may have begun while it was answered: programs make a title beside the first question."""
    record = plan.request.record
    if plan.session_id is None and record.session is not None:
        session = current_session(record.session, key=record.key)[1]
        plan.session_id = session.pk if session else None
    if _keeps_answer(plan) and plan.answer is not None and plan.answer.output is not None:
        plan.metadata[ANSWER] = _cut(redact_text(plan, plan.answer.output.text))


def keep_prefill(plan: CallPlan) -> None:
    """The beginning of an answer is the client's text: where the answer is not kept, the exchange has it."""
    prefill, output = plan.request.unfinished, plan.answer.output if plan.answer else None
    if prefill is not None and (output is None or plan.mode == "no_replies"):
        plan.metadata["prefill"] = _cut(redact_text(plan, prefill.text))


def note_for(plan: CallPlan) -> DebugLog | None:
    """All of the question and the answer: the exchange has only the beginning."""
    if plan.answer is None or not plan.request.side_call or not _keeps_question(plan):
        return None
    output = plan.answer.output
    answer = output.text if output and _keeps_answer(plan) else ""
    at = output.at if output else plan.request.at
    return _note(plan.call.id, plan.request.side_call, plan.request.side_call_text, answer, at=at)


Adoption = tuple[UUID, UUID, Decimal, Append | None]  # exchange, session, cost and note


def earlier_side_calls(plans: Iterable[CallPlan]) -> list[Adoption]:
    """Side calls that came under the name of a conversation that begins now."""
    named = [plan for plan in plans if plan.new_session is not None and plan.request.session]
    new = {(plan.key.pk, session_name(plan.request)): plan for plan in named}
    if not new:
        return []
    since = min(plan.request.at for plan in new.values()) - ADOPT_WITHIN
    loose = Exchange.objects.filter(session=None, ended_at__gte=since, api_key__in={key for key, _ in new})
    adoptions: list[Adoption] = []
    for row in loose.filter(metadata__named__in=[name for _, name in new]).order_by("started_at"):
        plan = new.get((row.api_key_id or 0, str(row.metadata.get(NAMED))))
        if plan is None or plan.session_id is None or not row.metadata.get(HELPER):
            continue
        append = None
        if QUESTION in row.metadata:
            question, answer = row.metadata[QUESTION], row.metadata.get(ANSWER, "")
            note = _note(row.pk, row.metadata[HELPER], question, answer, at=row.ended_at or row.started_at)
            append = Append(plan.session_id, note, 0, plan.mode, prepared=prepare(note, recording=plan.mode, files={}))
        adoptions.append((row.pk, plan.session_id, row.cost, append))
    return adoptions


def adopt(adoptions: Iterable[Adoption]) -> None:
    costs: defaultdict[UUID, Decimal] = defaultdict(Decimal)
    notes = []
    for exchange, session, cost, note in adoptions:
        if Exchange.objects.filter(pk=exchange, session=None).update(session=session):
            costs[session] += cost
            notes += [note] if note is not None else []
    for session, cost in costs.items():
        writer.change(session, cost=F("cost") + cost)
    append_notes(notes)


def append_notes(notes: Iterable[Append]) -> None:
    """Beside the newest entry that each session has by now."""
    heads = Session.objects.values_list("head", flat=True)
    appends = [replace(note, after=heads.filter(pk=note.session_id).first() or 0) for note in notes]
    if appends:
        recorder.append_batch(appends)


def _note(exchange: UUID, kind: str, question: str, answer: str, *, at: datetime) -> DebugLog:
    message, metadata = " → ".join(filter(None, [question, answer])), {"exchange": str(exchange)}
    return DebugLog(at=at, category=f"{kind} call", message=message, is_internal=True, metadata=metadata)


def _keeps_question(plan: CallPlan) -> bool:
    return plan.keeps_texts and plan.request.side_call != COUNT


def _keeps_answer(plan: CallPlan) -> bool:
    return _keeps_question(plan) and plan.mode != "no_replies"


def _cut(text: str) -> str:
    left_out = len(text) - SHOWN
    return f"{text[:SHOWN]} [… {left_out:,} characters more, not kept]" if left_out > 0 else text


def _session_of(request: RelayedRequest) -> Session | None:
    if request.record.session is not None:
        return current_session(request.record.session, key=request.record.key)[1]
    if request.first_answer is None:
        return None
    match = recognise(request)
    return match.session if match.by in (FINGERPRINT, STICKY) else None
