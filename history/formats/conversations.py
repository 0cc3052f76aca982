"""Tree of imported entries, ordered with parents before their children, and what several readers need to build it.

A parent may be missing, further down in the file, or part of a circle. Then a visible Gap joins its descendants to the
entry before them in the file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from history.dialects import DIALECTS, DialectError
from history.dialects.json_access import compact, is_too_deep, obj, string
from history.dialects.types import ConversationEntry
from history.entries.in_json import entry_to_json
from history.entries.kinds import NEVER_PARENTS, Entry, Gap, ModelInput, ModelOutput, Summary, ToolResults
from history.entries.values import EntryError, JsonObject, Reasoning, Text, ToolResult, now
from history.formats.base import Conversation, FormatError, Notes, SourceNode, UnreadableConversation, chain_id
from history.formats.sources import Source
from history.text.lazy import LazyText, error_text, gettext_noop as _

ISLAND = _("The parent of an entry is missing from the file. Later entries were joined here.")


@dataclass
class SourceItem:
    """One entry and the id of what it follows; '' is the start. `covers` is the last entry that a summary covers."""

    entry: Entry
    parent: str
    covers: str = ""


@dataclass
class ConversationTree:
    """`items` are in the order of the source."""

    notes: Notes
    items: dict[str, SourceItem] = field(default_factory=dict)
    more_results: dict[str, dict[str, ToolResult]] = field(default_factory=dict)  # entry → call → its result

    def add(self, source_id: str, entry: Entry, *, parent: str, covers: str = "") -> str:
        """Add an entry after another. An id that is used twice gets a number. Returns what the next entry follows."""
        name, number = source_id, 1
        while name in self.items:
            number += 1
            name = f"{source_id}#{number}"
        self.items[name] = SourceItem(entry, parent, covers)
        return parent if entry.kind in NEVER_PARENTS else name

    def add_chain(self, entries: Iterable[Entry]) -> None:
        """Add entries of a source without ids, each after the one before. Their ids come from all texts up to them."""
        last = ""
        for entry in entries:
            content = {name: value for name, value in entry_to_json(entry).items() if name != "at"}
            last = self.add(chain_id(last, compact(content)), entry, parent=last)

    def add_results(self, name: str, results: Sequence[ToolResult]) -> None:
        """Add further results of the same answer to an entry of results. A repeated one is left out."""
        entry, more = self.items[name].entry, self.more_results.setdefault(name, {})
        assert isinstance(entry, ToolResults)
        known = {result.call_id for result in entry.results}
        fresh = [result for result in results if result.call_id not in known and result.call_id not in more]
        self.notes("ignored", _("A repeated tool result was imported once."), count=len(results) - len(fresh))
        more.update({result.call_id: result for result in fresh})

    def replace_entry(self, name: str, **fields: object) -> None:
        self.items[name].entry = replace(self.items[name].entry, **fields)  # type: ignore[arg-type]

    def nodes(self, leaf: str = "") -> tuple[list[SourceNode], int | None]:
        """All of them, and the place of the leaf; '' means the last one."""
        for name, more in self.more_results.items():
            entry = self.items[name].entry
            assert isinstance(entry, ToolResults)
            self.replace_entry(name, results=(*entry.results, *more.values()))
        nodes: list[SourceNode] = []
        places: dict[str, int] = {}

        def put(name: str, entry: Entry, parent: int | None) -> int:
            nodes.append(SourceNode(entry=entry, parent=parent, source_id=name))
            places[name] = len(nodes) - 1
            return places[name]

        for name in self.items:
            waiting: dict[str, None] = {}  # the entry and its ancestors, which may be further down in the file
            while name and name not in places and name in self.items and name not in waiting:
                waiting[name] = None
                name = self.items[name].parent
            if name and name not in places:  # a gap takes the place of a missing parent
                first = next(reversed(waiting))
                self.notes("repaired", ISLAND, where=first)
                gap = Gap(reason="Something is missing here in the imported file.", at=self.items[first].entry.at)
                places[name] = put(f"gap:{name}", gap, len(nodes) - 1 if nodes else None)
            for source_id in reversed(waiting):
                item = self.items[source_id]
                parent, last, entry = places.get(item.parent), places.get(item.covers), item.entry
                if isinstance(entry, Summary) and last is not None:
                    entry = replace(entry, first=1, last=last + 1)
                put(source_id, entry, parent)
        return nodes, places.get(leaf, find_last_place(nodes))


def find_last_place(nodes: Sequence[SourceNode]) -> int | None:
    return next(
        (place for place in range(len(nodes) - 1, -1, -1) if nodes[place].entry.kind not in NEVER_PARENTS), None
    )


# Times outside these years are treated as mistakes.
_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_MILLISECONDS = 1e11


def parse_time(value: object) -> datetime | None:
    """The time, or None for a missing or impossible one."""
    try:
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            read = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, UTC)
        else:
            return None
        read = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return read if _EARLIEST <= read <= _LATEST else None


CHANNEL = "import"


class ConversationReader:
    """One conversation while it is read: its notes, times, entries and attachments, and its messages in a dialect."""

    def __init__(self, client: str, dialect: str = "", *, start: object = None, notes: Notes | None = None) -> None:
        self.client, self.dialect = client, dialect
        self.started_at = self.first_at = parse_time(start)
        self.last_at = self.first_at or now()
        self.notes = Notes() if notes is None else notes
        self.tree = ConversationTree(self.notes)
        self.blobs: dict[str, bytes] = {}
        self.tools: dict[str, str] = {}  # call → the name of its tool

    def entry_time(self, value: object) -> datetime:
        """The time of an entry: its own, or that of the entry before it."""
        read = parse_time(value)
        if read is not None:
            self.first_at = read if self.first_at is None else min(self.first_at, read)
            self.last_at = read
        return self.last_at

    def decode(self, messages: Sequence[object], *, at: datetime) -> list[ConversationEntry]:
        """The entries of these messages or items, which are a piece of the conversation."""
        dialect = DIALECTS[self.dialect]
        try:
            request = dialect.decode_request({dialect.HTTP_API.conversation_field: list(messages)}, at=at)
        except DialectError as error:
            self.notes("lost", _("A message could not be read."), where=str(error))
            return []
        self.blobs.update(request.blobs)
        entries = list(request.entries)
        if request.system:  # an instruction at the beginning of a piece is still one in the middle of the whole
            entries.insert(0, instruction(request.system, at=at))
        return [self._with_names(entry) for entry in entries]

    def _with_names(self, entry: ConversationEntry) -> ConversationEntry:
        if isinstance(entry, ToolResults):
            results = [
                one if one.name else replace(one, name=self.tools.get(one.call_id, "unknown")) for one in entry.results
            ]
            return replace(entry, results=tuple(results))
        if isinstance(entry, ModelOutput):
            self.tools.update({call.call_id: call.name for call in entry.tool_requests})
            return entry
        return entry if entry.channel == "system" else replace(entry, channel=CHANNEL)

    def conversation(self, source_id: str, *, leaf: str = "", **facts: Any) -> Conversation:
        nodes, place = self.tree.nodes(leaf)
        return Conversation(
            source_id=source_id,
            client=self.client,
            nodes=nodes,
            leaf=place,
            created_at=self.started_at or self.first_at,
            blobs=self.blobs,
            notes=self.notes.as_tuple(),
            **facts,
        )


def instruction(text: str, *, at: datetime) -> ModelInput:
    return ModelInput(at=at, channel="system", parts=(Text(text=text),), is_internal=True)


def reasoning(heading: str, text: str, *, provider: str) -> Reasoning:
    return Reasoning(text="\n\n".join(filter(None, [f"**{heading}**" if heading else "", text])), provider=provider)


def read_each(
    source: Source, convert: Callable[[JsonObject], Conversation]
) -> Iterator[Conversation | UnreadableConversation]:
    """One conversation at a time. An unexpected error in foreign data ends its conversation alone, not the file."""
    for place, value, problem in _values(source):
        names = [string(obj(value).get(key))[:200] for key in ("title", "name", "uuid", "id")]
        title = next(filter(None, names), place)
        try:
            if problem or not isinstance(value, Mapping):
                raise FormatError(problem or _("this is not an object"))
            if is_too_deep(value):
                raise FormatError(_("nested too deeply"))
            yield convert(value)
        except (FormatError, EntryError) as error:
            yield UnreadableConversation(why=error_text(error), title=title)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            why = LazyText(_("unexpected format (%(error)s)"), error=f"{type(error).__name__}: {error}")
            yield UnreadableConversation(why=why, title=title)


def _values(source: Source) -> Iterator[tuple[str, object, str]]:
    match source.sample.shape:
        case "lines":
            for line in source.lines(as_one=False):
                yield line.place, line.value, line.problem
        case "array":
            for number, value in enumerate(source.items(), 1):
                yield LazyText(_("item %(number)s"), number=number), value, ""
        case _:
            yield "", source.document(), ""
