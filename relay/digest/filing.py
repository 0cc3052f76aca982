"""The rows of many calls in one transaction: sessions, entries, exchanges, and how far the journal is digested.

Everything about a call that is in memory changes only after the commit (but for how its request is read), so a database
that goes away in the middle costs nothing but time. A wave holds no two calls of which one goes on from what the other
adds. Two that leave one conversation at the same answer and name nothing may meet in one: then the later of them is
where it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from django.db.models import F, QuerySet
from django.utils import timezone

from history import redaction
from history.db import bulk
from history.db.in_list import among
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelOutput
from history.models import ApiKey, Exchange, Session
from history.record import daily_counts, exchanges, recorder, writer
from history.record.recorder import Append, Appended
from history.record.row_builder import prepare
from relay.digest import bodies, parents, side_call_notes
from relay.digest.answers import RecordedAnswer
from relay.digest.calls import AnswerCopy, CallPlan, FiledCall, PendingCall, entries_to_add
from relay.digest.exchange_rows import ENDING, HELPER, columns_of, cost_of, mode_of, name_told, notes_at_accept, row_of
from relay.digest.recognisers import named_side_calls, prefills, regrouped_answers, retries, truncated_clients
from relay.digest.recognisers.late_answers import copies_of
from relay.digest.recognisers.sessions import FINGERPRINT, Spot, end_of_named_session
from relay.digest.recognisers.side_calls import SIDE_CALL
from relay.digest.reply_names import name_replies
from relay.digest.session_cache import SessionCache
from relay.gateway.call.ids import new_session_id
from relay.gateway.journal.records import Ended
from relay.gateway.limits import usage_store
from relay.usage.amounts import Use

OFF = "off"


@dataclass(slots=True)
class Outcome:
    """What a wave came to: calls whose request is filed, calls that are done, calls that wait for others."""

    filed: dict[UUID, FiledCall] = field(default_factory=dict)
    done: list[UUID] = field(default_factory=list)
    held: list[UUID] = field(default_factory=list)
    overtaken: list[UUID] = field(default_factory=list)  # calls under way that their client has made again
    sessions: dict[UUID, int] = field(default_factory=dict)  # that have changed, and whose they are


class FilingBatch:
    """`must_wait` says of a call whether what it goes on from may still be on its way; `is_alone` that no other host
    writes into this record."""

    def __init__(
        self, memory: SessionCache, folder: Path, *, must_wait: Callable[[PendingCall, Spot], bool], is_alone: bool
    ) -> None:
        self.memory, self.folder = memory, folder
        self.must_wait, self.is_alone = must_wait, is_alone
        self.outcome = Outcome()
        self.unkept: list[CallPlan] = []  # calls of which nothing is to be written
        self.copies: dict[UUID, AnswerCopy] = {}  # of answers that come late
        self.grown: set[UUID] = set()  # sessions to which a call of this wave adds something

    def file(self, calls: Sequence[PendingCall], *, keep_position: Callable[[Outcome], None]) -> Outcome:
        # Before the transaction: on SQLite no other process can write while it is open. On PostgreSQL a plan made in
        # the transaction would see the same, and what is written locks its session and looks again.
        keys = ApiKey.objects.in_bulk({call.asked.record.key for call in calls})
        for call in calls:
            mode = redaction.stricter(call.asked.record.recording, keys[call.asked.record.key].recording)
            bodies.read_bodies(self.folder, call, mode=mode)
        self.copies = {} if self.is_alone else copies_of(calls, _answer_to)
        plans = [plan for call in calls if (plan := self._plan(call, keys[call.asked.record.key]))]
        files = _files(plans)
        for plan in plans:
            _prepare(plan, files)
        adoptions = side_call_notes.earlier_side_calls(plans)
        with writing():
            for plan in plans:
                if plan.child is not None:
                    parents.look_again(plan.asked, plan.child, self.memory)
            self._append(plans, files)
            self._append_others(plans, files)
            self._write_exchanges(plans)
            name_replies(plans)
            side_call_notes.write_notes(plans)
            side_call_notes.adopt(adoptions)
            usage_store.add_tokens(_uncounted([*plans, *self.unkept]))
            keep_position(self.outcome)
        return self.outcome

    # What each call adds.

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
            self.outcome.held.append(call.id)
            return None
        if call.is_given_up:
            plan.metadata["problem"] = call.asked.problem
        if call.ended is not None:
            plan.answer = _answer_to(call, call.ended)
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
            self.outcome.held.append(plan.under.id)
            return None
        plan.answer = _answer_to(plan.under, plan.under.ended)
        plan.cost = cost_of(plan)
        self.outcome.done.append(plan.under.id)
        self.unkept.append(plan)
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
            spot = regrouped_answers.spot_of(plan)
            if self.must_wait(plan.under, spot):
                return False
            if named_side_calls.is_beside(plan.asked, spot):
                plan.under.asked, plan.metadata[HELPER] = plan.asked.as_side_call(SIDE_CALL), SIDE_CALL
                side_call_notes.plan_side_call(plan, spot.session)
                return True
            spot = truncated_clients.spot_of(plan, spot)
            if prefills.is_prefill(plan.asked, spot):
                plan.under.asked = plan.asked.prefilled()
                spot = regrouped_answers.spot_of(plan)
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
        plan.entries, changed = entries_to_add(plan.asked, spot, self.memory, session_id=session_id)
        plan.session_id, plan.start, plan.after = session_id, spot.after, spot.after
        plan.metadata["recognised_by"] = spot.by
        if plan.asked.is_prefilled:
            plan.metadata[prefills.PREFILLED] = prefills.length_of(plan.asked)
        if changed:
            plan.metadata["changed_results"] = changed

    # Rows.

    def _append(self, plans: Sequence[CallPlan], files: Mapping[str, bytes]) -> None:
        wishes = [(plan, wish) for plan in plans for wish in plan.appends]
        begun = [_priced(plan.new_session, plan) for plan in plans if plan.new_session]
        if not wishes and not begun:
            return
        written = recorder.append_batch([wish for _plan, wish in wishes], begun=begun, files=files)
        parents.join(plans, self.memory)
        for (plan, wish), appended in zip(wishes, written, strict=True):
            self._note_written(plan, wish.entry, appended)

    def _append_others(self, plans: Sequence[CallPlan], files: Mapping[str, bytes]) -> None:
        """Where the caller asked for several answers, each further one is a branch beside the first."""
        wishes = [replace(wish, after=plan.after) for plan in plans for wish in plan.further]
        if wishes:
            recorder.append_batch(wishes, files=files)

    def _note_written(self, plan: CallPlan, entry: Entry, written: Appended) -> None:
        if plan.session_id is not None:
            self.outcome.sessions[plan.session_id] = plan.key.owner_id
            self.memory.note_version(plan.session_id, written.seq)
        if entry is plan.message:
            plan.message_id, plan.message_seq = written.message_id, written.seq
        elif not isinstance(entry, HeadMoved) and entry is not plan.gap:
            plan.after = written.seq

    def _write_exchanges(self, plans: Sequence[CallPlan]) -> None:
        found = [row_of(plan) for plan in plans]
        with daily_counts.recounting(exchanges=_counted_exchanges(plans, found)):
            for plan in plans:
                retries.rename(plan)
                if plan.earlier is not None and plan.earlier.ended_at is None:
                    self.outcome.overtaken.append(plan.earlier.pk)
            is_new = [plan.before is None and plan.earlier is None for plan in plans]
            bulk.insert(Exchange, [row for row, new in zip(found, is_new, strict=True) if new])
            ended = [
                row for row, new, plan in zip(found, is_new, plans, strict=True) if not new and plan.answer is not None
            ]
            if ended:
                bulk.update(Exchange, ended, ENDING)
        for plan in plans:
            self._note_exchange(plan)

    def _note_exchange(self, plan: CallPlan) -> None:
        if plan.answer is None:
            self.outcome.filed[plan.under.id] = FiledCall(
                session_id=plan.session_id, after=plan.after, attempts=plan.attempts, metadata=plan.metadata
            )
            return
        self.outcome.done.append(plan.under.id)
        if plan.session_id is None:
            return
        # Also where nothing was said: a page shows that the program waits no longer.
        self.outcome.sessions[plan.session_id] = plan.key.owner_id
        if plan.new_session is None and plan.cost:
            writer.change(plan.session_id, cost=F("cost") + plan.cost)


def _counted_exchanges(plans: Sequence[CallPlan], found: Sequence[Exchange]) -> QuerySet[Exchange] | None:
    """The rows whose tokens and cost a wave changes: calls that have ended, and earlier tries that go on."""
    ids = [
        row.pk for row, plan in zip(found, plans, strict=True) if plan.answer is not None or plan.earlier is not None
    ]
    ids += [plan.earlier.pk for plan in plans if plan.earlier is not None]
    return Exchange.objects.filter(pk__in=among(ids)) if ids else None


def _answer_to(call: PendingCall, ended: Ended) -> RecordedAnswer:
    """What came back, with what the client had written of it."""
    return prefills.completed(call.asked, call.answer or RecordedAnswer(reason=ended.reason))


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


def _priced(session: Session, plan: CallPlan) -> Session:
    """Where a call has ended before its session is stored, the row has its cost from the start."""
    session.cost = plan.cost
    return session


def _prepare(plan: CallPlan, files: Mapping[str, bytes]) -> None:
    """Redact all that the plan writes: the longest work of filing, and the transaction must not wait for it."""
    wishes, further, note = _wishes(plan), _further(plan), side_call_notes.note_for(plan)
    plan.appends = [_prepared(wish, files) for wish in wishes]
    plan.further = [_prepared(wish, files) for wish in further]
    plan.note = _prepared(note, files) if note else None
    plan.columns = columns_of(plan)


def _prepared(wish: Append, files: Mapping[str, bytes]) -> Append:
    return replace(wish, prepared=prepare(wish.entry, recording=wish.promised, given=files))


def _wishes(plan: CallPlan) -> list[Append]:
    if plan.session_id is None:
        return []
    plan.message = _message(plan)
    if plan.copy is not None and plan.copy.is_whole:
        plan.message, plan.message_id, plan.message_seq = None, plan.copy.message_id, plan.copy.seq
    answer = [plan.message, plan.gap, plan.way_back] if plan.message or plan.gap else []
    added = [*plan.entries, *filter(None, answer)]
    first, mode = plan.after if plan.start is None else plan.start, mode_of(plan)
    return [Append(plan.session_id, entry, None if place else first, mode) for place, entry in enumerate(added)]


def _message(plan: CallPlan) -> ModelOutput | None:
    answer = plan.answer
    if answer is None or answer.output is None or plan.asked.side or not plan.keeps_texts:
        return None
    return exchanges.message_of(answer.output, end_reason=answer.reason)


def _further(plan: CallPlan) -> list[Append]:
    if plan.session_id is None or plan.message is None or plan.answer is None:
        return []
    messages = (exchanges.message_of(other, end_reason=plan.answer.reason) for other in plan.answer.others)
    return [Append(plan.session_id, message, plan.after, mode_of(plan)) for message in messages if message]


def _uncounted(plans: Iterable[CallPlan]) -> Iterator[tuple[int, int, float, Use]]:
    """What is known of the tokens of calls only now that they are read; with the same moment as their end."""
    for plan in plans:
        ended, answer = plan.under.ended, plan.answer
        if ended is not None and not ended.is_counted and answer is not None and (usage := answer.usage):
            used = Use(tokens=usage.input_tokens + usage.output_tokens, cost=plan.cost)
            yield plan.key.pk, plan.key.owner_id, ended.at, used


def _files(plans: Iterable[CallPlan]) -> dict[str, bytes]:
    """Whatever the entries of these calls may name."""
    found: dict[str, bytes] = {}
    for plan in plans:
        if plan.asked.request is not None:
            found.update(plan.asked.request.blobs)
        if plan.answer is not None:
            found.update(plan.answer.blobs)
    return found
