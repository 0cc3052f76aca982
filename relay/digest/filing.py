"""The rows of many calls in one transaction: sessions, entries, exchanges, and how far the journal is digested.

Everything about a call that is in memory changes only after the commit (but for how its request is read), so a database
that goes away in the middle costs nothing but time. A wave holds no two calls of which one goes on from what the other
adds. Two that leave one conversation at the same answer and name nothing may meet in one: then the later of them is
where it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.db.models import F, QuerySet

from history.db import bulk
from history.db.in_list import among
from history.entries import Entry, HeadMoved, ModelOutput
from history.models import Exchange, Session
from history.record import daily_counts, exchanges, recorder, writer
from history.record.recorder import Append, Appended
from history.record.row_builder import prepare
from relay.digest import parents, side_call_notes
from relay.digest.calls import CallPlan, FiledCall, PendingCall
from relay.digest.exchange_rows import ENDING, columns_of, mode_of, row_of
from relay.digest.planning import Planner
from relay.digest.recognisers import retries
from relay.digest.reply_names import name_replies
from relay.digest.session_cache import SessionCache
from relay.gateway.limits import usage_store
from relay.usage.amounts import Use


@dataclass(slots=True)
class Outcome:
    """What a wave came to: calls whose request is filed, and calls that are done."""

    filed: dict[UUID, FiledCall] = field(default_factory=dict)
    done: list[UUID] = field(default_factory=list)
    overtaken: list[UUID] = field(default_factory=list)  # calls under way that their client has made again
    sessions: dict[UUID, int] = field(default_factory=dict)  # that have changed, and whose they are


class FilingBatch:
    """Calls that are filed together: `prepare` before the transaction, `write` in it."""

    def __init__(self, planner: Planner, memory: SessionCache) -> None:
        self.planner, self.memory = planner, memory
        self.outcome = Outcome()
        self.plans: list[CallPlan] = []
        self.files: dict[str, bytes] = {}
        self.adoptions: list[side_call_notes.Adoption] = []

    def prepare(self, calls: Sequence[PendingCall]) -> None:
        self.plans = self.planner.plan(calls)
        self.outcome.done += [plan.under.id for plan in self.planner.unrecorded]
        self.files = _files(self.plans)
        for plan in self.plans:
            _prepare(plan, self.files)
        self.adoptions = side_call_notes.earlier_side_calls(self.plans)

    def write(self) -> None:
        for plan in self.plans:
            if plan.child is not None:
                parents.look_again(plan.asked, plan.child, self.memory)
        self._append(self.plans, self.files)
        self._append_others(self.plans, self.files)
        self._write_exchanges(self.plans)
        name_replies(self.plans)
        side_call_notes.write_notes(self.plans)
        side_call_notes.adopt(self.adoptions)
        usage_store.add_tokens(list(_uncounted([*self.plans, *self.planner.unrecorded])))

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
