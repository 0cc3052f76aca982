"""Task plan and agent tree of a session.

The tree consists of sessions: each names the call of the session that opened it. Relayed and imported sessions have
such trees, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from history.access.permissions import Purpose, sessions_for
from history.models import Session
from history.record import selectors
from relay.models import Run
from relay.tools.built_in.plans import TaskPlan, read_plan

FURTHEST = 12
MOST = 200
SHOWN = ("id", "owner_id", "title", "agent", "client", "parent_id", "created_at", "message_count", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One session, and those that its agent opened."""

    session: Session
    is_current: bool
    is_answering: bool
    below: tuple[Branch, ...] = ()

    @property
    def count(self) -> int:
        """Number of sessions below."""
        return sum(1 + branch.count for branch in self.below)

    @property
    def answering(self) -> int:
        """Number of these with a run."""
        return sum(branch.is_answering + branch.answering for branch in self.below)


def work_of(session: Session, *, reader: Any, leaf: int | None = None) -> dict[str, Any]:
    return {"plan": plan_of(session, leaf=leaf), "tree": tree_of(session, reader=reader)}


def plan_of(session: Session, *, leaf: int | None = None) -> TaskPlan | None:
    plan = read_plan(selectors.plan_at(session, leaf=leaf))
    return plan if plan.steps else None


def tree_of(session: Session, *, reader: Any) -> Branch | None:
    """The tree around this session, as far as the reader may see it. None without other sessions."""
    root = _root_of(session, reader)
    children = _below(root, reader)
    if not children:
        return None
    ids = {root.pk, *(child.pk for those in children.values() for child in those)}
    return _branch(root, children, current=session.pk, working=Run.objects.sessions_running(ids))


def _root_of(session: Session, reader: Any) -> Session:
    for _ in range(FURTHEST):
        listed = sessions_for(reader, Purpose.LIST).only(*SHOWN)
        parent = listed.filter(pk=session.parent_id).first() if session.parent_id else None
        if parent is None:
            break
        session = parent
    return session


def _below(root: Session, reader: Any) -> dict[UUID, list[Session]]:
    """Sessions opened by each session of the tree, oldest first. One query per level."""
    children: dict[UUID, list[Session]] = {}
    level, seen = [root.pk], 0
    while level and seen < MOST and len(children) < MOST:
        rows = sessions_for(reader, Purpose.LIST).only(*SHOWN).filter(parent_id__in=level).order_by("created_at", "pk")
        found = [child for child in rows[: MOST - seen] if child.pk != root.pk and child.pk not in children]
        for child in found:
            children.setdefault(child.parent_id or root.pk, []).append(child)
        level, seen = [child.pk for child in found], seen + len(found)
    return children


def _branch(session: Session, children: dict[UUID, list[Session]], *, current: UUID, working: set[UUID]) -> Branch:
    below = children.pop(session.pk, [])  # each once, even if rows name each other in a circle
    return Branch(
        session=session,
        is_current=session.pk == current,
        is_answering=session.pk in working,
        below=tuple(_branch(child, children, current=current, working=working) for child in below),
    )
