"""A store in plain Python, as slow and as obvious as possible: what the real one is compared with.

A session is a list of rows. Everything else (head, paths, counters, outcomes of calls) is computed anew from that list
each time it is asked for, by the rules of the design and not by the code of the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest

from history.context.values import NO_NOTEBOOK
from history.entries import (
    DebugLog,
    Entry,
    Gap,
    HeadMoved,
    ModelInput,
    ModelOutput,
    Node,
    NotebookSet,
    Retracted,
    Summary,
    SystemInstructionSet,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
)
from history.record.row_builder import NOT_ANSWERED
from tests.history.conformance.sent_messages import sent_messages_of, summaries_in
from tests.history.conformance.store import Call, Counters, Holding, Refused, SentMessage, Slice, Stored

CONVERSATION = (ModelInput, ModelOutput, ToolResults)
LEAVES = (DebugLog, HeadMoved)


@dataclass
class PlainSession:
    source: str = "chat"
    written: list[Node] = field(default_factory=list)  # everything that ever was; row n has number n
    gone: set[int] = field(default_factory=set)  # trimmed
    dropped: set[int] = field(default_factory=set)  # without their texts
    trimmed_through: int = 0

    @property
    def rows(self) -> list[Node]:
        return [row for row in self.written if row.seq not in self.gone]

    @property
    def version(self) -> int:
        return len(self.written)

    def head_at(self, version: int) -> int:
        head = 0
        for row in self.written[:version]:
            if isinstance(row.entry, HeadMoved):
                head = row.entry.to
            elif row.parent == head and not isinstance(row.entry, LEAVES):
                head = row.seq
        return head

    def path_to(self, leaf: int) -> list[Node]:
        """Entries from the start to the leaf that are still there."""
        found: list[Node] = []
        while 0 < leaf <= self.version:
            found.append(self.written[leaf - 1])
            leaf = found[-1].parent
        return [row for row in reversed(found) if row.seq not in self.gone]

    def remembered(self, leaf: int) -> list[Node]:
        """The same path as one can read it: a text that was dropped is a gap."""
        path = self.path_to(leaf)
        return [replace(row, entry=_dropped(row.entry)) if row.seq in self.dropped else row for row in path]

    def open_calls_at(self, leaf: int) -> tuple[ToolRequest, ...]:
        last = next((row.entry for row in reversed(self.path_to(leaf)) if isinstance(row.entry, CONVERSATION)), None)
        return last.tool_requests if isinstance(last, ModelOutput) else ()

    def can_follow(self, seq: int) -> bool:
        if seq in (0, self.trimmed_through):
            return True
        is_there = self.trimmed_through < seq <= self.version
        return is_there and not isinstance(self.written[seq - 1].entry, LEAVES)


@dataclass
class PlainStore:
    sessions: dict[str, PlainSession] = field(default_factory=dict)
    started: int = 0  # sessions are removed, too: no name is given twice

    def start(self, *, source: str = "chat") -> str:
        self.started += 1
        name = f"plain-{self.started}"
        self.sessions[name] = PlainSession(source)
        return name

    def append(self, session: str, entry: Entry, *, after: int) -> Stored:
        return self.append_many(session, [entry], after=after)[0]

    def append_many(self, session: str, entries: Sequence[Entry], *, after: int) -> list[Stored]:
        kept = self.sessions[session]
        before = list(kept.written)
        try:
            stored = []
            for entry in entries:
                stored.append(_add(kept, entry, after=after))
                after = entry.to if isinstance(entry, HeadMoved) else after
                after = after if isinstance(entry, LEAVES) else stored[-1].seq
        except Refused:
            kept.written = before
            raise
        return stored

    def move_head(self, session: str, *, to: int) -> Stored:
        return self.append(session, HeadMoved(to=to), after=to)

    def fork(self, session: str, *, at: int) -> str:
        original = self.sessions[session]
        if at and (not original.can_follow(at) or at in original.gone):
            raise Refused(f"no entry {at}")
        copy = self.start(source=original.source)
        _copy(original.remembered(at), self.sessions[copy].written)
        return copy

    def path(self, session: str, *, leaf: int | None = None, at_version: int | None = None) -> list[Node]:
        kept = self.sessions[session]
        if leaf is None:
            leaf = kept.head_at(kept.version if at_version is None else at_version)
        return kept.path_to(leaf)

    def page(
        self,
        session: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 20,
        leaf: int | None = None,
    ) -> Slice:
        path = self.path(session, leaf=leaf)
        numbers = [row.seq for row in path]
        if after is not None:
            first = sum(number <= after for number in numbers)
            last = min(first + limit, len(path))
        else:
            last = len(path) if before is None else sum(number < before for number in numbers)
            first = max(0, last - limit)
        if first < last:
            for start, end in _pairs(path):
                if first < end and last > start:  # they touch
                    first, last = min(first, start), max(last, end)
        return Slice(tuple(numbers[first:last]), has_older=first > 0, has_newer=last < len(path))

    def holding(self, session: str, *, leaf: int | None = None, at_version: int | None = None) -> Holding:
        instruction, notebook = "", NO_NOTEBOOK
        tools: tuple[str, ...] = ()
        for row in self.path(session, leaf=leaf, at_version=at_version):
            match row.entry:
                case SystemInstructionSet(instruction=text):
                    instruction = text
                case NotebookSet(content=text):
                    notebook = text
                case ToolsOffered(tools=offered):
                    tools = tuple(tool.name for tool in offered)
        return Holding(instruction, notebook, tools)

    def sent_messages(self, session: str, *, leaf: int | None = None) -> list[SentMessage]:
        kept = self.sessions[session]
        return sent_messages_of(kept.remembered(kept.head_at(kept.version) if leaf is None else leaf))

    def counters(self, session: str) -> Counters:
        kept = self.sessions[session]
        entries = [row.entry for row in kept.rows]
        outputs = [entry for entry in entries if isinstance(entry, ModelOutput)]
        results = [result for entry in entries if isinstance(entry, ToolResults) for result in entry.results]
        usages = [entry.usage for entry in outputs if entry.usage]
        return Counters(
            version=kept.version,
            head=kept.head_at(kept.version),
            messages=sum(
                isinstance(row.entry, ModelInput | ModelOutput) and not row.entry.is_internal
                for row in self.path(session)
            ),
            tool_calls=sum(len(entry.tool_requests) for entry in outputs),
            errors=sum(entry.status == "failed" for entry in outputs) + sum(one.status == "failed" for one in results),
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
        )

    def calls(self, session: str) -> list[Call]:
        talk = [row for row in self.path(session) if isinstance(row.entry, CONVERSATION)]
        return [call for row, later in zip_longest(talk, talk[1:]) for call in _calls_of(row, later)]

    def ledger(self, session: str) -> list[Node]:
        return list(self.sessions[session].rows)

    def search(self, word: str) -> set[tuple[str, int]]:
        return {
            (name, row.seq)
            for name, session in self.sessions.items()
            for row in session.rows
            if row.seq not in session.dropped and word in " ".join(_said_in(row.entry)).split()
        }

    def verify(self, session: str) -> list[str]:
        written = self.sessions[session].written
        return [f"{row.seq} stands at {place}" for place, row in enumerate(written, 1) if row.seq != place]


def _add(session: PlainSession, entry: Entry, *, after: int) -> Stored:
    if isinstance(entry, HeadMoved):
        after = entry.to
    if not session.can_follow(after):
        raise Refused(f"no entry {after} to continue after")
    calls = session.open_calls_at(after)
    if isinstance(entry, ToolResults):
        entry = _paired(entry, calls, strict=session.source == "chat")
    elif isinstance(entry, CONVERSATION) and calls and session.source == "chat":
        skipped = [
            ToolResult(call_id=call.call_id, name=call.name, status="skipped", error=NOT_ANSWERED) for call in calls
        ]
        after = _put(session, ToolResults(results=tuple(skipped), at=entry.at, is_internal=True), after=after).seq
    return _put(session, entry, after=after)


def _put(session: PlainSession, entry: Entry, *, after: int) -> Stored:
    seq, head = session.version + 1, session.head_at(session.version)
    session.written.append(Node(seq=seq, parent=after, entry=entry))
    return Stored(seq, isinstance(entry, HeadMoved) or (after == head and not isinstance(entry, LEAVES)))


def _paired(entry: ToolResults, calls: Sequence[ToolRequest], *, strict: bool) -> ToolResults:
    """In the order asked; what does not fit is refused, or kept with a mark where others wrote it."""
    waiting = list(entry.results)
    ordered = []
    for call in calls:
        match = next((result for result in waiting if result.call_id == call.call_id), None)
        if match is not None:
            waiting.remove(match)
            ordered.append(match)
    if len(ordered) == len(calls) and not waiting:
        return replace(entry, results=tuple(ordered))
    if strict:
        raise Refused("results and calls do not fit")
    return entry


def _copy(path: Sequence[Node], written: list[Node]) -> None:
    """What was trimmed is missing in the copy: a gap for every stretch of it that other summaries stand for."""
    summaries = summaries_in({row.seq: row.entry for row in path}).items()
    edges = {edge for seq, one in summaries if one.first for edge in (one.first, min(one.last + 1, seq))}
    numbers = {0: 0}

    def write(number: int, entry: Entry) -> None:
        numbers[number] = len(written) + 1
        written.append(Node(seq=len(written) + 1, parent=len(written), entry=entry))

    for row in path:
        if row.parent not in numbers:
            before = max(numbers) + 1
            for number in range(before, row.seq):
                if number == before or number in edges:
                    write(number, Gap(at=row.entry.at, reason="trimmed before the fork"))
        write(row.seq, _renumbered(row.entry, numbers))


def _renumbered(entry: Entry, numbers: Mapping[int, int]) -> Entry:
    if isinstance(entry, Retracted):
        return replace(entry, seq=numbers.get(entry.seq, 0))
    if not isinstance(entry, Summary):
        return entry
    inside = [new for old, new in numbers.items() if 0 < entry.first <= old <= entry.last]
    masks = tuple(replace(mask, seq=numbers[mask.seq]) for mask in entry.masks if mask.seq in numbers)
    return replace(entry, first=min(inside, default=0), last=max(inside, default=0), masks=masks)


def _dropped(entry: Entry) -> Gap:
    return Gap(at=entry.at, reason="dropped by policy")


def _pairs(path: Sequence[Node]) -> Iterable[tuple[int, int]]:
    """Ranges (first, last + 1) of a path that no page may cut: a call, its results and the entries between."""
    talk = [place for place, row in enumerate(path) if isinstance(row.entry, CONVERSATION)]
    for place, later in pairwise(talk):
        first, second = path[place].entry, path[later].entry
        if isinstance(first, ModelOutput) and isinstance(second, ToolResults):
            yield place, later + 1


def _calls_of(row: Node, later: Node | None) -> Iterable[Call]:
    if not isinstance(row.entry, ModelOutput):
        return
    waiting = list(later.entry.results) if later is not None and isinstance(later.entry, ToolResults) else []
    unanswered = "pending" if row.entry.status == "complete" else "interrupted"
    for index, request in enumerate(row.entry.tool_requests):
        match = next((result for result in waiting if result.call_id == request.call_id), None)
        if match is None or later is None:
            yield Call(row.seq, index, request.call_id, unanswered, None, "")
        else:
            waiting.remove(match)
            yield Call(row.seq, index, request.call_id, match.status, later.seq, match.text)


def _said_in(entry: Entry) -> Iterable[str]:
    if isinstance(entry, ModelInput | NotebookSet | Summary):
        yield entry.text
    elif isinstance(entry, ModelOutput):
        yield entry.text
        yield from (f"{request.name} {request.arguments}" for request in entry.tool_requests)
    elif isinstance(entry, ToolResults):
        yield from (f"{result.name} {result.text} {result.error}" for result in entry.results)
