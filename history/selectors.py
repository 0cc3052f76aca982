"""The one reader: what a viewer may see, pages of a session, and snapshots of it to render for a model.

A page or a snapshot costs what it shows, not what the session holds: the path to the head is marked in the rows
(`on_path`), and a branch beside it is climbed only as far as it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from history import paths
from history.bodies import blobs_in, unpack
from history.context import (
    NO_NOTEBOOK,
    ContextOptions,
    Snapshot,
    dropped_entry,
    reaches_far_enough,
    summarised_ranges,
)
from history.entries import (
    CONVERSATION,
    Entry,
    ModelOutput,
    Node,
    NotebookSet,
    Retracted,
    Summary,
    SystemInstructionSet,
    ToolResults,
    ToolsOffered,
)
from history.errors import NoSuchEntry
from history.models import ApiKey, Blob, Message, Session

Viewer = AbstractBaseUser | AnonymousUser | ApiKey

PAGE = 20
MAX_PAGE = 500
FIRST_LOAD = 32


@dataclass(frozen=True, slots=True)
class Page:
    """Entries of one path, oldest first. A call and its results are always on the same page."""

    messages: list[Message]
    has_older: bool
    has_newer: bool


# What a viewer may see.


def sessions_visible_to(viewer: Viewer) -> QuerySet[Session]:
    """The rule behind every page, socket, search and export: a stranger's session is not there at all."""
    if isinstance(viewer, ApiKey):
        return _served().filter(_recorded_for(viewer))
    if not viewer.is_authenticated:
        return Session.objects.none()
    if _may(viewer, "hold_session") and _may(viewer, "view_session"):
        return _kept().filter(Q(hidden_at=None) | Q(hold=True))
    if _may(viewer, "view_session"):
        return _served()
    return _served().filter(owner_id=viewer.pk)


def find_session(viewer: Viewer, session_id: UUID | str) -> Session | None:
    """The session, or None: not there, not theirs, or no session's name at all."""
    try:
        name = session_id if isinstance(session_id, UUID) else UUID(session_id)
    except ValueError:
        return None
    return sessions_visible_to(viewer).filter(pk=name).first()


def sessions_of_workspace(viewer: Viewer, *, agent: str, workspace: str) -> QuerySet[Session]:
    """One agent's history in one workspace: a filter, so the same pair always means the same sessions."""
    return sessions_visible_to(viewer).filter(agent=agent, workspace=workspace)


def _kept() -> QuerySet[Session]:
    """Expired sessions are never served, even before the purge has come by; held ones do not expire."""
    return Session.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()) | Q(hold=True))


def _served() -> QuerySet[Session]:
    return _kept().filter(hidden_at=None)


def _recorded_for(key: ApiKey) -> Q:
    if "admin" in key.scopes:
        return Q()
    return Q(owner_id=key.owner_id) if key.owner_wide else Q(api_key=key)


def _may(user: Any, right: str) -> bool:
    return bool(user.is_staff and user.has_perm(f"history.{right}"))


# Pages.


def messages_of(
    session: Session,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = PAGE,
    leaf: int | None = None,
    at_version: int | None = None,
) -> Page:
    """The newest entries of the path, or those next to an entry in either direction.

    `leaf` looks at another branch, `at_version` at the session as it was; neither moves anything.
    """
    path = _Path(session, leaf=leaf, at_version=at_version)
    limit = max(1, min(limit, MAX_PAGE))
    if after is not None:
        rows = path.newer_than(after, limit + 1)
        rows, has_newer = rows[:limit], len(rows) > limit
        has_older = bool(path.older_than(rows[0].seq if rows else after + 1, 1))
    else:
        rows = path.older_than(before, limit + 1)[::-1]
        has_older, rows = len(rows) > limit, rows[-limit:]
        has_newer = before is not None and bool(path.newer_than(before - 1, 1))
    if rows and has_newer and (results := _results_after(path, rows)):
        rows, has_newer = [*rows, *results], bool(path.newer_than(results[-1].seq, 1))
    if rows and has_older and (calls := _calls_before(path, rows)):
        rows, has_older = [*calls, *rows], bool(path.older_than(calls[0].seq, 1))
    return Page(rows, has_older, has_newer)


def _results_after(path: _Path, rows: Sequence[Message]) -> list[Message]:
    """The results that answer the last call of a page, where they stand on the next one, and what lies between."""
    last = _said(reversed(rows)) or _said(_up_to_said(path.older_than, rows[0].seq))
    if last is None or last.kind != ModelOutput.kind:
        return []
    newer = _up_to_said(path.newer_than, rows[-1].seq)
    return newer if newer and newer[-1].kind == ToolResults.kind else []


def _calls_before(path: _Path, rows: Sequence[Message]) -> list[Message]:
    """The call that the first results of a page answer, where it stands on the page before, and what lies between."""
    first = _said(rows)
    if first is None or first.kind != ToolResults.kind:
        return []
    older = _up_to_said(path.older_than, rows[0].seq)[::-1]
    return older if older and older[0].kind == ModelOutput.kind else []


def _up_to_said(read: Callable[[int, int], list[Message]], seq: int) -> list[Message]:
    """The rows next to entry `seq` in one direction, up to the first that is part of the conversation."""
    found: list[Message] = []
    while rows := read(found[-1].seq if found else seq, 4):
        for row in rows:
            found.append(row)
            if row.kind in CONVERSATION:
                return found
    return found


def _said(rows: Iterable[Message]) -> Message | None:
    return next((row for row in rows if row.kind in CONVERSATION), None)


class _Path:
    """The rows from the start of a session to one leaf."""

    def __init__(self, session: Session, *, leaf: int | None = None, at_version: int | None = None) -> None:
        if at_version is not None and leaf is None:
            leaf = paths.head_at(session, at_version)
        self.rows = Message.objects.filter(session=session)
        self.leaf = leaf
        self.beside, self.joins = paths.climb(session.pk, leaf) if leaf else ([], 0)
        self.shared = self.rows.filter(on_path=True)
        if leaf is not None:
            self.shared = self.shared.filter(seq__lte=self.joins)

    def older_than(self, seq: int | None, limit: int) -> list[Message]:
        """Newest first."""
        beside = [number for number in self.beside if seq is None or number < seq][:limit]
        rows = list(self.rows.filter(seq__in=beside).order_by("-seq")) if beside else []
        shared = self.shared if seq is None else self.shared.filter(seq__lt=seq)
        return rows + list(shared.order_by("-seq")[: limit - len(rows)]) if len(rows) < limit else rows

    def newer_than(self, seq: int, limit: int) -> list[Message]:
        """Oldest first."""
        rows = list(self.shared.filter(seq__gt=seq).order_by("seq")[:limit])
        beside = [number for number in reversed(self.beside) if number > seq][: limit - len(rows)]
        return rows + list(self.rows.filter(seq__in=beside).order_by("seq")) if beside else rows

    def state(self) -> list[tuple[int, str]]:
        """(seq, kind) of everything on the path that says what holds, oldest first."""
        shared = self.shared.filter(is_state=True).values_list("seq", "kind")
        found = list(shared.order_by("seq"))
        for start in range(0, len(self.beside), MAX_PAGE):
            part = self.rows.filter(seq__in=self.beside[start : start + MAX_PAGE], is_state=True)
            found += part.values_list("seq", "kind")
        return sorted(found)

    def numbered(self, numbers: Sequence[int]) -> list[Message]:
        return list(self.rows.filter(seq__in=numbers).order_by("seq")) if numbers else []


# Entries.


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """The entries that these rows hold; long texts are fetched from their blobs, all at once."""
    names = {name for message in messages if message.body is not None for name in blobs_in(message.body)}
    blobs = dict(Blob.objects.filter(pk__in=names).values_list("sha256", "data")) if names else {}
    return [
        dropped_entry(message.kind, at=message.created_at) if message.body is None else unpack(message.body, blobs)
        for message in messages
    ]


def nodes_of(messages: Sequence[Message]) -> list[Node]:
    pairs = zip(messages, entries_of(messages), strict=True)
    return [Node(seq=message.seq, parent=message.parent_seq, entry=entry) for message, entry in pairs]


def ledger_of(session: Session, *, after: int = 0, limit: int = MAX_PAGE) -> list[Message]:
    """Every entry in the order of writing, whatever branch it is on: rolled-back ones, debug logs and all."""
    return list(Message.objects.filter(session=session, seq__gt=after).order_by("seq")[: max(1, min(limit, MAX_PAGE))])


def nodes_to(session: Session, leaf: int) -> Iterator[Node]:
    """Every entry from the start to `leaf`, oldest first, a page at a time."""
    path = _Path(session, leaf=leaf)
    last = 0
    while rows := path.newer_than(last, MAX_PAGE):
        yield from nodes_of(rows)
        last = rows[-1].seq


# Snapshots.


def snapshot(
    session: Session,
    *,
    leaf: int | None = None,
    at_version: int | None = None,
    options: ContextOptions | None = None,
) -> Snapshot:
    """The session as it is now, or was, along one path: immutable, whatever is appended meanwhile.

    With `options`, older entries that cannot matter under those limits are not read.
    """
    for _ in range(3):
        current = Session.objects.only("version", "head").get(pk=session.pk)
        version = current.version if at_version is None else min(at_version, current.version)
        end = leaf if leaf is not None else paths.head_at(current, version)
        if leaf and not Message.objects.filter(session=session, seq=leaf).exists():
            raise NoSuchEntry(f"session {session.pk} has no entry {leaf}")
        taken = _take(session, end, version, options)
        if _is_one_path(taken, end):
            return taken
    raise RuntimeError(f"session {session.pk} kept changing its path while a snapshot was taken")


def _take(session: Session, leaf: int, version: int, options: ContextOptions | None) -> Snapshot:
    path = _Path(session, leaf=leaf)
    state = {node.seq: node for node in nodes_of(path.numbered(_in_force(path.state())))}
    covered = summarised_ranges(state.values()) if options else ()

    def made_of(nodes: Sequence[Node], loaded_from: int) -> Snapshot:
        everything = {node.seq: node for node in nodes} | {
            seq: node for seq, node in state.items() if isinstance(node.entry, Summary | Retracted)
        }
        return Snapshot(
            session_id=str(session.pk),
            version=version,
            nodes=tuple(everything[seq] for seq in sorted(everything)),
            loaded_from=loaded_from,
            **_what_holds(list(state.values())),
        )

    return _load(path, covered, options, made_of)


def _load(
    path: _Path,
    covered: Sequence[tuple[int, int]],
    options: ContextOptions | None,
    made_of: Callable[[Sequence[Node], int], Snapshot],
) -> Snapshot:
    """Read backwards, each page twice as long as the one before, until older entries cannot matter."""
    nodes: list[Node] = []
    before: int | None = None
    size = FIRST_LOAD if options else MAX_PAGE
    while True:
        rows = path.older_than(before, size)
        nodes = [*nodes_of(rows[::-1]), *nodes]
        taken = made_of(nodes, rows[-1].seq if len(rows) == size else 0)
        if taken.is_whole or (options and reaches_far_enough(taken, options)):
            return taken
        before = _skip(rows[-1].seq, covered)
        size = min(size * 2, MAX_PAGE) if options else MAX_PAGE


def _skip(seq: int, covered: Sequence[tuple[int, int]]) -> int:
    """Where to read on: summaries stand for whole ranges, and those need not be read."""
    inside = next((first for first, last in reversed(covered) if first < seq <= last + 1), None)
    return seq if inside is None else inside


def _in_force(state: Sequence[tuple[int, str]]) -> list[int]:
    """The newest instruction, tools and notebook; all summaries and what retracts them."""
    newest = {kind: seq for seq, kind in state}
    every = [seq for seq, kind in state if kind in (Summary.kind, Retracted.kind)]
    return sorted({*newest.values(), *every})


def _what_holds(state: Sequence[Node]) -> dict[str, Any]:
    holds: dict[str, Any] = {"system_instruction": "", "notebook": NO_NOTEBOOK, "tools": ()}
    for node in state:
        if isinstance(node.entry, SystemInstructionSet):
            holds["system_instruction"] = node.entry.instruction
        elif isinstance(node.entry, NotebookSet):
            holds["notebook"] = node.entry.content
        elif isinstance(node.entry, ToolsOffered):
            holds["tools"] = node.entry.tools
    return holds


def _is_one_path(taken: Snapshot, leaf: int) -> bool:
    """Whether the rows read are one path: the head may have moved between two pages."""
    known = {node.seq for node in taken.nodes}
    read = [node for node in taken.nodes if node.seq >= taken.loaded_from]
    if leaf and (not read or read[-1].seq != leaf):
        return False
    return all(a.seq == b.parent for a, b in pairwise(read) if b.parent in known)
