"""Whose child a session is. A program names the parent with each call of a subagent; either may be filed first.

A child that comes before its parent is remembered until that comes; should the digester be another one by then, the
child's next call looks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from history.models import Session, ToolCall
from history.record import writer
from relay.digest.calls import CallPlan
from relay.digest.recognisers.session_lookup import current_session
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import SessionCache

MOST_GENERATIONS = 20
# The tools by which Claude Code, opencode and Codex begin a subagent.
BEGINNERS = ("Task", "Agent", "task", "spawn_agent")


def parent_for(asked: RelayedRequest) -> Session | None:
    """Where its owner has deleted the parent, the one that goes on in its place."""
    return current_session(asked.parent, key=asked.record.key)[1] if asked.parent else None


def call_that_began_it(parent: Session) -> tuple[str, int | None]:
    """The call of a subagent that stands open in the newest answer, and its entry. Of two, nobody knows which."""
    if not parent.head_has_open_calls:
        return "", None
    waiting = ToolCall.objects.of(parent).filter(message__on_path=True, answered_by=None, name__in=BEGINNERS)
    newest = list(waiting.order_by("-message__seq").values_list("call_id", "message__seq")[:2])
    is_alone = len(newest) == 1 or (len(newest) == 2 and newest[0][1] != newest[1][1])
    return newest[0] if is_alone else ("", None)


def look_again(asked: RelayedRequest, child: Session, memory: SessionCache) -> None:
    """A child that is there already, and whose parent was not when it came."""
    if asked.parent is None or child.parent_id is not None or child.pk in memory.orphans.get(asked.parent, ()):
        return
    parent = parent_for(asked)
    if parent is not None:
        _adopt(child.pk, parent)
    else:
        memory.note_orphan(child.pk, parent=asked.parent)


def join(plans: Iterable[CallPlan], memory: SessionCache) -> None:
    """Sessions that have come about now find those that were waiting for them, or wait themselves."""
    for plan in plans:
        session, asked = plan.new_session, plan.asked
        if session is None:
            continue
        if asked.parent is not None and session.parent_id is None:
            memory.note_orphan(session.pk, parent=asked.parent)
        for child in memory.orphans.pop(asked.session, ()) if asked.session else ():
            _adopt(child, session)


def _adopt(child: UUID, parent: Session) -> None:
    """Nobody becomes his own ancestor, whatever the headers say."""
    above: UUID | None = parent.pk
    for _ in range(MOST_GENERATIONS):
        if above is None:
            writer.change(child, parent=parent)
            return
        if above == child:
            return
        above = Session.objects.filter(pk=above).values_list("parent_id", flat=True).first()
