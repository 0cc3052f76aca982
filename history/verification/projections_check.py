"""Check of projections: path, calls, counters, search rows and blob links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from history.entries import Entry, ModelOutput, ToolResults
from history.models import SearchRow, Session, ToolCall
from history.record import fingerprints, projections
from history.verification.entries import wrong_fingerprint
from history.verification.findings import FindingSeverity, VerificationFinding
from history.verification.replay import Replay, ReplayedCall
from history.verification.rows import MessageRow, linked_blobs

Slot = tuple[int, int]  # an entry, and which of its requests or results

CALL_COLUMNS = ("call_id", "name", "arguments", "created_at")
OUTCOME_COLUMNS = ("status", "result", "error", "started_at", "duration")


class ProjectionsCheck:
    """Sees every entry pass by, and says in the end what does not follow from them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.replay = Replay(session.trimmed_through)
        self.scope = fingerprints.scope_of(api_key_id=session.api_key_id, owner_id=session.owner_id)
        self.prints: list[bytes] = []  # fingerprints, in the places of the replay
        self.has_wrong_print = False
        self.marks = bytearray()  # on_path, as the rows have it
        self.kept_marks: dict[int, bool] = {}
        self.sums = dict.fromkeys(("tool_call_count", "error_count", "input_tokens", "output_tokens"), 0)
        self.dropped_outputs: set[int] = set()
        self.asked: dict[Slot, int] = {}  # hashes of what the rows of calls should say
        self.outcomes: dict[Slot, int] = {}
        self.unanswered: dict[int, str] = {}  # the status of an answer's calls without a result
        self.searchable: set[int] = set()  # of this page
        self.blobs: dict[int, frozenset[str]] = {}
        self.lacking: list[int] = []  # entries that search does not know, or should not know: how many, and the first

    def add(self, row: MessageRow, entry: Entry | None, names: frozenset[str]) -> Iterator[VerificationFinding]:
        self._note(row, entry, names)
        if row.seq <= self.session.trimmed_through:
            self.kept_marks[row.seq] = row.on_path
            return
        asks, answers = call_ids(entry)
        moved = self.replay.add(row, asks=asks, answers=answers)
        if moved != row.moved_head:
            yield self._wrong(row.seq, "wrong_move", "it is wrong about whether it became the head")
        yield from self._check_print(row, entry)

    def check_page(self, rows: Sequence[MessageRow]) -> Iterator[VerificationFinding]:
        """Search rows and links of a page, asked for all at once."""
        ids = [row.id for row in rows]
        indexed = set(SearchRow.objects.filter(message_id__in=ids).values_list("message_id", flat=True).distinct())
        self.lacking += [row.seq for row in rows if (row.id in indexed) != (row.id in self.searchable)]
        expected = {(pk, name) for pk, names in self.blobs.items() for name in names}
        looked_at = [row.id for row in rows if row.body is None or self.blobs.get(row.id)]
        linked = linked_blobs(looked_at) if looked_at else set()
        seqs = {row.id: row.seq for row in rows}
        for pk, name in sorted(expected ^ linked):
            yield self._wrong(seqs[pk], "wrong_link", f"its link to the blob {name[:12]}… is missing, or one too many")
        self.searchable.clear()
        self.blobs.clear()

    def check_end(self) -> Iterator[VerificationFinding]:
        yield from self._check_path()
        yield from self._check_calls()
        yield from self._check_counters()
        if self.lacking:
            sentence = f"{len(self.lacking)} entries, this one first, are not in the search index as they should be"
            yield self._wrong(self.lacking[0], "wrong_search_rows", sentence)

    def _wrong(self, seq: int, code: str, sentence: str) -> VerificationFinding:
        return VerificationFinding(self.session.pk, seq, code, sentence, FindingSeverity.PROJECTION)

    # While entries pass by.

    def _note(self, row: MessageRow, entry: Entry | None, names: frozenset[str]) -> None:
        self.sums["input_tokens"] += row.input_tokens
        self.sums["output_tokens"] += row.output_tokens
        if names:
            self.blobs[row.id] = names
        if row.body is None:
            self.sums["error_count"] += projections.errors_left(kind=row.kind, status=row.status, metadata=row.metadata)
            if row.kind == ModelOutput.kind:
                self.dropped_outputs.add(row.seq)
        if entry is not None:
            self.sums["error_count"] += projections.errors_in(entry)
            if projections.searched_text(entry):
                self.searchable.add(row.id)
            self._note_calls(row, entry)

    def _note_calls(self, row: MessageRow, entry: Entry) -> None:
        if isinstance(entry, ModelOutput) and entry.tool_requests:
            self.sums["tool_call_count"] += len(entry.tool_requests)
            self.unanswered[row.seq] = "pending" if entry.status == "complete" else "interrupted"
            for index, request in enumerate(entry.tool_requests):
                said = projections.call_columns(request, status="") | {"created_at": entry.at}
                self.asked[row.seq, index] = _hash(said, CALL_COLUMNS)
        elif isinstance(entry, ToolResults):
            for index, result in enumerate(entry.results):
                self.outcomes[row.seq, index] = _hash(projections.outcome_columns(result), OUTCOME_COLUMNS)

    def _check_print(self, row: MessageRow, entry: Entry | None) -> Iterator[VerificationFinding]:
        parent = row.parent_seq
        self.marks.extend(bytes(row.seq - self.session.trimmed_through - 1 - len(self.marks)))
        self.marks.append(row.on_path)
        self.prints += [b""] * (len(self.marks) - 1 - len(self.prints))
        self.prints.append(row.fingerprint)
        if entry is None or self.has_wrong_print or not (parent == 0 or self.replay.has(parent)):
            return
        before = self.prints[parent - self.session.trimmed_through - 1] if parent else fingerprints.START
        if wrong_fingerprint(row, entry, after=before, scope=self.scope):
            self.has_wrong_print = True
            yield self._wrong(row.seq, "wrong_fingerprint", "its fingerprint does not follow from what was said")

    # At the end.

    def _check_path(self) -> Iterator[VerificationFinding]:
        replay, session = self.replay, self.session
        head = replay.head or 0
        if head != session.head:
            yield self._wrong(
                session.head, "wrong_head", f"the session has its head here, but it moved to entry {head}"
            )
        else:
            yield from self._check_head_facts()
        first = session.trimmed_through + 1
        wrong = (seq for seq, mark in enumerate(self.marks, first) if bool(mark) != replay.is_on_path(seq))
        anchored = replay.hangs_on_anchor()
        kept = (seq for seq, mark in self.kept_marks.items() if mark != anchored)
        for seq in (*kept, *wrong):
            yield self._wrong(seq, "wrong_path", "it is wrong about whether it is on the path to the head")

    def _check_head_facts(self) -> Iterator[VerificationFinding]:
        """The copies in the session row that the next append trusts, so that it need not read the head."""
        session, output = self.session, self.replay.output_of(self.session.head)
        if not self.replay.has(session.head):
            return
        if bytes(session.head_fingerprint) != self.prints[session.head - session.trimmed_through - 1]:
            yield self._wrong(session.head, "wrong_head", "the session has another fingerprint for it")
        if output not in self.dropped_outputs and session.head_has_open_calls != bool(self.replay.calls.get(output)):
            yield self._wrong(session.head, "wrong_head", "the session is wrong about whether its calls are answered")

    def _check_calls(self) -> Iterator[VerificationFinding]:
        expected = self._expected_calls()
        columns = ("message__seq", "index", *CALL_COLUMNS, "answered_by", "answer_index", *OUTCOME_COLUMNS)
        stored = ToolCall.objects.of(self.session).filter(message__seq__lte=self.session.version)
        of_dropped = 0
        for values in stored.order_by("message__seq", "index").values(*columns).iterator(chunk_size=500):
            place = values["message__seq"], values["index"]
            if place[0] in self.dropped_outputs:
                of_dropped += 1
            elif (wanted := expected.pop(place, None)) != _said(values):
                problem = "does not say what the entries say" if wanted else "belongs to no request"
                yield self._wrong(place[0], "wrong_call", f"the row of its tool call {place[1]} {problem}")
        for seq, index in expected:
            yield self._wrong(seq, "wrong_call", f"the row of its tool call {index} is missing")
        self.sums["tool_call_count"] += of_dropped

    def _expected_calls(self) -> dict[Slot, tuple[Any, ...]]:
        return {
            (seq, index): self._expected(seq, index, call)
            for seq, calls in self.replay.calls.items()
            for index, call in enumerate(calls)
        }

    def _expected(self, seq: int, index: int, call: ReplayedCall) -> tuple[Any, ...]:
        if call.answered_by is None or call.answer_index is None:
            nothing = projections.NO_OUTCOME | {"status": self.unanswered[seq]}
            outcome = _hash(nothing, OUTCOME_COLUMNS)
        else:
            outcome = self.outcomes[call.answered_by, call.answer_index]
        return self.asked[seq, index], call.answered_by, call.answer_index, outcome

    def _check_counters(self) -> Iterator[VerificationFinding]:
        self.sums["message_count"] = self.replay.messages_on_path()
        for name, count in self.sums.items():
            stored = getattr(self.session, name)
            if stored != count:
                yield self._wrong(self.session.version, "wrong_counter", f"{name} is {stored}, but should be {count}")


def call_ids(entry: Entry | None) -> tuple[Sequence[str], Sequence[str]]:
    """The call ids that an entry asks with, and those it answers, as they are compared."""
    if isinstance(entry, ModelOutput):
        return [projections.stored_id(request.call_id) for request in entry.tool_requests], ()
    if isinstance(entry, ToolResults):
        return (), [projections.stored_id(result.call_id) for result in entry.results]
    return (), ()


def _said(values: dict[str, Any]) -> tuple[Any, ...]:
    return _hash(values, CALL_COLUMNS), values["answered_by"], values["answer_index"], _hash(values, OUTCOME_COLUMNS)


def _hash(values: dict[str, Any], names: Sequence[str]) -> int:
    return hash(tuple(values[name] for name in names))
