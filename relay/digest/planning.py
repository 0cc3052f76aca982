"""Plans of what relayed calls add to the record: session, position, entries, answer.

A plan is made before the transaction that writes it: on SQLite no other process can write while that is open. On
PostgreSQL a plan made inside would see the same, and a write locks its session and looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from django.utils import timezone

from history import redaction
from history.db import bulk
from history.dialects.types import Said
from history.entries import Entry, HeadMoved, ModelInput, ToolResults
from history.models import ApiKey, Session
from history.record.fingerprints import essence_of
from relay.digest import bodies, parents, side_call_notes
from relay.digest.calls import AnswerCopy, CallPlan, PendingCall, Spot
from relay.digest.exchange_rows import HELPER, cost_of, name_told, notes_at_accept
from relay.digest.recognisers import (
    late_answers,
    named_side_calls,
    prefills,
    regrouped_answers,
    retries,
    truncated_clients,
)
from relay.digest.recognisers.sessions import FINGERPRINT, end_of_named_session
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import SessionCache, changed_results, new_states, states_at
from relay.digest.side_calls import SIDE_CALL
from relay.gateway.call.ids import new_session_id

OFF = "off"


class Planner:
    """`must_wait` tells whether the answer that a call continues from may still arrive; `is_alone` means that no other
    host writes into this record."""

    def __init__(
        self, memory: SessionCache, folder: Path, *, must_wait: Callable[[PendingCall, Spot], bool], is_alone: bool
    ) -> None:
        self.memory, self.folder = memory, folder
        self.must_wait, self.is_alone = must_wait, is_alone
        self.unrecorded: list[CallPlan] = []  # calls of which nothing is to be written
        self.copies: dict[UUID, AnswerCopy] = {}  # of answers that come late
        self.grown: set[UUID] = set()  # sessions to which a call of this batch adds something

    def plan(self, calls: Sequence[PendingCall]) -> list[CallPlan]:
        keys = ApiKey.objects.in_bulk({call.asked.record.key for call in calls})
        for call in calls:
            mode = redaction.stricter(call.asked.record.recording, keys[call.asked.record.key].recording)
            bodies.read_bodies(self.folder, call, mode=mode)
        self.copies = {} if self.is_alone else late_answers.copies_of(calls)
        return [plan for call in calls if (plan := self._plan(call, keys[call.asked.record.key]))]

    def _plan(self, call: PendingCall, key: ApiKey) -> CallPlan | None:
        mode = redaction.stricter(call.asked.record.recording, key.recording)
        keeps = redaction.stores_bodies(mode) and not call.is_given_up
        plan = CallPlan(under=call, key=key, keeps_texts=keeps, before=call.filed, copy=self.copies.get(call.id))
        if mode == OFF and call.filed is None:
            return self._plan_nothing(plan)
        if call.filed is not None:
            plan.session_id, plan.after = call.filed.session_id, call.filed.after
            plan.attempts, plan.metadata = call.filed.attempts, dict(call.filed.metadata)
        elif not self._plan_request(plan):
            return None
        if call.is_given_up:
            plan.metadata["problem"] = call.asked.problem
        if call.ended is not None:
            plan.answer = prefills.answer_to(call, call.ended)
            plan.cost = cost_of(plan)
            plan.gap = bodies.gap_in_reply(plan)
            if call.asked.side and not call.is_given_up:
                side_call_notes.finish_side_call(plan)
            elif call.asked.is_prefilled:
                side_call_notes.keep_prefill(plan)
            if call.filed is not None and call.filed.is_overtaken:
                retries.set_aside(plan)
        return plan

    def _plan_nothing(self, plan: CallPlan) -> CallPlan | None:
        """The key was told meanwhile to keep nothing: what the call has used is counted, that is all."""
        if plan.under.ended is None:
            return None
        plan.answer = prefills.answer_to(plan.under, plan.under.ended)
        plan.cost = cost_of(plan)
        self.unrecorded.append(plan)
        return None

    def _plan_request(self, plan: CallPlan) -> bool:
        """False: it has to wait for what comes before it."""
        asked = plan.asked
        plan.metadata = notes_at_accept(plan)
        if plan.under.is_given_up:
            return True
        if (earlier := retries.earlier_try(asked, under_way=plan.under.earlier)) is not None:
            retries.go_on(plan, earlier)
            if prefills.PREFILLED in plan.metadata:
                plan.under.asked = asked.prefilled()
        elif asked.side or (plan.keeps_texts and self._is_side_call(plan)):
            side_call_notes.plan_side_call(plan)
        elif plan.copy is not None:
            plan.session_id, plan.after = plan.copy.session_id, plan.copy.after
            plan.metadata["recognised_by"] = FINGERPRINT
        elif plan.keeps_texts and asked.request is not None:
            plan.under.asked, spot = regrouped_answers.read_as_stored(plan.asked)
            if self.must_wait(plan.under, spot):
                return False
            if named_side_calls.is_beside(plan.asked, spot):
                plan.under.asked, plan.metadata[HELPER] = plan.asked.as_side_call(SIDE_CALL), SIDE_CALL
                side_call_notes.plan_side_call(plan, spot.session)
                return True
            plan.under.asked, spot = truncated_clients.with_omitted_beginning(plan.asked, spot)
            if prefills.is_prefill(plan.asked, spot):
                plan.under.asked, spot = regrouped_answers.read_as_stored(plan.asked.prefilled())
            self._plan_entries(plan, spot)
        elif plan.keeps_texts and asked.record.skipped:
            self._plan_gap(plan)
        return True

    def _plan_gap(self, plan: CallPlan) -> None:
        """In the place of a request that is too large to be read: at the end of the session that it names, if any."""
        spot = end_of_named_session(plan.asked)
        session_id = spot.session_id or new_session_id()
        self.grown.add(session_id)
        if spot.session is None:
            plan.new_session = _new_session(plan, spot, session_id)
        plan.entries = [bodies.gap_in_request(plan)]
        plan.session_id, plan.start, plan.after = session_id, spot.after, spot.after
        plan.metadata["recognised_by"] = spot.by

    def _is_side_call(self, plan: CallPlan) -> bool:
        """Whether a request turns out to be one beside the conversation that it names."""
        kind = named_side_calls.side_call_kind(plan.asked)
        if kind:
            plan.under.asked = plan.asked.as_side_call(kind)
            plan.metadata[HELPER] = kind
        return bool(kind)

    def _plan_entries(self, plan: CallPlan, spot: Spot) -> None:
        session_id = spot.session_id or new_session_id()
        if session_id in self.grown:
            spot = replace(spot, move=spot.move or "edit")
        self.grown.add(session_id)
        if spot.session is None:
            plan.new_session = _new_session(plan, spot, session_id)
        else:
            plan.child = spot.session
        plan.entries, changed = _entries_to_add(plan.asked, spot, self.memory, session_id=session_id)
        plan.session_id, plan.start, plan.after = session_id, spot.after, spot.after
        plan.metadata["recognised_by"] = spot.by
        if plan.asked.is_prefilled:
            plan.metadata[prefills.PREFILLED] = prefills.length_of(plan.asked)
        if changed:
            plan.metadata["changed_results"] = changed


def _new_session(plan: CallPlan, spot: Spot, session_id: UUID) -> Session:
    asked, now = plan.asked, timezone.now()
    begun = min(asked.at, now)
    parent = parents.parent_for(asked)
    call_id, called_at = parents.call_that_began_it(parent) if parent else ("", None)
    values = {
        "client": plan.metadata.get("client", ""),
        "recognised_by": spot.by,
        "model": name_told(plan, asked.record.model),
        "parent_call": call_id,
        "metadata": {"called_at": called_at} if called_at else {},
    }
    return bulk.new(
        Session,
        id=session_id,
        owner_id=plan.key.owner_id,
        api_key=plan.key,
        source=Session.Source.RELAY,
        parent=parent,
        created_at=begun,
        last_activity_at=begun,
        stored_at=now,
        **bulk.fit_values(Session, values),
    )


def _entries_to_add(
    asked: RelayedRequest, spot: Spot, memory: SessionCache, *, session_id: UUID
) -> tuple[list[Entry], list[str]]:
    """The way back to where the client goes on, what holds from there, and the new tail; and which results differ."""
    remembered = memory.of(session_id, version=spot.session.version if spot.session else 0)
    entries: list[Entry] = []
    if spot.move:
        entries.append(HeadMoved(at=asked.at, to=spot.after, reason=spot.move))
        remembered.states = states_at(session_id, spot.after)
    if asked.request is not None:
        entries += new_states(asked.request, remembered, at=asked.at)
    entries += _timed(asked.entries[spot.known :], answered_at=spot.answered_at, at=asked.at)
    return entries, changed_results(asked, remembered, known=spot.known, session=spot.session)


def _timed(tail: Sequence[Said], *, answered_at: datetime | None, at: datetime) -> Iterator[Entry]:
    """A tool ran, as far as the wire tells, from the end of the answer that asked for it until its result came.

    What a program adds on its own (a reminder alone, an instruction in mid-conversation) is folded away.
    """
    for place, entry in enumerate(tail):
        if place == 0 and answered_at is not None and isinstance(entry, ToolResults):
            seconds = max(0.0, (at - answered_at).total_seconds())
            results = tuple(replace(one, started_at=answered_at, duration=seconds) for one in entry.results)
            yield replace(entry, results=results)
        elif isinstance(entry, ModelInput) and essence_of(entry) is None:
            yield replace(entry, is_internal=True)
        else:
            yield entry
