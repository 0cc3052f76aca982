"""Check and rebuild of projections: path, calls, counters, search rows and blob links.

To rebuild, entries are replayed before any lock is taken, and written in short transactions, because on SQLite a writer
blocks all others. Each first checks that the session is unchanged; if not, all begins again, the last time under one
lock. Rows of calls without texts are left as they are.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID

from django.db.models import QuerySet

from history import search
from history.db.transactions import writing
from history.entries import Entry, JsonObject, ModelOutput, ToolResults
from history.models import Message, SearchRow, Session, ToolCall
from history.models.append_only import writable
from history.record import daily_counts, fingerprints, projections
from history.record.expiry import expiry_of
from history.record.loading import entries_of, pages_of
from history.verification.replay import Replay
from history.verification.rows import VerificationFinding, projection_finding

Slot = tuple[int, int]  # an entry, and the index of one of its requests or results

LINKS = Message.blobs.through.objects
CALL_COLUMNS = ("call_id", "name", "arguments", "created_at")
OUTCOME_COLUMNS = tuple(projections.NO_OUTCOME)


class ProjectionsCheck:
    """Reads every entry once, and reports what does not follow from them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.replay = Replay(session)
        self.scope = fingerprints.scope_of(api_key_id=session.api_key_id, owner_id=session.owner_id)
        self.has_wrong_fingerprint = False
        self.dropped_answers: set[int] = set()
        # Hashes of what the rows of calls should contain: the call and the outcome without a result; the results.
        self.calls: dict[Slot, tuple[int, int]] = {}
        self.outcomes: dict[tuple[int | None, int | None], int] = {}
        self.searchable: set[int] = set()  # ids of rows of this page
        self.blobs: dict[int, frozenset[str]] = {}
        self.wrong_search_rows: list[int] = []

    def add(self, row: Message, entry: Entry | None, names: frozenset[str]) -> Iterator[VerificationFinding]:
        if names:
            self.blobs[row.pk] = names
        if row.body is None and row.kind == ModelOutput.kind:  # the rows of its calls are all that is known of them
            self.dropped_answers.add(row.seq)
        if entry is not None:
            self._add_calls(row, entry)
            if projections.searched_text(entry):
                self.searchable.add(row.pk)
        if self.replay.add(row, entry) != row.moved_head:
            yield self._wrong(row.seq, "wrong_move", "its mark as head is wrong")
        if row.seq > self.session.trimmed_through:
            yield from self._check_fingerprint(row, entry)

    def check_page(self, rows: Sequence[Message]) -> Iterator[VerificationFinding]:
        ids = [row.pk for row in rows]
        indexed = set(SearchRow.objects.filter(message_id__in=ids).values_list("message_id", flat=True).distinct())
        self.wrong_search_rows += [row.seq for row in rows if (row.pk in indexed) != (row.pk in self.searchable)]
        expected = {(pk, name) for pk, names in self.blobs.items() for name in names}
        checked = [row.pk for row in rows if row.body is None or self.blobs.get(row.pk)]
        linked = set(LINKS.filter(message_id__in=checked).values_list("message_id", "blob_id"))
        seqs = {row.pk: row.seq for row in rows}
        for pk, name in sorted(expected ^ linked):
            yield self._wrong(seqs[pk], "wrong_link", f"its link to the blob {name[:12]}… is missing or superfluous")
        self.searchable.clear()
        self.blobs.clear()

    def check_end(self) -> Iterator[VerificationFinding]:
        made = self.replay.totals()
        yield from self._check_head(made)
        for seq in self.replay.wrong_marks():
            yield self._wrong(seq, "wrong_path", "its mark as part of the current path is wrong")
        of_dropped = yield from self._check_calls()
        made.tool_call_count += of_dropped
        for name in Session.COUNTERS:
            stored, count = getattr(self.session, name), getattr(made, name)
            if stored != count:
                yield self._wrong(self.session.version, "wrong_counter", f"{name} is {stored}, expected {count}")
        if self.wrong_search_rows:
            number, first = len(self.wrong_search_rows), self.wrong_search_rows[0]
            sentence = f"{number} entries, starting with this one, are wrong in the search index"
            yield self._wrong(first, "wrong_search_rows", sentence)

    def _wrong(self, seq: int, code: str, sentence: str) -> VerificationFinding:
        return projection_finding(self.session, seq, code, sentence)

    def _add_calls(self, row: Message, entry: Entry) -> None:
        for call in projections.build_calls(row, entry):
            self.calls[row.seq, call.index] = _hash(vars(call), CALL_COLUMNS), _hash(vars(call), OUTCOME_COLUMNS)
        for index, result in enumerate(entry.results):
            outcome = projections.outcome_columns(result, seq=row.seq, index=index)
            self.outcomes[row.seq, index] = _hash(outcome, OUTCOME_COLUMNS)

    def _check_fingerprint(self, row: Message, entry: Entry | None) -> Iterator[VerificationFinding]:
        parent = row.parent_seq
        if entry is None or self.has_wrong_fingerprint or not (parent == 0 or parent in self.replay.steps):
            return
        is_redacted = "[redacted:" in (row.body or "") or bool(entry.metadata.get("redacted"))
        if is_redacted or entry.metadata.get("recording") == "no_replies":
            return  # it was hashed before it was redacted
        after = self.replay.parent_state_of(parent).fingerprint
        if row.fingerprint != fingerprints.fingerprint(entry, after=after, scope=self.scope):
            self.has_wrong_fingerprint = True
            yield self._wrong(row.seq, "wrong_fingerprint", "its fingerprint does not match its content")

    def _check_head(self, made: Session) -> Iterator[VerificationFinding]:
        """The head, and the copies of its row that the next append reads from the session row."""
        session, head = self.session, self.session.head
        if made.head != head:
            sentence = f"the session has its head here, expected entry {made.head}"
            yield self._wrong(head, "wrong_head", sentence)
        elif head in self.replay.steps:
            if bytes(session.head_fingerprint) != bytes(made.head_fingerprint):
                yield self._wrong(head, "wrong_head", "its fingerprint differs from the one of the session")
            is_known = self.replay.parent_state_of(head).output not in self.dropped_answers
            if is_known and session.head_has_open_calls != made.head_has_open_calls:
                yield self._wrong(head, "wrong_head", "the session has the wrong state of its tool calls")

    def _check_calls(self) -> Generator[VerificationFinding, None, int]:
        """Compare the rows of calls. Returns how many belong to answers without texts."""
        expected: dict[Slot, tuple[int, int]] = {}
        for seq, calls in self.replay.calls.items():
            for index, call in enumerate(calls):
                request, unanswered = self.calls[seq, index]
                outcome = self.outcomes.get((call.answered_by, call.answer_index), unanswered)
                expected[seq, index] = request, outcome
        stored = ToolCall.objects.filter(session=self.session).filter(message__seq__lte=self.session.version)
        columns = ("message__seq", "index", *CALL_COLUMNS, *OUTCOME_COLUMNS)
        of_dropped = 0
        for values in stored.order_by("message__seq", "index").values(*columns).iterator(chunk_size=500):
            slot = values["message__seq"], values["index"]
            if slot[0] in self.dropped_answers:
                of_dropped += 1
                continue
            wanted = expected.pop(slot, None)
            if wanted != (_hash(values, CALL_COLUMNS), _hash(values, OUTCOME_COLUMNS)):
                problem = "differs from the entries" if wanted else "has no matching request"
                yield self._wrong(slot[0], "wrong_call", f"the row of its tool call {slot[1]} {problem}")
        for seq, index in expected:
            yield self._wrong(seq, "wrong_call", f"the row of its tool call {index} is missing")
        return of_dropped


def _hash(values: JsonObject, names: Sequence[str]) -> int:
    return hash(tuple(values[name] for name in names))


PAGE = 200
ATTEMPTS = 3
HEAD_COLUMNS = ("head", "head_fingerprint", "head_has_open_calls")


class _Changed(Exception):
    """The session was changed since its entries were replayed."""


def rebuild(session: Session) -> None:
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
    replay, moves = Replay(session), dict[int, bool]()
    for page in pages_of(session, Message.objects.in_order(session), most=PAGE):
        for row, entry in zip(page, entries_of(page), strict=True):
            if (moved_head := replay.add(row, entry)) != row.moved_head:
                moves[row.seq] = moved_head
    _write_path(session, replay, moves)
    calling = sorted(replay.calls)
    for start in range(0, len(calling), PAGE):
        _write_calls(session, replay, calling[start : start + PAGE])


@contextmanager
def _lock_unchanged(session: Session) -> Iterator[Session]:
    with writing():
        locked = Session.objects.select_for_update().get(pk=session.pk)
        if (locked.version, locked.trimmed_through) != (session.version, session.trimmed_through):
            raise _Changed
        yield locked


def _write_path(session: Session, replay: Replay, moves: Mapping[int, bool]) -> None:
    marks, wrong_calls, totals = replay.wrong_marks(), _wrong_calls(session, replay), replay.totals()
    with _lock_unchanged(session) as locked:
        _write_marks(session, "moved_head", moves)
        _write_marks(session, "on_path", marks)
        for start in range(0, len(wrong_calls), PAGE):
            _replace_calls(ToolCall.objects.filter(pk__in=wrong_calls[start : start + PAGE]))
        for name in (*HEAD_COLUMNS, *Session.COUNTERS):
            setattr(locked, name, getattr(totals, name))
        locked.tool_call_count += ToolCall.objects.filter(session=session).filter(message__body=None).count()
        locked.dropped_through = 0  # the next purge looks again
        locked.expires_at = expiry_of(locked)
        locked.save(update_fields=[*HEAD_COLUMNS, *Session.COUNTERS, "dropped_through", "expires_at"])


def _write_marks(session: Session, name: str, marks: Mapping[int, bool]) -> None:
    """Set them, instead of inverting the stored ones: another rebuild may have corrected those meanwhile."""
    for value in (True, False):
        seqs = [seq for seq, mark in marks.items() if mark is value]
        for start in range(0, len(seqs), PAGE):
            entries = Message.objects.of(session).filter(seq__in=seqs[start : start + PAGE])
            writable(entries).update(**{name: value})


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
