"""Side calls in the record: a note beside the conversation that they belong to, and a tag on the exchange.

A side call that has ended before its conversation begins is an exchange without a session. It is filed with the
conversation as soon as the first request of the same name opens that: session, cost and note.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import F

from history.entries import DebugLog
from history.models import Exchange, Session
from history.record import recorder, writer
from history.record.recorder import Append
from history.record.row_builder import prepare
from relay.digest.calls import CallPlan
from relay.digest.exchange_rows import HELPER, mode_of, redacted
from relay.digest.recognisers.retries import NAMED, name_of
from relay.digest.recognisers.session_lookup import current_session
from relay.digest.recognisers.sessions import FINGERPRINT, STICKY, recognise

SHOWN = 2_000
WORDLESS = ("count",)
ASKED, ANSWERED = "asked", "answered"
# How old a side call may be that is filed with a conversation which begins later.
ADOPT_WITHIN = timedelta(days=1)


def plan_side_call(plan: CallPlan, session: Session | None = None) -> None:
    """Its conversation, if that is known, and what it asks."""
    session = session or _session_of(plan)
    plan.session_id = session.pk if session else None
    if plan.asked.side_words and plan.keeps_texts and plan.asked.side not in WORDLESS:
        plan.metadata[ASKED] = _shown(redacted(plan, plan.asked.side_words))


def finish_side_call(plan: CallPlan) -> None:
    """The conversation may have begun while it was answered: programs make a title beside the first question."""
    if plan.session_id is None and plan.asked.record.session is not None:
        session = current_session(plan.asked.record.session, key=plan.asked.record.key)[1]
        plan.session_id = session.pk if session else None
    if _keeps_answer(plan) and plan.answer is not None and plan.answer.output is not None:
        plan.metadata[ANSWERED] = _shown(redacted(plan, plan.answer.output.text))


def keep_prefill(plan: CallPlan) -> None:
    """The beginning of an answer is the client's word: where the answer is not kept, it is told on the exchange."""
    begun, output = plan.asked.begun, plan.answer.output if plan.answer else None
    if begun is not None and (output is None or mode_of(plan) == "no_replies"):
        plan.metadata["prefill"] = _shown(redacted(plan, begun.text))


def write_notes(plans: Sequence[CallPlan]) -> None:
    """Beside the newest entry that its session has by now."""
    appends = [replace(plan.note, after=_head_of(plan.note.session_id)) for plan in plans if plan.note is not None]
    if appends:
        recorder.append_batch(appends)


@dataclass(frozen=True, slots=True)
class Adoption:
    """A side call that came before its conversation, and its note if its words are kept."""

    exchange: UUID
    session: UUID
    cost: Decimal
    note: Append | None


def earlier_side_calls(plans: Iterable[CallPlan]) -> list[Adoption]:
    """Side calls of conversations that begin now, which came before them under the same name."""
    begun = {
        (plan.key.pk, name_of(plan.asked)): plan
        for plan in plans
        if plan.new_session is not None and plan.asked.session
    }
    if not begun:
        return []
    since = min(plan.asked.at for plan in begun.values()) - ADOPT_WITHIN
    loose = Exchange.objects.filter(session=None, ended_at__gte=since, api_key__in={key for key, _ in begun})
    found = []
    for row in loose.filter(metadata__named__in=[name for _, name in begun]).order_by("started_at"):
        plan = begun.get((row.api_key_id or 0, str(row.metadata.get(NAMED))))
        if plan is None or plan.session_id is None or not row.metadata.get(HELPER):
            continue
        note = Append(plan.session_id, _note_of_row(row), 0, mode_of(plan)) if ASKED in row.metadata else None
        if note is not None:
            note = replace(note, prepared=prepare(note.entry, recording=note.promised))
        found.append(Adoption(row.pk, plan.session_id, row.cost, note))
    return found


def adopt(adoptions: Iterable[Adoption]) -> None:
    """File them with their conversations."""
    costs: defaultdict[UUID, Decimal] = defaultdict(Decimal)
    appends = []
    for one in adoptions:
        if not Exchange.objects.filter(pk=one.exchange, session=None).update(session=one.session):
            continue
        costs[one.session] += one.cost
        if one.note is not None:
            appends.append(replace(one.note, after=_head_of(one.session)))
    for session, cost in costs.items():
        writer.change(session, cost=F("cost") + cost)
    if appends:
        recorder.append_batch(appends)


def _keeps_answer(plan: CallPlan) -> bool:
    return plan.keeps_texts and mode_of(plan) != "no_replies" and plan.asked.side not in WORDLESS


def _shown(text: str) -> str:
    left_out = len(text) - SHOWN
    return f"{text[:SHOWN]} [… {left_out:,} characters more, not kept]" if left_out > 0 else text


def note_for(plan: CallPlan) -> Append | None:
    """All of what was asked and answered: the exchange has only the beginning."""
    if plan.answer is None or not plan.asked.side or plan.session_id is None:
        return None
    if not plan.keeps_texts or plan.asked.side in WORDLESS:
        return None
    output = plan.answer.output
    texts = [plan.asked.side_words, output.text if output and _keeps_answer(plan) else ""]
    entry = DebugLog(
        at=output.at if output else plan.asked.at,
        category=f"{plan.asked.side} call",
        message=" → ".join(filter(None, texts)),
        is_internal=True,
        metadata={"exchange": str(plan.under.id)},
    )
    return Append(plan.session_id, entry, 0, mode_of(plan))


def _note_of_row(row: Exchange) -> DebugLog:
    return DebugLog(
        at=row.ended_at or row.started_at,
        category=f"{row.metadata[HELPER]} call",
        message=" → ".join(filter(None, [row.metadata[ASKED], row.metadata.get(ANSWERED, "")])),
        is_internal=True,
        metadata={"exchange": str(row.pk)},
    )


def _head_of(session: UUID) -> int:
    return Session.objects.filter(pk=session).values_list("head", flat=True).first() or 0


def _session_of(plan: CallPlan) -> Session | None:
    asked = plan.asked
    if asked.record.session is not None:
        return current_session(asked.record.session, key=asked.record.key)[1]
    if asked.first_answer is None:
        return None
    spot = recognise(asked)
    return spot.session if spot.by in (FINGERPRINT, STICKY) else None
