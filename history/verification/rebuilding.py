"""Rebuild of the projections of one session from its entries; rows of calls without texts are left as they are.

Entries are replayed before any lock is taken, and written in short transactions, because on SQLite a writer blocks all
others. Each first checks that the session is unchanged; if not, all begins again, the last time under one lock.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID

from django.db.models import F, QuerySet

from history import search
from history.db.transactions import writing
from history.entries import ToolResults
from history.models import Message, Session, ToolCall
from history.models.append_only import writable
from history.record import daily_counts, projections
from history.record.expiry import expiry_of
from history.record.loading import entries_of
from history.verification.replay import Replay

PAGE = 200
ATTEMPTS = 3
HEAD_COLUMNS = ("head", "head_fingerprint", "head_has_open_calls")


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
    replay, wrong_moves = Replay(session), []
    last, rows = 0, Message.objects.in_order(session)
    while page := list(rows.filter(seq__gt=last)[:PAGE]):
        entries = zip(page, entries_of(page), strict=True)
        wrong_moves += [row.seq for row, entry in entries if replay.add(row, entry) != row.moved_head]
        last = page[-1].seq
    _write_path(session, replay, wrong_moves)
    calling = sorted(replay.calls)
    for start in range(0, len(calling), PAGE):
        _write_calls(session, replay, calling[start : start + PAGE])


@contextmanager
def _lock_unchanged(session: Session) -> Iterator[Session]:
    """A transaction with the lock of the session, which is as it was."""
    with writing():
        locked = Session.objects.select_for_update().get(pk=session.pk)
        if (locked.version, locked.trimmed_through) != (session.version, session.trimmed_through):
            raise _Changed
        yield locked


def _write_path(session: Session, replay: Replay, wrong_moves: Sequence[int]) -> None:
    wrong_marks, wrong_calls, totals = replay.wrong_marks(), _wrong_calls(session, replay), replay.totals()
    entries = Message.objects.of(session)
    with _lock_unchanged(session) as locked:
        for name, wrong in (("moved_head", wrong_moves), ("on_path", wrong_marks)):
            for start in range(0, len(wrong), PAGE):
                writable(entries.filter(seq__in=wrong[start : start + PAGE])).update(**{name: ~F(name)})
        for start in range(0, len(wrong_calls), PAGE):
            _replace_calls(ToolCall.objects.filter(pk__in=wrong_calls[start : start + PAGE]))
        for name in (*HEAD_COLUMNS, *Session.COUNTERS):
            setattr(locked, name, getattr(totals, name))
        locked.tool_call_count += ToolCall.objects.filter(session=session).filter(message__body=None).count()
        locked.dropped_through = 0  # the next purge looks again
        locked.expires_at = expiry_of(locked)
        locked.save(update_fields=[*HEAD_COLUMNS, *Session.COUNTERS, "dropped_through", "expires_at"])


def _wrong_calls(session: Session, replay: Replay) -> list[int]:
    """Rows without a request, or with another call's result: they are removed before all are built again."""
    rows = ToolCall.objects.filter(session=session).filter(message__body__isnull=False).order_by()
    columns = ("pk", "message__seq", "index", "answered_by", "answer_index")
    wrong = []
    for pk, seq, index, *answer in rows.values_list(*columns).iterator(chunk_size=2_000):
        calls = replay.calls.get(seq, [])
        if index >= len(calls) or [calls[index].answered_by, calls[index].answer_index] != answer:
            wrong.append(pk)
    return wrong


def _write_calls(session: Session, replay: Replay, seqs: Sequence[int]) -> None:
    """Build the rows of these answers' calls again."""
    with _lock_unchanged(session):
        messages = list(Message.objects.of(session).filter(seq__in=seqs, body__isnull=False).order_by("seq"))
        answers = {call.answered_by for seq in seqs for call in replay.calls[seq] if call.answered_by is not None}
        results = _load_results(session, answers)
        rows = []
        for message, entry in zip(messages, entries_of(messages), strict=True):
            for row, call in zip(projections.build_calls(message, entry), replay.calls[message.seq], strict=False):
                seq, index = call.answered_by, call.answer_index
                if seq is not None and index is not None:
                    projections.set_outcome(row, results[seq].results[index], seq=seq, index=index)
                rows.append(row)
        _replace_calls(ToolCall.objects.filter(message__in=messages), by=rows)


def _replace_calls(calls: QuerySet[ToolCall], *, by: Sequence[ToolCall] = ()) -> None:
    ids = list(calls.order_by().values_list("message_id", flat=True).distinct())
    ids += [row.message_id for row in by]
    with daily_counts.repairing(Message.objects.filter(pk__in=set(ids))):
        writable(calls)._raw_delete(calls.db)
        ToolCall.objects.bulk_create(by)


def _load_results(session: Session, seqs: set[int]) -> dict[int, ToolResults]:
    messages = list(Message.objects.of(session).filter(seq__in=seqs).order_by())
    entries = zip(messages, entries_of(messages), strict=True)
    results = {message.seq: entry for message, entry in entries if isinstance(entry, ToolResults)}
    if len(results) < len(seqs):  # their texts were dropped since
        raise _Changed
    return results
