"""The projections of one session, made anew from its entries.

Nothing here decides anything: the replay says where the head is, what is on the path and which result belongs to which
call. Rows of calls whose texts were dropped cannot be made again, and are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from history import projections, search
from history.entries import CONVERSATION, Entry, ModelOutput, ToolResults
from history.models import Message, Session, ToolCall
from history.reading import entries_of
from history.transactions import writing
from history.verification.claims import call_ids
from history.verification.replay import Call, Replay

PAGE = 200


def rebuild(session: Session) -> None:
    """Path, head, counters, tool calls and search rows of this session, in one transaction."""
    with writing():
        locked = Session.objects.select_for_update().get(pk=session.pk)
        replay = _replay(locked)
        _mark_path(locked, replay)
        _stand_at_head(locked, replay)
        _make_calls(locked, replay)
        _count(locked)
        locked.dropped_through = 0  # the next purge looks again
        locked.save(update_fields=["head", "head_fingerprint", "head_has_open_calls", "dropped_through", *COUNTERS])
        search.rebuild(locked)
    session.refresh_from_db()


COUNTERS = ("message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens")


def _pages(session: Session) -> Iterator[list[tuple[Message, Entry]]]:
    last, rows = 0, Message.objects.filter(session=session).order_by("seq")
    while page := list(rows.filter(seq__gt=last)[:PAGE]):
        yield list(zip(page, entries_of(page), strict=True))
        last = page[-1].seq


def _replay(session: Session) -> Replay:
    """Replay all entries, and correct what the rows say about moving the head."""
    replay = Replay(session.trimmed_through)
    for page in _pages(session):
        wrong: dict[bool, list[int]] = {True: [], False: []}
        for message, entry in page:
            if message.seq <= session.trimmed_through:
                continue
            asks, answers = call_ids(entry)
            moved = replay.add(
                message.seq, message.parent_seq, message.kind, moved=message.moved_head, asks=asks, answers=answers
            )
            if moved != message.moved_head:
                wrong[moved].append(message.pk)
        for moved, ids in wrong.items():
            Message.objects.filter(pk__in=ids).update(moved_head=moved)
    return replay


def _mark_path(session: Session, replay: Replay) -> None:
    anchored = replay.hangs_on_anchor()
    kept = Message.objects.filter(session=session, seq__lte=session.trimmed_through)
    kept.exclude(on_path=anchored).update(on_path=anchored)
    rows = Message.objects.filter(session=session, seq__gt=session.trimmed_through).order_by("seq")
    wrong: dict[bool, list[int]] = {True: [], False: []}
    for seq, marked in rows.values_list("seq", "on_path").iterator(chunk_size=2_000):
        if marked != replay.is_on_path(seq):
            wrong[not marked].append(seq)
    for on_path, numbers in wrong.items():
        for start in range(0, len(numbers), PAGE):
            rows.filter(seq__in=numbers[start : start + PAGE]).order_by().update(on_path=on_path)


def _stand_at_head(session: Session, replay: Replay) -> None:
    session.head = replay.head or 0
    row = Message.objects.filter(session=session, seq=session.head).values_list("fingerprint", flat=True).first()
    session.head_fingerprint = row or b""
    session.head_has_open_calls = bool(replay.calls.get(replay.output_of(session.head)))


def _make_calls(session: Session, replay: Replay) -> None:
    """Throw the rows of calls away and make them again, each as soon as the entry that answers it has come by."""
    ToolCall.objects.filter(session=session, message__body__isnull=False).delete()
    waiting: dict[int, list[tuple[ToolCall, int]]] = {}
    for page in _pages(session):
        done: list[ToolCall] = []
        for message, entry in page:
            if isinstance(entry, ModelOutput) and message.body is not None:
                done += _calls_of(message, entry, replay.calls.get(message.seq, ()), waiting)
            elif isinstance(entry, ToolResults):
                done += _answered(entry, waiting.pop(message.seq, ()))
        ToolCall.objects.bulk_create(done)


def _calls_of(
    message: Message, entry: ModelOutput, calls: Sequence[Call], waiting: dict[int, list[tuple[ToolCall, int]]]
) -> list[ToolCall]:
    status = "pending" if entry.status == "complete" else "interrupted"
    unanswered = []
    for index, (request, call) in enumerate(zip(entry.tool_requests, calls, strict=True)):
        row = ToolCall(
            session=message.session, message=message, index=index, created_at=entry.at, answered_by=call.answered_by,
            answer_index=call.answer_index, **projections.call_columns(request, status=status),
        )  # fmt: skip
        if call.answered_by is None or call.answer_index is None:
            unanswered.append(row)
        else:
            waiting.setdefault(call.answered_by, []).append((row, call.answer_index))
    return unanswered


def _answered(entry: ToolResults, calls: Sequence[tuple[ToolCall, int]]) -> list[ToolCall]:
    for row, index in calls:
        for name, value in projections.outcome_columns(entry.results[index]).items():
            setattr(row, name, value)
    return [row for row, _ in calls]


def _count(session: Session) -> None:
    session.message_count = Message.objects.filter(session=session, on_path=True, kind__in=CONVERSATION).count()
    session.tool_call_count = ToolCall.objects.filter(session=session).count()
    was, has_dropped = session.error_count, False
    session.error_count = session.input_tokens = session.output_tokens = 0
    for page in _pages(session):
        for message, entry in page:
            has_dropped = has_dropped or message.body is None
            session.input_tokens += message.input_tokens
            session.output_tokens += message.output_tokens
            failed = message.body is None and message.kind == ModelOutput.kind and message.status == "failed"
            session.error_count += projections.errors_in(entry) if message.body is not None else failed
    if has_dropped:  # what failed in results whose texts are gone is known from the counter alone
        session.error_count = max(was, session.error_count)
