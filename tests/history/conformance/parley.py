"""Parley's own record as a store of the kit, on the database of the tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from history import search, verification
from history.context.messages import SUMMARY_ENDS
from history.context.rendering import VIEWS
from history.context.values import ContextEntry, ContextOptions, Role, Snapshot
from history.entries import Entry, Gap, Node, Summary
from history.errors import HistoryError
from history.models import Session, ToolCall
from history.record import recorder, selectors
from tests.history.conformance.store import Call, Counters, Holding, Refused, SentMessage, Slice, Stored


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except HistoryError as error:
        raise Refused(str(error)) from error


@dataclass
class ParleyStore:
    owner: Any

    def read(self, session: str) -> Session:
        """Anew each time: what the next verb finds is what is stored, not what an instance remembers."""
        return Session.objects.get(pk=session)

    def start(self, *, source: str = "chat") -> str:
        return str(recorder.start_session(owner=self.owner, source=source).pk)

    def append(self, session: str, entry: Entry, *, after: int) -> Stored:
        return self.append_many(session, [entry], after=after)[0]

    def append_many(self, session: str, entries: Sequence[Entry], *, after: int) -> list[Stored]:
        with refusals():
            appended = recorder.append_many(self.read(session), entries, after=after)
        return [Stored(one.seq, one.moved_head) for one in appended]

    def move_head(self, session: str, *, to: int) -> Stored:
        with refusals():
            moved = recorder.move_head(self.read(session), to=to)
        return Stored(moved.seq, moved.moved_head)

    def fork(self, session: str, *, at: int) -> str:
        with refusals():
            return str(recorder.fork(self.read(session), at=at, owner=self.owner).pk)

    def path(self, session: str, *, leaf: int | None = None, at_version: int | None = None) -> list[Node]:
        return list(selectors.snapshot(self.read(session), leaf=leaf, at_version=at_version).nodes)

    def page(
        self,
        session: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 20,
        leaf: int | None = None,
    ) -> Slice:
        page = selectors.messages_of(self.read(session), before=before, after=after, limit=limit, leaf=leaf)
        return Slice(tuple(message.seq for message in page.messages), page.has_older, page.has_newer)

    def holding(self, session: str, *, leaf: int | None = None, at_version: int | None = None) -> Holding:
        return holding_in(selectors.snapshot(self.read(session), leaf=leaf, at_version=at_version))

    def sent_messages(self, session: str, *, leaf: int | None = None) -> list[SentMessage]:
        return told_in(selectors.snapshot(self.read(session), leaf=leaf))

    def counters(self, session: str) -> Counters:
        row = self.read(session)
        return Counters(
            version=row.version,
            head=row.head,
            messages=row.message_count,
            tool_calls=row.tool_call_count,
            errors=row.error_count,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
        )

    def calls(self, session: str) -> list[Call]:
        rows = ToolCall.objects.filter(session=UUID(session), message__on_path=True).order_by("message__seq", "index")
        return [
            Call(row.message.seq, row.index, row.call_id, row.status, row.answered_by, row.result)
            for row in rows.select_related("message")
        ]

    def ledger(self, session: str) -> list[Node]:
        found: list[Node] = []
        while rows := selectors.ledger_of(self.read(session), after=found[-1].seq if found else 0):
            pairs = zip(rows, selectors.entries_of(rows), strict=True)
            found += [Node(seq=row.seq, parent=row.parent_seq, entry=entry) for row, entry in pairs]
        return found

    def search(self, word: str) -> set[tuple[str, int]]:
        found = search.search(self.owner, word, limit=100)
        assert found.next_before is None, "more hits than one page holds"
        return {(str(hit.session_id), hit.seq) for hit in found.hits}

    def verify(self, session: str) -> list[str]:
        return [str(finding) for finding in verification.verify(sessions=[self.read(session).pk])]


def holding_in(taken: Snapshot) -> Holding:
    return Holding(taken.system_instruction, taken.notebook, tuple(tool.name for tool in taken.tools))


def told_in(taken: Snapshot) -> list[SentMessage]:
    entries = {node.seq: node.entry for node in taken.nodes}
    told = VIEWS["curated"](taken, ContextOptions())
    return [SentMessage(one.origin, _texts(one, entries[one.seq], taken.session_id)) for one in told]


def _texts(told: ContextEntry, entry: Entry, session: str) -> tuple[str | None, ...]:
    """The texts in a message, without the words that are put around them."""
    if isinstance(entry, Summary):
        return (told.content.partition("]\n\n")[2].removesuffix(f"\n\n{SUMMARY_ENDS}"),)
    if isinstance(entry, Gap):
        return tuple(told.content.removesuffix("]").partition(" missing here: ")[2].split("; "))
    if told.role is Role.TOOL_RESULT:
        masks = (f"session {session}, entry {told.seq}, result {place}." for place in range(len(told.results)))
        return tuple(None if mask in one.text else one.text for mask, one in zip(masks, told.results, strict=True))
    return (told.content,)
