"""The one reader: lists of sessions, pages of entries, and snapshots. `access.permissions` says who may see them.

A snapshot is a session along one path, from which contexts for models are rendered. It reads only entries that can
matter: backwards from the leaf until the limits are reached, without what summaries replace. Several queries read it,
so it is checked that the head did not move meanwhile.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from history.access.permissions import Purpose, sessions_for
from history.context.messages import NO_RANGE, span_of, summarised_ranges
from history.context.rendering import reaches_far_enough
from history.context.values import NO_NOTEBOOK, ContextOptions, Snapshot
from history.db.prepared import prepared
from history.entries import (
    CONVERSATION,
    ModelOutput,
    Node,
    NotebookSet,
    PlanSet,
    Retracted,
    Summary,
    SystemInstructionSet,
    ToolResults,
    ToolsOffered,
)
from history.errors import NoSuchEntry
from history.models import ApiKey, AuditEvent, Message, Session
from history.record import paths
from history.record.loading import MAX_PAGE, entries_of as entries_of, ledger_of as ledger_of, read_nodes

PAGE = 20


class Page(NamedTuple):
    """Entries of one path, oldest first. A call and its results are always on the same page."""

    messages: list[Message]
    has_older: bool
    has_newer: bool


def sessions_owned_by(person: AbstractBaseUser | AnonymousUser) -> QuerySet[Session]:
    """The user's own sessions, which they may change. Staff get no others."""
    return sessions_for(person, Purpose.WRITE)


def sessions_deleted_by(person: AbstractBaseUser | AnonymousUser, *, since: datetime) -> QuerySet[Session]:
    """Sessions that their owner deleted after `since`, also by a key, and may restore. Not those that staff deleted."""
    if not person.is_authenticated:
        return Session.objects.none()
    by_owner = Q(actor=person.pk) | Q(actor=None, key__in=ApiKey.objects.filter(owner=person.pk).values("pk"))
    hidden = AuditEvent.objects.filter(by_owner, session=OuterRef("pk"), action="hide", at__gte=OuterRef("hidden_at"))
    deleted = Session.objects.deleted().filter(owner_id=person.pk, hidden_at__gt=since)
    # Sessions that agents opened from a deleted one are restored with it.
    with_parent = Q(parent__state=Session.State.DELETED, parent__hidden_at=F("hidden_at"))
    return deleted.exclude(with_parent).filter(Exists(hidden))


def messages_of(
    session: Session,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = PAGE,
    leaf: int | None = None,
    at_version: int | None = None,
) -> Page:
    """The newest entries of a path, or those next to an entry. `leaf` and `at_version` select another path."""
    if at_version is not None and leaf is None:
        leaf = paths.head_at(session, at_version)
    path = paths.Path(session.pk, leaf=leaf)
    older_than = partial(path.older_than, read=paths.read_messages)
    newer_than = partial(path.newer_than, read=paths.read_messages)
    limit = max(1, min(limit, MAX_PAGE))
    if after is not None:
        rows = newer_than(after, limit + 1)
        rows, has_newer = rows[:limit], len(rows) > limit
        has_older = bool(older_than(rows[0].seq if rows else after + 1, 1))
    else:
        rows = older_than(before, limit + 1)[::-1]
        has_older, rows = len(rows) > limit, rows[-limit:]
        has_newer = before is not None and bool(newer_than(before - 1, 1))
    if rows and has_newer:  # the results of the last call, if they are on the next page
        last = _first_message(reversed(rows)) or _first_message(_up_to_message(older_than, rows[0].seq))
        newer = _up_to_message(newer_than, rows[-1].seq) if last and last.kind == ModelOutput.kind else []
        if newer and newer[-1].kind == ToolResults.kind:
            rows, has_newer = [*rows, *newer], bool(newer_than(newer[-1].seq, 1))
    if rows and has_older:  # the call of the first results, if it is on the page before
        first = _first_message(rows)
        older = _up_to_message(older_than, rows[0].seq) if first and first.kind == ToolResults.kind else []
        if older and older[-1].kind == ModelOutput.kind:
            rows, has_older = [*reversed(older), *rows], bool(older_than(older[-1].seq, 1))
    return Page(rows, has_older, has_newer)


def _up_to_message(read: Callable[[int, int], list[Message]], seq: int) -> list[Message]:
    """The rows next to entry `seq` in one direction, up to the first that is part of the conversation."""
    found: list[Message] = []
    while rows := read(found[-1].seq if found else seq, 4):
        for row in rows:
            found.append(row)
            if row.kind in CONVERSATION:
                return found
    return found


def _first_message(rows: Iterable[Message]) -> Message | None:
    return next((row for row in rows if row.kind in CONVERSATION), None)


FIRST_LOAD = 12


def snapshot(
    session: Session, *, leaf: int | None = None, at_version: int | None = None, options: ContextOptions | None = None
) -> Snapshot:
    """The session along one path. With `options`, older entries that cannot matter under those limits are not read."""
    for _ in range(3):
        stored, head = version_and_head.get(session.pk)
        version = stored if at_version is None else min(at_version, stored)
        end = leaf if leaf is not None else paths.head_at(Session(pk=session.pk, version=stored, head=head), version)
        if leaf and not _entry(session.pk, leaf):
            raise NoSuchEntry(f"session {session.pk} has no entry {leaf}")
        taken = _take(session, end, version, options)
        if _is_one_path(taken, end):
            return taken
    raise RuntimeError(f"session {session.pk} kept changing its path while a snapshot was taken")


@prepared
def stored_session(session_id: UUID) -> QuerySet[Session]:
    return Session.objects.filter(pk=session_id)


@prepared
def version_and_head(session_id: UUID) -> QuerySet[Session, tuple[int, int]]:
    return Session.objects.filter(pk=session_id).values_list("version", "head")


@prepared
def _entry(session_id: UUID, seq: int) -> QuerySet[Message, int]:
    return Message.objects.at(session_id, seq).values_list("seq", flat=True)


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
