"""One page of a transcript: entries, tool calls with results, versions, links."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q, QuerySet

from history.db.parameters import among
from history.db.prepared import prepared
from history.entries.kinds import CONVERSATION, KINDS, Entry, ModelInput, ModelOutput, Summary, ToolResults
from history.entries.values import Part, Reasoning, Text, ToolRequest, ToolResult
from history.errors import NoSuchEntry
from history.models import Exchange, Message, Session
from history.models.exchanges import PLAN
from history.record import paths
from history.record.selectors import PAGE, Page, messages_of
from history.text import has_visible_text
from history.transcripts.previews import entries_in_brief, find_unrecorded_answer, is_unrecorded

SHOWN_CALLS = 200
REACH = 3 * PAGE  # how far below an entry a branch is read for the page around it: further than the page


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPosition:
    """Reading position: next to an entry or at the newest, on the path to the head or another leaf."""

    before: int | None = None
    after: int | None = None
    at: int | None = None
    leaf: int | None = None
    internal: bool = False

    def link(self, **where: int | None) -> str:
        """The address of another position on the same branch."""
        kept = {"leaf": self.leaf, "internal": int(self.internal)} | where
        return "?" + urlencode({name: value for name, value in kept.items() if value})


@dataclass(slots=True)
class TranscriptCall:
    request: ToolRequest
    path: str  # of the request in the JSON of its entry
    status: str
    result: ToolResult | None = None
    answered_by: int | None = None
    result_path: str = ""
    opened: UUID | None = None  # the session of a called agent


@dataclass(slots=True, kw_only=True)
class TranscriptEntry:
    message: Message
    entry: Entry
    place: TranscriptPosition
    calls: Sequence[TranscriptCall] = ()
    unmatched_results: Sequence[ToolResult] = ()  # results without a call on this page
    versions: Sequence[int] = ()
    notes: "list[TranscriptEntry]" = field(default_factory=list)
    cost: Decimal | None = None
    list_price: Decimal | None = None  # of an answer that the caller's own subscription paid
    is_paid_by_plan: bool = False
    is_retracted: bool = False  # a summary that was retracted
    is_newest: bool = False  # the last entry: its calls may still get their results
    is_answered_unkept: bool = False  # its answer was not recorded
    number: int | None = None  # its number among the visible messages; None for other entries, and if it is unknown
    compacted: str = ""  # the address of the branch that the program summarised before this entry

    @property
    def template(self) -> str:
        return f"history/entries/{self.entry.kind if self.entry.kind in KINDS else 'unknown'}.html"

    @property
    def cache_key(self) -> str | None:
        """A hash of everything that this row shows. None for failed answers: advice about them depends on more."""
        shown = (self, *self.notes)
        if any(row.message.status != Message.Status.COMPLETE for row in shown):
            return None
        values = [{name: value for name, value in vars(row.message).items() if name[0] != "_"} for row in shown]
        return hashlib.blake2b(repr((self, values)).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()

    @property
    def is_empty_answer(self) -> bool:
        """The answer ended without text, call or attachment. Reasoning alone is not an answer."""
        entry, message = self.entry, self.message
        if not isinstance(entry, ModelOutput) or message.status != Message.Status.COMPLETE:
            return False
        is_kept = not message.dropped_at and not is_unrecorded(entry)
        return is_kept and not entry.plan and not any(_is_shown(part) for part in entry.parts)

    @property
    def permalink(self) -> str:
        return f"{self.place.link(at=self.message.seq)}#m{self.message.seq}"

    @property
    def version_number(self) -> int:
        return self.versions.index(self.message.seq) + 1

    @property
    def previous_version(self) -> str:
        return self._version(-1)

    @property
    def next_version(self) -> str:
        return self._version(1)

    @property
    def calls_left_out(self) -> int:
        return len(self.entry.tool_requests) - len(self.calls)

    def _version(self, step: int) -> str:
        place = self.versions.index(self.message.seq) + step
        if not 0 <= place < len(self.versions):
            return ""
        return f"{self.place.link(at=self.versions[place], leaf=None)}#m{self.versions[place]}"


@dataclass(frozen=True, slots=True)
class Hidden:
    count: int
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    rows: tuple[TranscriptEntry | Hidden, ...]
    place: TranscriptPosition
    older: str
    newer: str
    last: int = 0  # the number of the last entry that is shown

    @property
    def is_elsewhere(self) -> bool:
        """Not on the path to the head."""
        return self.place.leaf is not None

    @property
    def other_view(self) -> str:
        """The same branch with or without internal entries."""
        return self.place.link(internal=int(not self.place.internal))


def _is_shown(part: Part) -> bool:
    return has_visible_text(part.text) if isinstance(part, Text) else not isinstance(part, Reasoning)


def read_page(session: Session, place: TranscriptPosition) -> Transcript:
    """The page at a position. Raises NoSuchEntry if the position names an entry that does not exist."""
    on_path = _marks(session, place)
    place = _found(session, place, on_path)
    page = _page(session, place, leaf=_end_of_reading(session, place, on_path))
    rows = _shown(session, page.messages, place) if page.messages else []
    _set_numbers(rows, first=_first_number(session, page, place))
    # State entries after the last entry of the conversation do not count.
    last = next((row for row in reversed(rows) if row.message.kind in CONVERSATION), None)
    if last and not page.has_newer and place.leaf is None:
        last.is_newest, last.is_answered_unkept = True, find_unrecorded_answer(session) is not None
    return Transcript(
        rows=tuple(rows if place.internal else _without_internal(rows, place)),
        place=place,
        older=place.link(before=page.messages[0].seq) if rows and page.has_older else "",
        newer=_newer(session, place, page) if rows else "",
        last=page.messages[-1].seq if page.messages else 0,
    )


def read_shared(session: Session, place: TranscriptPosition, *, leaf: int, kinds: Collection[str]) -> Transcript:
    """The path to `leaf` as outsiders see it: these kinds alone, nothing internal, one version of everything.

    No entry beside that path is shown, even if the position names one: `messages_of` checks it.
    """
    page = _page(session, place, leaf=leaf)
    messages = [message for message in page.messages if message.kind in kinds and not message.is_internal]
    rows = _rows(messages, entries_in_brief(messages), place)
    _set_numbers(rows, first=None if page.has_older else 1)
    return Transcript(
        rows=tuple(rows),
        place=place,
        older=place.link(before=page.messages[0].seq) if page.messages and page.has_older else "",
        newer=place.link(after=page.messages[-1].seq) if page.messages and page.has_newer else "",
    )


def _first_number(session: Session, page: Page, place: TranscriptPosition) -> int | None:
    """The number of the first message on the page. At both ends of the path no database count is needed."""
    if not page.has_older or not page.messages:
        return 1
    if place.leaf is not None:
        return None
    if not page.has_newer:
        return session.message_count - sum(row.is_message for row in page.messages) + 1
    before = Message.objects.on_path(session).filter(seq__lt=page.messages[0].seq)
    return before.only_messages().count() + 1


def _set_numbers(rows: Iterable[TranscriptEntry], *, first: int | None) -> None:
    if first is not None:
        for number, row in enumerate((row for row in rows if row.message.is_message), first):
            row.number = number


def _marks(session: Session, place: TranscriptPosition) -> dict[int, bool]:
    named = [seq for seq in (place.before, place.after, place.at, place.leaf) if seq is not None]
    return dict(_numbered(session.pk, named)) if named else {}


@prepared
def _numbered(session_id: UUID, seqs: list[int]) -> QuerySet[Message, tuple[int, bool]]:
    numbered = Message.objects.of(session_id).filter(seq__in=among(seqs, kind=int)).order_by()
    return numbered.values_list("seq", "on_path")


def _found(session: Session, place: TranscriptPosition, on_path: Mapping[int, bool]) -> TranscriptPosition:
    """The position with its branch: the newest one through an entry beside the path. A leaf may be on the path."""
    at, leaf = place.at, place.leaf
    if missing := [seq for seq in (at, leaf) if seq is not None and seq not in on_path]:
        raise NoSuchEntry(f"session {session.pk} has no entry {missing[0]}")
    if leaf is not None and on_path[leaf]:
        if at is None and place.before is None and place.after is None and leaf != session.head:
            at = leaf
        leaf = None
    named = place.after if at is None else at
    if leaf is None and named is not None and on_path.get(named) is False:
        leaf = paths.newest_descendant(session, named, steps=REACH)
    return replace(place, at=at, leaf=leaf)


def _end_of_reading(session: Session, place: TranscriptPosition, on_path: Mapping[int, bool]) -> int | None:
    """An entry just far enough below the position, so that a page does not read a long branch to its end."""
    named = next((seq for seq in (place.at, place.after, place.before) if seq is not None), None)
    if place.leaf is None or named is None or named not in on_path:
        return place.leaf
    if named == place.before:
        return named
    return paths.descendant_towards(session, named, to=place.leaf, steps=REACH)


def _page(session: Session, place: TranscriptPosition, *, leaf: int | None) -> Page:
    if place.at is None:
        return messages_of(session, before=place.before, after=place.after, leaf=leaf)
    until = messages_of(session, before=place.at + 1, leaf=leaf, limit=PAGE // 2)
    last = until.messages[-1].seq if until.messages else place.at
    since = messages_of(session, after=last, leaf=leaf, limit=PAGE // 2)
    return Page([*until.messages, *since.messages], until.has_older, since.has_newer)


def _newer(session: Session, place: TranscriptPosition, page: Page) -> str:
    """The link to newer entries, also past the leaf if it has continuations."""
    last, leaf = page.messages[-1].seq, place.leaf
    if page.has_newer or (leaf is not None and last < leaf):
        return place.link(after=last)
    return place.link(after=last, leaf=None) if leaf is not None and paths.has_continuation(session, last) else ""


def _shown(session: Session, messages: Sequence[Message], place: TranscriptPosition) -> list[TranscriptEntry]:
    notes = paths.notes_beside(session, messages) if place.internal else []
    entries = entries_in_brief([*messages, *notes])
    rows = _rows(messages, entries[: len(messages)], place)
    versions, costs = paths.versions_of(session, messages), _costs(messages)
    has_summary = any(message.kind == Summary.kind for message in messages)
    retracted = paths.retracted_in(session.pk) if has_summary else set()
    for row in rows:
        row.versions = versions.get(row.message.parent_seq, ())
        row.cost, row.is_paid_by_plan, row.list_price = costs.get(row.message.pk, (None, False, None))
        row.is_retracted = row.message.seq in retracted
    by_seq = {row.message.seq: row for row in rows}
    for note, entry in zip(notes, entries[len(messages) :], strict=True):
        if row_beside := by_seq.get(note.parent_seq):
            row_beside.notes.append(TranscriptEntry(message=note, entry=entry, place=place))
    _link_opened_sessions(session, rows)
    _link_compactions(session, rows)
    return rows


def _link_compactions(session: Session, rows: Sequence[TranscriptEntry]) -> None:
    """The first message on a branch that begins with a client's summary links to the branch before it."""
    forks = {row.message.parent_seq: row.versions for row in rows if len(row.versions) > 1}
    before = paths.compactions_in(session, forks) if forks else {}
    earlier: int | None = None
    for row in rows:
        earlier = before.get(row.message.seq, earlier)
        if earlier is not None and isinstance(row.entry, ModelInput) and not row.message.is_internal:
            row.compacted = f"{row.place.link(at=earlier, leaf=None)}#m{earlier}"
            earlier = None


def _link_opened_sessions(session: Session, rows: Sequence[TranscriptEntry]) -> None:
    """Models reuse call ids, so the entry of the call decides, if it is known."""
    calls = [(call.request.call_id, row.message.seq, call) for row in rows for call in row.calls]
    if not calls:
        return
    below = Session.objects.open().filter(parent=session, parent_call__in={name for name, _, _ in calls}).order_by()
    columns = below.values_list("parent_call", "metadata", "pk")
    opened = {(name, noted.get("called_at")): pk for name, noted, pk in columns}
    for name, seq, call in calls:
        call.opened = opened.get((name, seq)) or opened.get((name, None))


def _costs(messages: Sequence[Message]) -> dict[int | None, tuple[Decimal | None, bool, Decimal | None]]:
    """Known costs of calls to models, by the answer: the cost, whether a subscription paid, and its list price."""
    answers = [message.pk for message in messages if message.kind == ModelOutput.kind]
    if not answers:
        return {}
    paid = Exchange.objects.filter(Q(cost__gt=0) | Q(metadata__billing=PLAN), message_id__in=answers).order_by()
    return {
        call.message_id: (call.cost or None, call.is_paid_by_plan, call.list_price)
        for call in paid.only("message_id", "cost", "metadata")
    }


def _rows(messages: Sequence[Message], entries: Sequence[Entry], place: TranscriptPosition) -> list[TranscriptEntry]:
    """A row for each message; results belong to the calls of the answer before them in the conversation."""
    rows: list[TranscriptEntry] = []
    requests: Sequence[TranscriptCall] = ()
    for message, entry in zip(messages, entries, strict=True):
        row = TranscriptEntry(message=message, entry=entry, place=place)
        if isinstance(entry, ModelOutput):
            row.calls = _calls(message, entry)
        elif isinstance(entry, ToolResults):
            row.unmatched_results = _answer(requests, entry, seq=message.seq)
        if message.kind in CONVERSATION:
            requests = row.calls
        rows.append(row)
    return rows


def _calls(message: Message, entry: ModelOutput) -> list[TranscriptCall]:
    status = "pending" if message.status == Message.Status.COMPLETE else "interrupted"
    requests = [(number, part) for number, part in enumerate(entry.parts) if isinstance(part, ToolRequest)]
    return [TranscriptCall(request, f"parts.{number}", status) for number, request in requests[:SHOWN_CALLS]]


def _answer(calls: Sequence[TranscriptCall], entry: ToolResults, *, seq: int) -> list[ToolResult]:
    """Give the calls their results. Returns results without a call."""
    waiting = dict(enumerate(entry.results))
    for call in calls:
        # Models reuse ids, so each result is used once, in the order of the calls.
        place = next((n for n, result in waiting.items() if result.call_id == call.request.call_id), None)
        if place is not None:
            call.result, call.result_path, call.answered_by = waiting.pop(place), f"results.{place}", seq
            call.status = call.result.status
    return [result for place, result in waiting.items() if place < SHOWN_CALLS]


def _without_internal(rows: Sequence[TranscriptEntry], place: TranscriptPosition) -> Iterator[TranscriptEntry | Hidden]:
    """State entries (an instruction, tools) leave no mark: the page shows them elsewhere."""
    for is_internal, group in groupby(rows, key=lambda row: row.message.is_internal):
        inside = [row for row in group if not (is_internal and row.message.is_state)]
        if is_internal and inside:
            first = inside[0].message.seq
            yield Hidden(len(inside), f"{place.link(at=first, internal=1)}#m{first}")
        elif not is_internal:
            yield from inside
