"""Rows of many calls in one transaction: sessions, entries, exchanges.

Memory about a call changes only after the commit (but for how its request is read), so an outage costs only time. A
batch has no two calls of which one continues what the other adds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.db.models import F

from history.db import bulk
from history.db.parameters import among
from history.entries import Entry, HeadMoved
from history.models import Exchange
from history.record import daily_counts, exchanges, recorder, writer
from history.record.recorder import Append, Appended
from history.record.row_builder import prepare
from relay.digest import planning, side_call_notes
from relay.digest.calls import CallPlan, FiledCall, PendingCall
from relay.digest.exchange_rows import ENDING, redacted_columns, row_of
from relay.digest.planning import Planner
from relay.digest.recognisers import retries
from relay.digest.recognisers.returned_answers import store_names
from relay.usage import tables
from relay.usage.prices import Use


@dataclass(slots=True)
class FilingResult:
    filed: dict[UUID, FiledCall] = field(default_factory=dict)
    done: set[UUID] = field(default_factory=set)
    overtaken: list[UUID] = field(default_factory=list)  # pending calls that their client has made again
    sessions: dict[UUID, int] = field(default_factory=dict)  # those that have changed, with the ids of their owners


class FilingBatch:
    """Calls that are filed together: `prepare` before the transaction, `write` in it."""

    def __init__(self, planner: Planner) -> None:
        self.planner, self.cache = planner, planner.cache
        self.outcome = FilingResult()
        self.plans: list[CallPlan] = []
        self.files: dict[str, bytes] = {}
        self.adoptions: list[side_call_notes.Adoption] = []

    def prepare(self, calls: Sequence[PendingCall]) -> None:
        self.plans = self.planner.plan(calls)
        self.outcome.done |= {plan.call.id for plan in self.planner.unrecorded}
        for plan in self.plans:
            if plan.request.decoded is not None:
                self.files.update(plan.request.decoded.blobs)
            if plan.answer is not None:
                self.files.update(plan.answer.blobs)
        for plan in self.plans:
            _redact(plan, self.files)
        self.adoptions = side_call_notes.earlier_side_calls(self.plans)

    def write(self) -> None:
        for plan in self.plans:
            if plan.child is not None:
                planning.link_existing_child(plan.request, plan.child, self.cache)
        self._append_entries()
        self._write_exchanges()
        store_names(self.plans)
        side_call_notes.append_notes([plan.note for plan in self.plans if plan.note is not None])
        side_call_notes.adopt(self.adoptions)
        tables.add_digested(list(_uncounted([*self.plans, *self.planner.unrecorded])))

    def _append_entries(self) -> None:
        appends = [(plan, append) for plan in self.plans for append in plan.appends]
        new_sessions = [plan.new_session for plan in self.plans if plan.new_session is not None]
        if appends or new_sessions:
            entries = [append for _, append in appends]
            written = recorder.append_batch(entries, new_sessions=new_sessions, files=self.files)
            planning.link_new_sessions(self.plans, self.cache)
            for (plan, append), appended in zip(appends, written, strict=True):
                _note_written(plan, append.entry, appended)
                self.cache.note_version(append.session_id, appended.seq)
        # Where the caller wanted several answers, each further one is a branch beside the first.
        further = [replace(append, after=plan.after) for plan in self.plans for append in plan.further]
        if further:
            recorder.append_batch(further, files=self.files)

    def _write_exchanges(self) -> None:
        rows = [(row_of(plan), plan, plan.call.filed is None and plan.earlier is None) for plan in self.plans]
        earlier = [plan.earlier for plan in self.plans if plan.earlier is not None]
        counted = [plan.call.id for plan in self.plans if plan.answer is not None or plan.earlier is not None]
        counted += [row.pk for row in earlier]
        counted_rows = Exchange.objects.filter(pk__in=among(counted)) if counted else None
        with daily_counts.recounting(exchanges=counted_rows):
            for plan in self.plans:
                retries.rename_exchange(plan)
            self.outcome.overtaken += [row.pk for row in earlier if row.ended_at is None]
            bulk.insert(Exchange, [row for row, _, is_new in rows if is_new])
            if ended := [row for row, plan, is_new in rows if not is_new and plan.answer is not None]:
                bulk.update(Exchange, ended, ENDING)
        for plan in self.plans:
            if plan.session_id is not None and (plan.answer is not None or plan.appends):
                # Also without an entry: a page shows that the program waits no longer.
                self.outcome.sessions[plan.session_id] = plan.key.owner_id
            if plan.answer is None:
                self.outcome.filed[plan.call.id] = FiledCall(
                    session_id=plan.session_id, after=plan.after, attempts=plan.attempts, metadata=plan.metadata
                )
                continue
            self.outcome.done.add(plan.call.id)
            if plan.session_id is not None and plan.new_session is None and plan.cost:
                writer.change(plan.session_id, cost=F("cost") + plan.cost)


def _note_written(plan: CallPlan, entry: Entry, written: Appended) -> None:
    if entry is plan.message:
        plan.message_id, plan.message_seq = written.message_id, written.seq
    elif not isinstance(entry, HeadMoved) and entry is not plan.gap:
        plan.after = written.seq


def _redact(plan: CallPlan, files: Mapping[str, bytes]) -> None:
    """Redact everything that the plan writes: the longest work of filing must not hold up the transaction."""
    plan.columns = redacted_columns(plan)
    if (session := plan.session_id) is None:
        return

    def redacted(entry: Entry, after: int | None) -> Append:
        prepared = prepare(entry, recording=plan.mode, files=files)
        return Append(session, entry, after, plan.mode, prepared=prepared)

    entries, note = _entries(plan), side_call_notes.note_for(plan)
    after = plan.after if plan.start is None else plan.start
    plan.appends = [redacted(entry, None if index else after) for index, entry in enumerate(entries)]
    if plan.message is not None and plan.answer is not None:
        others = (exchanges.message_of(other, end_reason=plan.answer.reason) for other in plan.answer.others)
        plan.further = [redacted(other, plan.after) for other in others if other]
    plan.note = redacted(note, 0) if note else None


def _entries(plan: CallPlan) -> list[Entry]:
    answer = plan.answer
    if answer is not None and answer.output is not None and not plan.request.side_call and plan.keeps_texts:
        plan.message = exchanges.message_of(answer.output, end_reason=answer.reason)
    if plan.copy is not None and plan.copy.is_complete:
        plan.message, plan.message_id, plan.message_seq = None, plan.copy.message.pk, plan.copy.message.seq
    tail = [plan.message, plan.gap, plan.way_back] if plan.message or plan.gap else []
    return [*plan.entries, *filter(None, tail)]


def _uncounted(plans: Iterable[CallPlan]) -> Iterator[tuple[int, int, float, Use]]:
    """Tokens of calls that are known only now that they are read, at the moment of their end."""
    for plan in plans:
        ended, answer = plan.call.ended, plan.answer
        if ended is not None and not ended.is_counted and answer is not None and (usage := answer.usage):
            used = Use(tokens=usage.input_tokens + usage.output_tokens, cost=plan.cost)
            yield plan.key.pk, plan.key.owner_id, ended.at, used
