"""Sending a message: at once, or through the queue while an answer is on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from history.db.transactions import writing
from history.entries import ModelInput
from history.errors import HistoryError
from history.models import Session
from history.record import recorder, writer
from relay.agents.settings import pick_agent
from relay.agents.turn import Turn
from relay.chat import attachments
from relay.commands import BadCommand, Command, help_text, parse, spoken
from relay.conversation import queue, slash_commands
from relay.conversation.drafts import Client, Draft, NotPossible, SendResult, check_draft, text_parts
from relay.conversation.positions import (
    InsertPosition,
    ViewerPosition,
    find_branch_end,
    find_insert_position,
    last_run_at,
)
from relay.conversation.turns import append_input, choose_model, start_answer
from relay.errors import RelayError
from relay.live import groups, runs
from relay.live.queued_messages import release_queue, sendable_at
from relay.models import QueuedMessage, Run
from relay.runtime.async_db import in_database, in_database_after_outages
from relay.tools.registry import all_tools
from relay.usage import allowances


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filed:
    """What one transaction made of a message: it is being answered by `turn`, or is in the queue, or runs a tool.

    `is_stalled`: no run is going to send the queue in which it is.
    """

    sent: SendResult
    turn: Turn | None = None
    tool: _ToolCommand | None = None
    is_stalled: bool = False


async def start_session(
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
        return await _begin_with_tool(user, draft, command)
    session, sent, turn = await in_database(_begin, user, draft, client or {})
    await start_answer(session, sent, turn, on_end=send_next_queued)
    return session


def _begin(user: Any, draft: Draft, client: Client) -> tuple[Session, SendResult, Turn]:
    with writing():
        session = recorder.start_session(owner=user, agent=pick_agent(draft.agent).name)
        return session, *_append(user, session, draft, InsertPosition(0), client)


async def _begin_with_tool(user: Any, draft: Draft, command: Command) -> Session:
    """The first line of a new session: a tool. Other commands need something that they can be about."""
    if not command.is_tool:
        raise NotPossible(help_text(all_tools()))
    tool = await in_database(_file_first_tool, user, draft, command)
    await _use_typed(tool)
    return tool.session


def _file_first_tool(user: Any, draft: Draft, command: Command) -> _ToolCommand:
    with writing():
        allowances.check_allowance(user)
        session = recorder.start_session(owner=user, agent=pick_agent(draft.agent).name)
        return _claim_tool(user, session, draft, command, InsertPosition(0), on_leaf=False)


def _claim_tool(
    user: Any, session: Session, draft: Draft, command: Command, place: InsertPosition, *, on_leaf: bool
) -> _ToolCommand:
    """A row before it is carried out: a process that dies in the middle loses nothing of it."""
    row = queue.enqueue(user, session, draft, place)
    queue.claim_message(row)
    return _ToolCommand(user, session, row, command, place.seq, on_leaf)


async def _use_typed(tool: _ToolCommand) -> SendResult:
    """Carry out a tool command that nothing waited before, and send what has been queued behind it since."""
    sent = await tool.carry_out_typed()
    await _send_next(tool.user.pk, tool.session.pk, ViewerPosition(after=sent.seq, on_leaf=True))
    return sent


async def send(
    user: Any,
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
    command = _read(draft)
    if command is not None and not command.is_tool:
        return await slash_commands.run_command(user, session, command, on_end=send_next_queued)
    seen = ViewerPosition(after=after, run=run, on_leaf=on_leaf)
    filed = await in_database(_file, user, session, draft, seen, client or {}, command)
    if filed.tool is not None:
        return await _use_typed(filed.tool)
    sent = await start_answer(session, filed.sent, filed.turn, on_end=send_next_queued)
    if filed.is_stalled:
        await _send_next(user.pk, session.pk, seen)
    return sent


def _file(
    user: Any, session: Session, draft: Draft, seen: ViewerPosition, client: Client, command: Command | None
) -> _Filed:
    """Append the message, or put it into the queue, in one transaction: no run can end between look and write."""
    with writing():
        writer.lock([session.pk])
        place = find_insert_position(session.pk, seen)
        if place.run is not None or sendable_at(session.pk, place.seq):
            row = queue.enqueue(user, session, draft, place)
            return _Filed(sent=SendResult(is_queued=True, queued_id=row.pk), is_stalled=place.run is None)
        if command is not None:
            tool = _claim_tool(user, session, draft, command, place, on_leaf=seen.on_leaf)
            return _Filed(sent=SendResult(), tool=tool)
        sent, turn = _append(user, session, draft, place, client, on_leaf=seen.on_leaf)
        return _Filed(sent=sent, turn=turn)


def _read(draft: Draft) -> Command | None:
    check_draft(draft)
    try:
        return parse(draft.text, all_tools())
    except BadCommand as error:
        raise NotPossible(str(error)) from error


def _append(
    user: Any,
    session: Session,
    draft: Draft,
    place: InsertPosition,
    client: Client,
    *,
    on_leaf: bool = False,
    follows: UUID | None = None,
) -> tuple[SendResult, Turn]:
    """The message becomes an entry, and its run a row, in the caller's transaction."""
    allowances.note_message(user)
    agent = pick_agent(draft.agent, otherwise=session.agent)
    said = ModelInput(parts=(*text_parts(spoken(draft.text)), *attachments.parts_of(user, draft.attachments)))
    appended = append_input(session, said, agent, after=place.seq, moving="switch" if on_leaf else "")
    turn = Turn(
        session_id=session.pk,
        user=user,
        leaf=appended.seq,
        agent=agent,
        model=choose_model(session, draft.model),
        client=client,
    )
    run = runs.create_run(turn, follows=follows)
    return SendResult(seq=appended.seq, run=run, is_branch=not appended.moved_head), turn


# What waits.


async def send_next_queued(run: Run) -> None:
    """A run has ended well: send the next message that waits for it."""
    if run.outcome in (Run.Outcome.DONE, Run.Outcome.LIMIT):
        seen = ViewerPosition(after=run.leaf, run=run.pk, on_leaf=True)
        await _send_next(run.owner_id, run.session, seen, take=in_database_after_outages)


async def send_queued(user: Any, session: Session, *, after: int, run: UUID | None = None) -> SendResult:
    """The owner sends what waits, held or not, in order: the first now, the others as the answers end."""
    seen = ViewerPosition(after=after, run=run, on_leaf=True)
    await in_database(_release, session.pk, seen)
    return await _send_next(user.pk, session.pk, seen, is_asked=True) or SendResult()


def _release(session_id: UUID, seen: ViewerPosition) -> None:
    with writing():
        writer.lock([session_id])
        release_queue(session_id, find_branch_end(session_id, seen).seq)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that has left the queue: it is an entry, and its run is written down."""

    session: Session
    sent: SendResult
    turn: Turn

    async def carry_out(self) -> SendResult:
        return await start_answer(self.session, self.sent, self.turn, on_end=send_next_queued)


@dataclass(frozen=True, slots=True)
class _ToolCommand:
    """A tool command that this process has claimed. It leaves the queue when its result is recorded."""

    user: Any
    session: Session
    row: QueuedMessage
    command: Command
    after: int
    on_leaf: bool = True

    async def carry_out(self) -> SendResult:
        try:
            return await self._use_tool()
        except (RelayError, HistoryError) as error:
            raise _Refused(self.row, error) from error
        except BaseException:
            await in_database(queue.hold_message, self.row)
            raise

    async def carry_out_typed(self) -> SendResult:
        """The same for its writer, who waits for it and gets the reason of a refusal."""
        groups.notify_session(self.session.pk)
        try:
            return await self._use_tool()
        except (RelayError, HistoryError):
            await queue.unqueue(self.session, queued_id=self.row.pk)
            raise
        except BaseException:
            await in_database(queue.hold_message, self.row)
            raise

    async def _use_tool(self) -> SendResult:
        session, draft = self.session, queue.draft_of(self.row)
        return await slash_commands.run_tool_command(
            self.user, session, self.command, draft, after=self.after, on_leaf=self.on_leaf, queued=self.row
        )


class _Refused(Exception):
    """A message of the queue cannot be sent."""

    def __init__(self, row: QueuedMessage, error: RelayError | HistoryError) -> None:
        super().__init__(str(error))
        self.row, self.error = row, error


async def _send_next(
    owner_id: int, session_id: UUID, seen: ViewerPosition, *, is_asked: bool = False, take: Any = in_database
) -> SendResult | None:
    """Send the oldest message that waits there, and further ones as long as they are tool commands.

    What is refused is held with the reason, and those behind it are sent. `is_asked`: where nothing could be sent, the
    first error goes to the caller. `take` waits for the database where no user waits for us.
    """
    follows, refused = seen.run, None
    while True:
        try:
            taken = await take(_take, owner_id, session_id, seen, follows)
            if taken is None:
                break
            sent: SendResult = await taken.carry_out()
        except _Refused as refusal:
            refused = refused or refusal.error
            await in_database(queue.hold_message, refusal.row, refusal.error)
            groups.notify_session(session_id)
            continue
        if sent.run:
            return sent
        seen, refused = replace(seen, after=sent.seq, run=None), None
    if refused is not None and is_asked:
        raise refused
    return None


def _take(
    owner_id: int, session_id: UUID, seen: ViewerPosition, follows: UUID | None
) -> _Message | _ToolCommand | None:
    """The oldest message of that conversation: removed and appended in one transaction, or claimed if it is a tool."""
    # Mostly nothing waits. A message that was queued before the run ended is seen: the end waits for its transaction.
    if not QueuedMessage.objects.filter(session=session_id).exists():
        return None
    with writing():
        owned = Session.objects.select_related("owner").filter(pk=session_id, owner_id=owner_id, hidden_at=None)
        if (session := owned.first()) is None:
            return None
        writer.lock([session_id])
        place = find_branch_end(session_id, seen)
        waiting = sendable_at(session_id, place.seq)
        if place.run is not None or not waiting or waiting[0].held_at is not None:
            return None
        try:
            return _take_row(session, waiting[0], place, follows or last_run_at(session_id, place.seq))
        except (RelayError, HistoryError) as error:
            raise _Refused(waiting[0], error) from error


def _take_row(
    session: Session, row: QueuedMessage, place: InsertPosition, follows: UUID | None
) -> _Message | _ToolCommand | None:
    draft = queue.draft_of(row)
    command = _read(draft)
    if command is not None and command.is_tool:
        return _ToolCommand(session.owner, session, row, command, place.seq) if queue.claim_message(row) else None
    queue.remove_message(row)
    return _Message(session, *_append(session.owner, session, draft, place, {}, on_leaf=True, follows=follows))
