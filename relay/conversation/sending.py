"""Sending a message: at once, or through the queue while an answer is being written."""

from uuid import UUID

from history.db.transactions import writing
from history.models import Session
from history.record import recorder, writer
from relay.agents.settings import pick_agent
from relay.agents.turn import Turn
from relay.commands import Command, help_text
from relay.conversation.controls import run_command
from relay.conversation.queue import ToolCommand, enqueue, send_next, start_answer
from relay.conversation.turns import (
    Client,
    Draft,
    InsertPosition,
    NotPossible,
    SendResult,
    ViewerPosition,
    append_message,
    find_insert_position,
    parse_command,
)
from relay.models import QueuedMessage, User
from relay.runtime.async_db import in_database
from relay.tools.registry import all_tools
from relay.usage import allowances


async def start_session(user: User, draft: Draft, *, client: Client | None = None) -> Session:
    """A new session with its first message, which is being answered. If that is refused, no session is left."""
    command = parse_command(draft)
    # Other commands than tools need a conversation.
    if command is not None and not command.is_tool:
        raise NotPossible(help_text(all_tools()))
    session, filed, work = await in_database(_start, user, draft, client or {}, command)
    await _carry_out(session, filed, work)
    return session


def _start(
    user: User, draft: Draft, client: Client, command: Command | None
) -> tuple[Session, SendResult, Turn | ToolCommand | None]:
    with writing():
        if command is not None:
            allowances.check_allowance(user)
        session = recorder.start_session(owner=user, agent=pick_agent(draft.agent).name)
        return session, *_append_or_claim(user, session, draft, InsertPosition(0), client, command)


async def send(
    user: User,
    session: Session,
    *,
    draft: Draft,
    after: int,
    run: UUID | None = None,
    on_leaf: bool = False,
    client: Client | None = None,
) -> SendResult:
    """Send a message after what its writer saw last: the entry `after`, and the `run` that was being answered there.

    `on_leaf`: the writer has chosen that branch on purpose.
    """
    command = parse_command(draft)
    if command is not None and not command.is_tool:
        return await run_command(user, session, command)
    seen = ViewerPosition(after=after, run=run, on_leaf=on_leaf)
    filed, work, is_stalled = await in_database(_file, user, session, draft, seen, client or {}, command)
    sent = await _carry_out(session, filed, work)
    if is_stalled:
        await send_next(user.pk, session.pk, seen)
    return sent


def _file(
    user: User, session: Session, draft: Draft, seen: ViewerPosition, client: Client, command: Command | None
) -> tuple[SendResult, Turn | ToolCommand | None, bool]:
    """Append the message, or put it into the queue, in one transaction: no run can end between look and write.

    Returns what became of it, what is to be done now, and whether no run is going to send the queue in which it is.
    """
    with writing():
        writer.lock([session.pk])
        place = find_insert_position(session.pk, seen)
        if place.run is not None or QueuedMessage.objects.sendable(session.pk, place.seq):
            row = enqueue(user, session, draft, place)
            return SendResult(is_queued=True, queued_id=row.pk), None, place.run is None
        return *_append_or_claim(user, session, draft, place, client, command, on_leaf=seen.on_leaf), False


def _append_or_claim(
    user: User,
    session: Session,
    draft: Draft,
    place: InsertPosition,
    client: Client,
    command: Command | None,
    *,
    on_leaf: bool = False,
) -> tuple[SendResult, Turn | ToolCommand]:
    """A tool command is a row before it is carried out: a process that dies in the middle loses nothing of it."""
    if command is None:
        return append_message(user, session, draft, after=place.seq, client=client, on_leaf=on_leaf)
    tool = ToolCommand(user, session, enqueue(user, session, draft, place), command, place.seq, on_leaf)
    tool.claim()
    return SendResult(), tool


async def _carry_out(session: Session, filed: SendResult, work: Turn | ToolCommand | None) -> SendResult:
    return await (work.carry_out_typed() if isinstance(work, ToolCommand) else start_answer(session, filed, work))
