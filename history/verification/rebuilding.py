"""Rebuild of the projections of one session from its entries.

Nothing here decides anything: the replay says where the head is, what is on the path and which result belongs to which
call. Rows of calls whose texts were dropped cannot be made again, and are left as they are.

Thousands of entries are read for seconds, and on SQLite a writer blocks all other writers. So they are
replayed before any lock is taken, and what follows from them is written in short transactions; each of them looks first
whether the session is still the one that was replayed. If not, all begins anew, the last time under one lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import QuerySet

from history import search
from history.db.transactions import writing
from history.entries import Entry, ModelOutput, ToolResults
from history.models import Message, Session, ToolCall
from history.models.append_only import writable
from history.record import daily_counts, projections
from history.record.expiry import expiry_of
from history.record.loading import entries_of
from history.verification.projections_check import call_ids
from history.verification.replay import Replay, ReplayedCall

PAGE = 200
ATTEMPTS = 3

Right = dict[bool, list[int]]  # what a mark should say → the rows that say otherwise


class _Changed(Exception):
    """The session was changed since its entries were replayed."""


def rebuild(session: Session) -> None:
    """Path, head, counters, tool calls and search rows of this session."""
    for _ in range(ATTEMPTS):
        with suppress(_Changed):
            _rebuild(session.pk)
            break
    else:
        with writing():
            Session.objects.select_for_update().get(pk=session.pk)
            _rebuild(session.pk)
    search.rebuild(session)
    session.refresh_from_db()


def _rebuild(session_id: UUID) -> None:
    session = Session.objects.get(pk=session_id)
    account = _read(session)
    _put_right(session, account)
    asking = sorted(account.replay.calls)
    for start in range(0, len(asking), PAGE):
        _make_calls(session, account.replay, asking[start : start + PAGE])


@contextmanager
def _unchanged(session: Session) -> Iterator[Session]:
    """A transaction in which the session is ours, and as it was."""
    with writing():
        locked = Session.objects.select_for_update().get(pk=session.pk)
        if (locked.version, locked.trimmed_through) != (session.version, session.trimmed_through):
            raise _Changed
        yield locked


# What the entries say.


@dataclass
class _Account:
    replay: Replay
    wrong_moves: Right = field(default_factory=lambda: {True: [], False: []})
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, message: Message, entry: Entry) -> None:
        self.input_tokens += message.input_tokens
        self.output_tokens += message.output_tokens
        self.errors += _errors_in(message, entry)
        if message.seq > self.replay.trimmed_through:
            self._replay(message, entry)

    def _replay(self, message: Message, entry: Entry) -> None:
        asks, answers = call_ids(entry)
        moved = self.replay.add(message, asks=asks, answers=answers)
        if moved != message.moved_head:
            self.wrong_moves[moved].append(message.seq)


def _errors_in(message: Message, entry: Entry) -> int:
    if message.body is not None:
        return projections.errors_in(entry)
    return projections.errors_left(kind=message.kind, status=message.status, metadata=message.metadata)


def _read(session: Session) -> _Account:
    account = _Account(Replay(session.trimmed_through))
    last, rows = 0, Message.objects.in_order(session)
    while page := list(rows.filter(seq__gt=last)[:PAGE]):
        for message, entry in zip(page, entries_of(page), strict=True):
            account.add(message, entry)
        last = page[-1].seq
    return account


# Path, head and counters.

COUNTERS = ("message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens")


def _put_right(session: Session, account: _Account) -> None:
    marks, calls = _wrong_marks(session, account.replay), _wrong_calls(session, account.replay)
    entries = Message.objects.of(session)
    with _unchanged(session) as locked:
        for moved, numbers in account.wrong_moves.items():
            _each(entries, numbers, moved_head=moved)
        for on_path, numbers in marks.items():
            _each(entries, numbers, on_path=on_path)
        for start in range(0, len(calls), PAGE):
            _replace_calls(ToolCall.objects.filter(pk__in=calls[start : start + PAGE]))
        _stand_at_head(locked, account.replay)
        _count(locked, account)
        locked.dropped_through = 0  # the next purge looks again
        locked.expires_at = expiry_of(locked)
        locked.save(
            update_fields=[
                "head",
                "head_fingerprint",
                "head_has_open_calls",
                "dropped_through",
                "expires_at",
                *COUNTERS,
            ]
        )


def _wrong_marks(session: Session, replay: Replay) -> Right:
    wrong: Right = {True: [], False: []}
    anchored = replay.hangs_on_anchor()
    rows = Message.objects.in_order(session)
    for seq, marked in rows.values_list("seq", "on_path").iterator(chunk_size=2_000):
        if marked != (replay.is_on_path(seq) if seq > session.trimmed_through else anchored):
            wrong[not marked].append(seq)
    return wrong


def _each(entries: QuerySet[Message], numbers: Sequence[int], **mark: bool) -> None:
    for start in range(0, len(numbers), PAGE):
        writable(entries.filter(seq__in=numbers[start : start + PAGE])).update(**mark)


def _stand_at_head(session: Session, replay: Replay) -> None:
    session.head = replay.head or 0
    row = Message.objects.at(session, session.head).values_list("fingerprint", flat=True).first()
    session.head_fingerprint = row or b""
    session.head_has_open_calls = bool(replay.calls.get(replay.output_of(session.head)))


def _count(session: Session, account: _Account) -> None:
    unreadable = ToolCall.objects.of(session).filter(message__body=None).count()
    session.tool_call_count = unreadable + sum(map(len, account.replay.calls.values()))
    session.message_count = account.replay.messages_on_path()
    session.input_tokens, session.output_tokens = account.input_tokens, account.output_tokens
    # What failed in results whose texts are gone is known from the counter alone.
    session.error_count = account.errors


# Tool calls.


def _wrong_calls(session: Session, replay: Replay) -> list[int]:
    """Rows that belong to no request, or hold the place of another's result: they make way before all are made anew."""
    rows = ToolCall.objects.of(session).filter(message__body__isnull=False).order_by()
    columns = ("pk", "message__seq", "index", "answered_by", "answer_index")
    wrong = []
    for pk, seq, index, *answer in rows.values_list(*columns).iterator(chunk_size=2_000):
        calls = replay.calls.get(seq, [])
        if index >= len(calls) or [calls[index].answered_by, calls[index].answer_index] != answer:
            wrong.append(pk)
    return wrong


def _make_calls(session: Session, replay: Replay, asking: Sequence[int]) -> None:
    """Throw the rows of these answers' calls away and make them again."""
    with _unchanged(session):
        messages = list(Message.objects.of(session).filter(seq__in=asking, body__isnull=False).order_by("seq"))
        results = _results(session, {seq for number in asking for seq in _answered_by(replay.calls[number])})
        rows = [
            row
            for message, entry in zip(messages, entries_of(messages), strict=True)
            for row in _calls_of(message, entry, replay.calls[message.seq], results)
        ]
        _replace_calls(ToolCall.objects.filter(message__in=messages), by=rows)


def _replace_calls(calls: QuerySet[ToolCall], *, by: Sequence[ToolCall] = ()) -> None:
    ids = list(calls.order_by().values_list("message_id", flat=True).distinct())
    ids += [row.message_id for row in by]
    with daily_counts.repairing(Message.objects.filter(pk__in=set(ids))):
        writable(calls)._raw_delete(calls.db)
        ToolCall.objects.bulk_create(by)


def _answered_by(calls: Sequence[ReplayedCall]) -> Iterator[int]:
    return (call.answered_by for call in calls if call.answered_by is not None)


def _results(session: Session, numbers: set[int]) -> dict[int, ToolResults]:
    messages = list(Message.objects.of(session).filter(seq__in=numbers).order_by())
    entries = {message.seq: entry for message, entry in zip(messages, entries_of(messages), strict=True)}
    found = {seq: entry for seq, entry in entries.items() if isinstance(entry, ToolResults)}
    if len(found) < len(numbers):  # their texts were dropped since
        raise _Changed
    return found


def _calls_of(
    message: Message, entry: Entry, calls: Sequence[ReplayedCall], results: Mapping[int, ToolResults]
) -> Iterator[ToolCall]:
    if not isinstance(entry, ModelOutput):
        return
    status = "pending" if entry.status == "complete" else "interrupted"
    for index, (request, call) in enumerate(zip(entry.tool_requests, calls, strict=True)):
        columns = projections.call_columns(request, status=status)
        if call.answered_by is not None and call.answer_index is not None:
            columns |= projections.outcome_columns(results[call.answered_by].results[call.answer_index])
            columns |= {"answered_by": call.answered_by, "answer_index": call.answer_index}
        yield ToolCall(session_id=message.session_id, message=message, index=index, created_at=entry.at, **columns)
