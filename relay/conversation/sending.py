"""Saying something: at once, or as soon as the answer that is on its way has ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from history import recorder
from history.entries import ModelInput
from history.errors import HistoryError
from history.models import Session
from history.transactions import writing
from relay import allowances, attachments, broadcast
from relay.agent.settings import find_agent
from relay.agent.tools.registry import all_tools
from relay.agent.turn import Turn
from relay.commands import BadCommand, Command, parse, spoken
from relay.conversation import typed
from relay.conversation.drafts import Client, Draft, NotPossible, Sent, check, text_parts
from relay.conversation.turns import answered, append_input, is_being_answered, model_for
from relay.database import in_database
from relay.errors import RelayError
from relay.models import QueuedMessage, Run

MOST_QUEUED = 20


async def begin(
    user: Any,
    *,
    text: str,
    attachments: Sequence[str] = (),
    agent: str = "",
    model: str = "",
    client: Client | None = None,
) -> Session:
    """A new session with its first message, which is being answered. Where that is refused, no session is left."""
    draft = Draft(text=text, attachments=attachments, agent=agent, model=model)
    command = _read(draft)
    if command is not None:
        return await typed.begin(user, command, draft)
    session, sent, turn = await in_database(_begin, user, draft, client or {})
    await answered(session, sent, turn, on_end=go_on)
    return session


def _begin(user: Any, draft: Draft, client: Client) -> tuple[Session, Sent, Turn]:
    with writing():
        session = recorder.start_session(owner=user, agent=find_agent(draft.agent).name)
        return session, *_send(user, session, draft, 0, False, client)


async def send(
    user: Any,
    session: Session,
    *,
    draft: Draft,
    after: int,
    on_leaf: bool = False,
    client: Client | None = None,
) -> Sent:
    """Say something after the entry that was seen last. `on_leaf`: the writer has chosen that branch on purpose."""
    command = _read(draft)
    if command is not None and not command.is_tool:
        return await typed.obey(user, session, command, on_end=go_on)
    if await in_database(is_being_answered, session.pk, after):
        return await answered(session, await in_database(_queue, user, session, draft), None, on_end=None)
    if command is not None:
        return await typed.use_tool(user, session, command, draft, after=after, on_leaf=on_leaf)
    sent, turn = await in_database(_send, user, session, draft, after, on_leaf, client or {})
    return await answered(session, sent, turn, on_end=go_on)


def _read(draft: Draft) -> Command | None:
    check(draft)
    try:
        return parse(draft.text, all_tools())
    except BadCommand as error:
        raise NotPossible(str(error)) from error


def _send(user: Any, session: Session, draft: Draft, after: int, on_leaf: bool, client: Client) -> tuple[Sent, Turn]:
    allowances.note_message(user)
    agent = find_agent(draft.agent or session.agent)
    said = ModelInput(parts=(*text_parts(spoken(draft.text)), *attachments.parts_of(user, draft.attachments)))
    appended = append_input(session, said, agent, after=after, moving="switch" if on_leaf else "")
    turn = Turn(
        session_id=session.pk,
        user=user,
        leaf=appended.seq,
        agent=agent,
        model=model_for(session, draft.model),
        client=client,
    )
    return Sent(seq=appended.seq, is_branch=not appended.moved_head), turn


def _queue(user: Any, session: Session, draft: Draft) -> Sent:
    if QueuedMessage.objects.filter(session=session.pk).count() >= MOST_QUEUED:
        raise NotPossible(_("Enough messages are waiting here already. Wait for the answer, or stop it."))
    attachments.parts_of(user, draft.attachments)  # told now, while its writer is there to attach another
    QueuedMessage.objects.create(
        session=session.pk,
        owner=user,
        text=draft.text,
        attachments=list(draft.attachments),
        agent=draft.agent,
        model=draft.model,
    )
    return Sent(is_queued=True)


async def go_on(run: Run) -> None:
    """A run has ended well: the next message that waits is sent. One that is refused goes on waiting."""
    if run.outcome in (Run.Outcome.DONE, Run.Outcome.LIMIT):
        with suppress(RelayError, HistoryError):
            await send_queued(run.owner_id, run.session, after=run.leaf)


async def send_queued(owner_id: int, session_id: UUID, *, after: int) -> None:
    """Send what waits, in order, until one of them is being answered; its end sends the next."""
    while taken := await in_database(_take_queued, owner_id, session_id):
        session, waiting = taken
        draft = Draft(text=waiting.text, attachments=waiting.attachments, agent=waiting.agent, model=waiting.model)
        try:
            sent = await send(session.owner, session, draft=draft, after=after, on_leaf=True)
        except (RelayError, HistoryError):
            await in_database(waiting.save, force_insert=True)
            raise
        if sent.run or sent.is_queued:
            return
        after = sent.seq or after


def _take_queued(owner_id: int, session_id: UUID) -> tuple[Session, QueuedMessage] | None:
    """The oldest, for exactly one of those who come for it."""
    waiting = QueuedMessage.objects.filter(session=session_id).order_by("pk").first()
    if waiting is None:
        return None
    session = Session.objects.select_related("owner").filter(pk=session_id, owner_id=owner_id, hidden_at=None).first()
    if session is None or not QueuedMessage.objects.filter(pk=waiting.pk).delete()[0]:
        return None
    return session, waiting


async def unqueue(session: Session, *, queued_id: int) -> None:
    await in_database(lambda: QueuedMessage.objects.filter(session=session.pk, pk=queued_id).delete())
    await broadcast.tell_session(session.pk, {"type": "session.changed"})
