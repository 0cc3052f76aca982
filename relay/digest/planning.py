"""Plans of what relayed calls add to the record: session, parent, position, entries, answer.

A plan is made before the transaction that writes it, because on SQLite no other process can write while that is open.

A program names the parent with each call of a subagent; either may be filed first. A child that is filed before its
parent is cached until the parent comes. After a restart, its next call looks again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from django.utils import timezone

from history import redaction
from history.clients import SUBAGENT_TOOLS
from history.db import bulk
from history.dialects.types import ConversationEntry
from history.entries import Entry, HeadMoved, ModelInput, ToolResults
from history.models import ApiKey, Session, ToolCall
from history.record import writer
from history.record.fingerprints import fingerprinted_content
from relay.digest import bodies, side_call_notes
from relay.digest.answers import PREFILLED, answer_to, prefill_length
from relay.digest.calls import AnswerCopy, CallPlan, PendingCall, SessionMatch
from relay.digest.exchange_rows import cost_of, redact_name, request_metadata
from relay.digest.pending_calls import CallOrder
from relay.digest.recognisers import named_side_calls, retries, returned_answers
from relay.digest.recognisers.normalisation import is_prefill, match_normalised, with_omitted_beginning
from relay.digest.recognisers.session_lookup import current_session
from relay.digest.recognisers.sessions import FINGERPRINT, end_of_named_session
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import SessionCache, changed_results, changed_states, states_at
from relay.digest.side_calls import OTHER
from relay.gateway.call.calls import new_session_id

MAX_ANCESTORS = 20
OFF = "off"


def parent_of(request: RelayedRequest) -> Session | None:
    """If its owner has deleted the parent, the session that continues in its place."""
    return current_session(request.parent, key=request.record.key)[1] if request.parent else None


def subagent_call(parent: Session) -> tuple[str, int | None]:
    """The open call of a subagent in the newest answer, and its entry. Of two, either may have started the child."""
    if not parent.head_has_open_calls:
        return "", None
    waiting = ToolCall.objects.filter(session=parent, message__on_path=True, answered_by=None, name__in=SUBAGENT_TOOLS)
    newest = list(waiting.order_by("-message__seq").values_list("call_id", "message__seq")[:2])
    is_alone = len(newest) == 1 or (len(newest) == 2 and newest[0][1] != newest[1][1])
    return newest[0] if is_alone else ("", None)


def link_existing_child(request: RelayedRequest, child: Session, cache: SessionCache) -> None:
    if request.parent is None or child.parent_id is not None or child.pk in cache.orphans.get(request.parent, ()):
        return
    parent = parent_of(request)
    if parent is not None:
        _set_parent(child.pk, parent)
    else:
        cache.note_orphan(child.pk, parent=request.parent)


def link_new_sessions(plans: Iterable[CallPlan], cache: SessionCache) -> None:
    """New sessions get the children that were waiting for them, or wait for their own parent."""
    for plan in plans:
        session, request = plan.new_session, plan.request
        if session is None:
            continue
        if request.parent is not None and session.parent_id is None:
            cache.note_orphan(session.pk, parent=request.parent)
        for child in cache.orphans.pop(request.session, ()) if request.session else ():
            _set_parent(child, session)


def _set_parent(child: UUID, parent: Session) -> None:
    """No session becomes its own ancestor, even if its headers say so."""
    ancestor: UUID | None = parent.pk
    for _ in range(MAX_ANCESTORS):
        if ancestor is None:
            writer.change(child, parent=parent)
            return
        if ancestor == child:
            return
        ancestor = Session.objects.filter(pk=ancestor).values_list("parent_id", flat=True).first()


class Planner:
    def __init__(self, cache: SessionCache, folder: Path, order: CallOrder) -> None:
        self.cache, self.folder, self.order = cache, folder, order
        self.unrecorded: list[CallPlan] = []  # calls of which nothing is written
        self.copies: dict[UUID, AnswerCopy] = {}  # of late answers
        self.extended: set[UUID] = set()  # sessions to which a call of this batch adds entries

    def plan(self, calls: Sequence[PendingCall]) -> list[CallPlan]:
        keys = ApiKey.objects.in_bulk({call.request.record.key for call in calls})
        for call in calls:
            bodies.read_bodies(self.folder, call, mode=_mode_of(call, keys[call.request.record.key]))
        self.copies = returned_answers.find_copies(calls) if self.order.other_hosts.exist else {}
        return [plan for call in calls if (plan := self._plan(call, keys[call.request.record.key]))]

    def _plan(self, call: PendingCall, key: ApiKey) -> CallPlan | None:
        mode = _mode_of(call, key)
        keeps_texts = redaction.stores_bodies(mode) and not call.is_given_up
        plan = CallPlan(call=call, key=key, mode=mode, keeps_texts=keeps_texts, copy=self.copies.get(call.id))
        if call.filed is not None:
            plan.session_id, plan.after = call.filed.session_id, call.filed.after
            plan.attempts, plan.metadata = call.filed.attempts, dict(call.filed.metadata)
        elif mode == OFF:
            # The key was switched off after acceptance: only what the call has used is counted.
            if call.ended is not None:
                plan.answer = answer_to(call, call.ended)
                plan.cost = cost_of(plan)
                self.unrecorded.append(plan)
            return None
        elif not self._plan_request(plan):
            return None
        if call.is_given_up:
            plan.metadata["problem"] = call.request.problem
        if call.ended is not None:
            plan.answer = answer_to(call, call.ended)
            plan.cost = cost_of(plan)
            if plan.new_session is not None:
                plan.new_session.cost = plan.cost
            plan.gap = bodies.reply_gap(plan)
            if call.request.side_call and not call.is_given_up:
                side_call_notes.finish_side_call(plan)
            elif call.request.is_prefilled:
                side_call_notes.keep_prefill(plan)
            if call.filed is not None and call.filed.is_overtaken:
                retries.plan_way_back(plan)
        return plan

    def _plan_request(self, plan: CallPlan) -> bool:
        """False means that the call has to wait for what comes before it."""
        call, request = plan.call, plan.request
        plan.metadata = request_metadata(plan)
        if call.is_given_up:
            return True
        if (earlier := retries.earlier_try(request, pending=call.earlier)) is not None:
            retries.plan_retry(plan, earlier)
            if PREFILLED in plan.metadata:
                call.request = request.prefilled()
        elif kind := request.side_call or (named_side_calls.named_side_call_kind(request) if plan.keeps_texts else ""):
            side_call_notes.plan_side_call(plan, kind)
        elif plan.copy is not None:
            plan.session_id, plan.after = plan.copy.message.session_id, plan.copy.message.parent_seq
            plan.metadata["recognised_by"] = FINGERPRINT
        elif plan.keeps_texts and request.decoded is not None:
            return self._plan_conversation(plan)
        elif plan.keeps_texts and request.record.skipped:
            # A request that is too large to be read is a gap at the end of the session that it names.
            match = end_of_named_session(request)
            self._plan_session(plan, match, match.session_id or new_session_id())
            plan.entries = [bodies.request_gap(plan)]
        return True

    def _plan_conversation(self, plan: CallPlan) -> bool:
        call = plan.call
        call.request, match = match_normalised(call.request)
        if self.order.must_wait(call, match):
            return False
        if named_side_calls.is_question_about_session(call.request, match):
            side_call_notes.plan_side_call(plan, OTHER, match.session)
            return True
        call.request, match = with_omitted_beginning(call.request, match)
        if is_prefill(call.request, match):
            call.request, match = match_normalised(call.request.prefilled())
        self._plan_entries(plan, match)
        return True

    def _plan_entries(self, plan: CallPlan, match: SessionMatch) -> None:
        session_id = match.session_id or new_session_id()
        if session_id in self.extended:
            match = replace(match, move=match.move or "edit")
        self._plan_session(plan, match, session_id)
        plan.child = match.session
        request = plan.request
        cached = self.cache.get(session_id, version=match.session.version if match.session else 0)
        if match.move:
            plan.entries.append(HeadMoved(at=request.at, to=match.after, reason=match.move))
            cached.states = states_at(session_id, match.after)
        if request.decoded is not None:
            plan.entries += changed_states(request.decoded, cached, at=request.at)
        plan.entries += _tail(request.entries[match.known :], answered_at=match.answered_at, at=request.at)
        if request.is_prefilled:
            plan.metadata[PREFILLED] = prefill_length(request)
        if changed := changed_results(request, cached, known=match.known, session=match.session):
            plan.metadata["changed_results"] = changed

    def _plan_session(self, plan: CallPlan, match: SessionMatch, session_id: UUID) -> None:
        self.extended.add(session_id)
        if match.session is None:
            plan.new_session = _new_session(plan, match, session_id)
        plan.session_id, plan.start, plan.after = session_id, match.after, match.after
        plan.metadata["recognised_by"] = match.by


def _mode_of(call: PendingCall, key: ApiKey) -> str:
    """The recording mode at acceptance or the key's mode now: whichever keeps less."""
    return redaction.stricter(call.request.record.recording, key.recording)


def _new_session(plan: CallPlan, match: SessionMatch, session_id: UUID) -> Session:
    request, now = plan.request, timezone.now()
    started_at = min(request.at, now)
    parent = parent_of(request)
    call_id, called_at = subagent_call(parent) if parent else ("", None)
    values = {
        "client": plan.metadata.get("client", ""),
        "recognised_by": match.by,
        "model": redact_name(plan, request.record.model),
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
        created_at=started_at,
        last_activity_at=started_at,
        stored_at=now,
        **bulk.fit_values(Session, values),
    )


def _tail(entries: Sequence[ConversationEntry], *, answered_at: datetime | None, at: datetime) -> Iterator[Entry]:
    """The new entries. What a program adds on its own (a reminder, an instruction in mid-conversation) is internal."""
    for index, entry in enumerate(entries):
        if index == 0 and answered_at is not None and isinstance(entry, ToolResults):
            # As far as the wire shows, a tool ran from the end of the answer that called it until its result came.
            seconds = max(0.0, (at - answered_at).total_seconds())
            results = tuple(replace(one, started_at=answered_at, duration=seconds) for one in entry.results)
            yield replace(entry, results=results)
        elif isinstance(entry, ModelInput) and fingerprinted_content(entry) is None:
            yield replace(entry, is_internal=True)
        else:
            yield entry
