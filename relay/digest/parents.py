"""Parents of sessions: a program names the parent with each call of a subagent; either may be filed first.

A child that is filed before its parent is cached until the parent comes. After a restart, its next call looks again.
"""

from collections.abc import Iterable
from uuid import UUID

from history.clients import SUBAGENT_TOOLS
from history.models import Session, ToolCall
from history.record import writer
from relay.digest.calls import CallPlan
from relay.digest.recognisers.session_lookup import current_session
from relay.digest.requests import RelayedRequest
from relay.digest.session_cache import SessionCache

MOST_GENERATIONS = 20


def parent_of(request: RelayedRequest) -> Session | None:
    """If its owner has deleted the parent, the session that continues in its place."""
    return current_session(request.parent, key=request.record.key)[1] if request.parent else None


def subagent_call(parent: Session) -> tuple[str, int | None]:
    """The open call of a subagent in the newest answer, and its entry. Of two, either may have started the child."""
    if not parent.head_has_open_calls:
        return "", None
    waiting = ToolCall.objects.filter(session=parent, message__on_path=True, answered_by=None, name__in=SUBAGENT_TOOLS)
    newest = list(waiting.order_by("-message__seq").values_list("call_id", "message__seq")[:2])
    is_alone = len(newest) == 1 or (len(newest) == 2 and newest[0][1] != newest[1][1])
    return newest[0] if is_alone else ("", None)


def link_existing_child(request: RelayedRequest, child: Session, cache: SessionCache) -> None:
    if request.parent is None or child.parent_id is not None or child.pk in cache.orphans.get(request.parent, ()):
        return
    parent = parent_of(request)
    if parent is not None:
        _set_parent(child.pk, parent)
    else:
        cache.note_orphan(child.pk, parent=request.parent)


def link_new_sessions(plans: Iterable[CallPlan], cache: SessionCache) -> None:
    """New sessions get the children that were waiting for them, or wait for their own parent."""
    for plan in plans:
        session, request = plan.new_session, plan.request
        if session is None:
            continue
        if request.parent is not None and session.parent_id is None:
            cache.note_orphan(session.pk, parent=request.parent)
        for child in cache.orphans.pop(request.session, ()) if request.session else ():
            _set_parent(child, session)


def _set_parent(child: UUID, parent: Session) -> None:
    """No session becomes its own ancestor, even if its headers say so."""
    ancestor: UUID | None = parent.pk
    for _ in range(MOST_GENERATIONS):
        if ancestor is None:
            writer.change(child, parent=parent)
            return
        if ancestor == child:
            return
        ancestor = Session.objects.filter(pk=ancestor).values_list("parent_id", flat=True).first()
