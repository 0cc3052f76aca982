"""What needs no model: stopping, going back, forking, names, deleting."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from history import retention
from history.models import Session
from history.record import recorder
from relay.conversation.drafts import NotPossible
from relay.conversation.turns import head_of
from relay.live import groups, runs
from relay.runtime.async_db import in_database


async def stop(session: Session, *, run: UUID | None = None) -> None:
    """Stop one run, or every one of this session."""
    await in_database(_stop, session.pk, run)


def _stop(session_id: UUID, run: UUID | None) -> None:
    for running in runs.running_in(session_id):
        if run is None or running.pk == run:
            runs.request_stop(running.pk)


async def rollback(user: Any, session: Session, *, to: int) -> None:
    """Go on from entry `to`; what came after it stays, beside the path."""
    await in_database(_move, user, session, to, "rollback")
    await groups.tell_session(session.pk, {"type": "session.changed"})


async def switch(user: Any, session: Session, *, leaf: int) -> None:
    await in_database(_move, user, session, leaf, "switch")
    await groups.tell_session(session.pk, {"type": "session.changed"})


def _move(user: Any, session: Session, to: int, reason: str) -> None:
    runs.request_stop_session(session.pk)
    recorder.move_head(session, to=to, reason=reason, by=user.get_username())


async def fork(user: Any, session: Session, *, at: int | None = None) -> Session:
    return await in_database(lambda: recorder.fork(session, at=head_of(session) if at is None else at, owner=user))


async def rename(session: Session, *, title: str) -> None:
    if not title.strip():
        raise NotPossible(_("A title needs at least one character."))
    await in_database(recorder.rename, session, title=title)
    await groups.tell_session(session.pk, {"type": "session.changed"})
    await groups.tell_person(session.owner_id, {"type": "rail.changed", "session": str(session.pk)})


async def delete(user: Any, session: Session) -> None:
    """Into the trash, and nobody goes on answering there."""
    await in_database(_delete, user, session)
    await groups.tell_person(session.owner_id, {"type": "rail.changed", "session": str(session.pk)})


def _delete(user: Any, session: Session) -> None:
    runs.request_stop_session(session.pk)
    retention.hide(session, actor=user)
