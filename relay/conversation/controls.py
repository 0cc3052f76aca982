"""Actions without a model: stop, roll back, switch branches, fork, rename, delete."""

from uuid import UUID

from django.utils.translation import gettext as _

from history import retention
from history.models import Session
from history.record import recorder
from relay.conversation.turns import NotPossible, read_head
from relay.live import groups, runs
from relay.models import User
from relay.runtime.async_db import in_database


async def stop(session: Session, *, run: UUID | None = None) -> None:
    """Stop one run, or every one of this session."""
    await in_database(runs.request_stop_in_session, session.pk, run)


async def rollback(user: User, session: Session, *, to: int) -> None:
    """Continue from entry `to`; what came after it stays in the record, beside the path."""
    await in_database(_move, user, session, to, "rollback")
    groups.notify_session(session.pk)


async def switch(user: User, session: Session, *, leaf: int) -> None:
    await in_database(_move, user, session, leaf, "switch")
    groups.notify_session(session.pk)


def _move(user: User, session: Session, to: int, reason: str) -> None:
    runs.request_stop_in_session(session.pk)
    recorder.move_head(session, to=to, reason=reason, by=user.get_username())


async def fork(user: User, session: Session, *, at: int | None = None) -> Session:
    return await in_database(lambda: recorder.fork(session, at=read_head(session) if at is None else at, owner=user))


async def rename(session: Session, *, title: str) -> None:
    if not title.strip():
        raise NotPossible(_("A title needs at least one character."))
    await in_database(recorder.rename, session, title=title)
    groups.notify_session(session.pk)
    groups.notify_sidebar(session.owner_id, session.pk)


async def delete(user: User, session: Session) -> None:
    """Move the session to the trash and stop its runs."""
    await in_database(_delete, user, session)
    groups.notify_sidebar(session.owner_id, session.pk)


def _delete(user: User, session: Session) -> None:
    runs.request_stop_in_session(session.pk)
    retention.hide(session, actor=user)
