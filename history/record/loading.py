"""Loading of entries from rows, and snapshots of a session along one path, from which contexts for models are rendered.

Bodies are unpacked and long texts fetched from their blobs, a page at a time. A snapshot reads only entries that can
matter: backwards from the leaf until the limits are reached, without what summaries replace. Several queries read it,
so it is checked that the head did not move meanwhile.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from history.context.messages import NO_RANGE, dropped_entry, span_of, summarised_ranges
from history.context.rendering import reaches_far_enough
from history.context.values import NO_NOTEBOOK, ContextOptions, Snapshot
from history.db.packing import Blobs, blobs_in, unpack
from history.entries import Entry, Node, NotebookSet, PlanSet, Retracted, Summary, SystemInstructionSet, ToolsOffered
from history.errors import NoSuchEntry
from history.models import Blob, Message, Session
from history.record import paths

MAX_PAGE = 500
PAGE_CHARS = 4_000_000  # of texts, about, that are in memory at a time


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """The entries of these rows."""
    blobs = _blobs(message.body for message in messages)
    return [_entry(row.kind, row.created_at, row.body, blobs) for row in messages]


def nodes_of(messages: Sequence[Message]) -> list[Node]:
    pairs = zip(messages, entries_of(messages), strict=True)
    return [Node(seq=message.seq, parent=message.parent_seq, entry=entry) for message, entry in pairs]


def ledger_of(session: Session, *, after: int = 0, limit: int = MAX_PAGE) -> list[Message]:
    """All entries in the order of writing, on every branch."""
    return list(Message.objects.of(session).filter(seq__gt=after).order_by("seq")[: max(1, min(limit, MAX_PAGE))])


def pages_of(session: Session, rows: QuerySet[Message], *, most: int) -> Iterator[list[Message]]:
    """These rows of a session up to its version, oldest first; at most so many, fewer where texts are long."""
    last, size = 0, most // 5
    while page := list(rows.filter(seq__gt=last)[:size]):
        yield page
        last = page[-1].seq
        if last >= session.version:
            return
        mean = sum(len(row.body or "") + row.content_chars for row in page) // len(page) + 1
        size = max(1, min(most, PAGE_CHARS // mean))


def read_nodes(where: str, parameters: Sequence[Any]) -> list[Node]:
    """Entries with their numbers, without the other columns."""
    sql = f"SELECT seq, parent_seq, body, kind, created_at FROM history_message WHERE {where}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchall()
    blobs = _blobs(body for _, _, body, _, _ in found)
    return [Node(seq=seq, parent=up, entry=_entry(kind, at, body, blobs)) for seq, up, body, kind, at in found]


def bytes_of(sha256: str) -> bytes:
    """The bytes of an attachment; raises LookupError where there are none."""
    content = Blob.objects.filter(pk=sha256).values_list("data", flat=True).first()
    if content is None:
        raise LookupError(sha256)
    return bytes(content)


def _entry(kind: str, at: Any, body: str | None, blobs: Blobs) -> Entry:
    """`at` may be as the driver returns it: SQLite has texts instead of times."""
    if body is not None:
        return unpack(body, blobs)
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    return dropped_entry(kind, at=moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _blobs(bodies: Iterable[str | None]) -> Blobs:
    """All blobs that these bodies refer to, in one query."""
    names = {name for body in bodies if body is not None for name in blobs_in(body)}
    return dict(Blob.objects.filter(pk__in=names).values_list("sha256", "data")) if names else {}


FIRST_LOAD = 12


def snapshot(
    session: Session, *, leaf: int | None = None, at_version: int | None = None, options: ContextOptions | None = None
) -> Snapshot:
    """The session along one path. With `options`, older entries that cannot matter under those limits are not read."""
    for _ in range(3):
        current = Session.objects.only("version", "head").get(pk=session.pk)
        version = current.version if at_version is None else min(at_version, current.version)
        end = leaf if leaf is not None else paths.head_at(current, version)
        if leaf and not Message.objects.at(session, leaf).exists():
            raise NoSuchEntry(f"session {session.pk} has no entry {leaf}")
        taken = _take(session, end, version, options)
        if _is_one_path(taken, end):
            return taken
    raise RuntimeError(f"session {session.pk} kept changing its path while a snapshot was taken")


def snapshot_behind(session: Session, summary: int, *, leaf: int) -> Snapshot:
    """The entries that a summary replaces, as they would be rendered without it. Nothing else is read."""
    path = paths.Path(session.pk, leaf=leaf)
    state = path.numbered(_applicable_state(path.state(paths.read_kinds)), read_nodes)
    undone = Node(seq=leaf + 1, parent=leaf, entry=Retracted(seq=summary))
    first, last = next((span_of(node) for node in state if node.seq == summary), NO_RANGE)
    read = _between(path, first, last, summarised_ranges([*state, undone])) if first else []
    everything = {node.seq: node for node in (*read, *state, undone)}
    nodes = tuple(everything[seq] for seq in sorted(everything))
    return Snapshot(session_id=str(session.pk), version=leaf, nodes=nodes)


def _between(path: paths.Path, first: int, last: int, covered: Sequence[tuple[int, int]]) -> list[Node]:
    """The entries of a path from one number to another, without the ranges of other summaries."""
    nodes: list[Node] = []
    before = _skip(last + 1, covered)
    while before > first:
        older = path.older_than(before, min(MAX_PAGE, before - first), read_nodes)
        nodes += [node for node in older if node.seq >= first]
        before = _skip(older[-1].seq, covered) if older else 0
    return nodes


def plan_at(session: Session, *, leaf: int | None = None) -> str:
    """The task plan at the end of a path, or an empty text."""
    path = paths.Path(session.pk, leaf=leaf)
    newest = [seq for seq, kind in path.state(paths.read_kinds) if kind == PlanSet.kind][-1:]
    entries = [node.entry for node in path.numbered(newest, read_nodes)]
    return next((entry.plan for entry in entries if isinstance(entry, PlanSet)), "")


def _take(session: Session, leaf: int, version: int, options: ContextOptions | None) -> Snapshot:
    """Read backwards in pages of growing size, until older entries cannot matter."""
    path = paths.Path(session.pk, leaf=leaf)
    applicable = _applicable_state(path.state(paths.read_kinds))
    state = {node.seq: node for node in path.numbered(applicable, read_nodes)}
    covered = summarised_ranges(state.values()) if options else ()
    fields = _state_fields(list(state.values()))
    nodes = {seq: node for seq, node in state.items() if isinstance(node.entry, Summary | Retracted)}
    before: int | None = None
    size = FIRST_LOAD if options else MAX_PAGE
    while True:
        older = path.older_than(before, size, read_nodes)
        nodes |= {node.seq: node for node in older if node.seq not in nodes}
        ordered = tuple(nodes[seq] for seq in sorted(nodes))
        start = older[-1].seq if len(older) == size else 0
        taken = Snapshot(session_id=str(session.pk), version=version, nodes=ordered, loaded_from=start, **fields)
        if taken.is_whole or (options and reaches_far_enough(taken, options)):
            return taken
        before = _skip(older[-1].seq, covered)
        size = min(size * 2, MAX_PAGE)


def _skip(seq: int, covered: Sequence[tuple[int, int]]) -> int:
    """The number from which to read on: ranges of summaries are skipped."""
    inside = next((first for first, last in reversed(covered) if first < seq <= last + 1), None)
    return seq if inside is None else inside


def _applicable_state(state: Sequence[tuple[int, str]]) -> list[int]:
    """The newest instruction, tools, notebook and plan; all summaries and their retractions."""
    newest = {kind: seq for seq, kind in state}
    every = [seq for seq, kind in state if kind in (Summary.kind, Retracted.kind)]
    return sorted({*newest.values(), *every})


def _state_fields(state: Sequence[Node]) -> dict[str, Any]:
    fields: dict[str, Any] = {"system_instruction": "", "notebook": NO_NOTEBOOK, "plan": "", "tools": ()}
    for node in state:
        if isinstance(node.entry, SystemInstructionSet):
            fields |= {"system_instruction": node.entry.instruction, "instruction_by": node.entry.agent}
        elif isinstance(node.entry, NotebookSet):
            fields["notebook"] = node.entry.content
        elif isinstance(node.entry, PlanSet):
            fields["plan"] = node.entry.plan
        elif isinstance(node.entry, ToolsOffered):
            fields["tools"] = node.entry.tools
    return fields


def _is_one_path(taken: Snapshot, leaf: int) -> bool:
    """Whether the rows are one path. The head may have moved between two pages."""
    known = {node.seq for node in taken.nodes}
    read = [node for node in taken.nodes if node.seq >= taken.loaded_from]
    if leaf and (not read or read[-1].seq != leaf):
        return False
    return all(a.seq == b.parent for a, b in pairwise(read) if b.parent in known)
