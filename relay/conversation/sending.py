"""Sending a message: at once, or through the queue while an answer is on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from history import recorder, storage
from history.entries import ModelInput
from history.errors import HistoryError
from history.models import Session
from history.transactions import writing
from relay import allowances, attachments, broadcast, runs
from relay.agent.settings import pick_agent
from relay.agent.tools.registry import all_tools
from relay.agent.turn import Turn
from relay.commands import BadCommand, Command, parse, spoken
from relay.conversation import queue, typed
from relay.conversation.drafts import Client, Draft, NotPossible, Sent, check, text_parts
from relay.conversation.places import Place, Seen, find_end, find_place, last_run_at
from relay.conversation.turns import answered, append_input, model_for
from relay.database import in_database, in_database_after_outages
from relay.errors import RelayError
from relay.models import QueuedMessage, Run
from relay.queued_messages import hold, release_all, waiting_at


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filed:
    """What one transaction made of a message: it is being answered by `turn`, or is in the queue, or runs a tool.

    `is_stalled`: no run is going to send the queue in which it is.
    """

    sent: Sent
    turn: Turn | None = None
    place: Place | None = None
    is_stalled: bool = False


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
        session = recorder.start_session(owner=user, agent=pick_agent(draft.agent).name)
        return session, *_append(user, session, draft, Place(0), client)


async def send(
    user: Any,
    session: Session,
    *,
    draft: Draft,
    after: int,
    run: UUID | None = None,
    on_leaf: bool = False,
    client: Client | None = None,
) -> Sent:
    """Send a message after what its writer saw last: the entry `after`, and the `run` that was being answered there.

    `on_leaf`: the writer has chosen that branch on purpose.
    """
    command = _read(draft)
    if command is not None and not command.is_tool:
        return await typed.obey(user, session, command, on_end=go_on)
    seen = Seen(after=after, run=run, on_leaf=on_leaf)
    filed = await in_database(_file, user, session, draft, seen, client or {}, command)
    if filed.place is not None and command is not None:
        return await typed.use_tool(user, session, command, draft, after=filed.place.seq, on_leaf=on_leaf)
    sent = await answered(session, filed.sent, filed.turn, on_end=go_on)
    if filed.is_stalled:
        await _send_next(user.pk, session.pk, seen)
    return sent


def _file(user: Any, session: Session, draft: Draft, seen: Seen, client: Client, command: Command | None) -> _Filed:
    """Append the message, or put it into the queue, in one transaction: no run can end between look and write."""
    with writing():
        storage.lock([session.pk])
        place = find_place(session.pk, seen)
        if place.run is not None or waiting_at(session.pk, place.seq):
            return _Filed(sent=queue.enqueue(user, session, draft, place), is_stalled=place.run is None)
        if command is not None:
            return _Filed(sent=Sent(), place=place)
        sent, turn = _append(user, session, draft, place, client, on_leaf=seen.on_leaf)
        return _Filed(sent=sent, turn=turn)


def _read(draft: Draft) -> Command | None:
    check(draft)
    try:
        return parse(draft.text, all_tools())
    except BadCommand as error:
        raise NotPossible(str(error)) from error


def _append(
    user: Any,
    session: Session,
    draft: Draft,
    place: Place,
    client: Client,
    *,
    on_leaf: bool = False,
    follows: UUID | None = None,
) -> tuple[Sent, Turn]:
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
        model=model_for(session, draft.model),
        client=client,
    )
    run = runs.write_down(turn, follows=follows)
    return Sent(seq=appended.seq, run=run, is_branch=not appended.moved_head), turn


# What waits.


async def go_on(run: Run) -> None:
    """A run has ended well: send the next message that waits for it. A refused one is held in its place."""
    if run.outcome in (Run.Outcome.DONE, Run.Outcome.LIMIT):
        seen = Seen(after=run.leaf, run=run.pk, on_leaf=True)
        await _send_next(run.owner_id, run.session, seen, take=in_database_after_outages)


async def send_queued(user: Any, session: Session, *, after: int, run: UUID | None = None) -> Sent:
    """The owner sends what waits, held or not, in order: the first now, the others as the answers end."""
    seen = Seen(after=after, run=run, on_leaf=True)
    await in_database(_release, session.pk, seen)
    return await _send_next(user.pk, session.pk, seen, is_asked=True) or Sent()


def _release(session_id: UUID, seen: Seen) -> None:
    with writing():
        storage.lock([session_id])
        release_all(session_id, find_end(session_id, seen).seq)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that has left the queue: it is an entry, and its run is written down."""

    session: Session
    sent: Sent
    turn: Turn

    async def carry_out(self) -> Sent:
        return await answered(self.session, self.sent, self.turn, on_end=go_on)


@dataclass(frozen=True, slots=True)
class _ToolCommand:
    """A tool command that this process has claimed. It leaves the queue when its result is recorded."""

    session: Session
    row: QueuedMessage
    command: Command
    after: int

    async def carry_out(self) -> Sent:
        session, draft = self.session, queue.draft_of(self.row)
        try:
            return await typed.use_tool(
                session.owner, session, self.command, draft, after=self.after, on_leaf=True, queued=self.row
            )
        except BaseException:
            await in_database(queue.give_back, self.row)
            raise


async def _send_next(
    owner_id: int, session_id: UUID, seen: Seen, *, is_asked: bool = False, take: Any = in_database
) -> Sent | None:
    """Send the oldest message that waits there, and further ones as long as they are tool commands.

    What is refused is held in its place; `is_asked`: and the error goes to the caller. `take` waits for the database
    where no user waits for us.
    """
    follows = seen.run
    while True:
        try:
            taken = await take(_take, owner_id, session_id, seen, follows)
            if taken is None:
                return None
            sent: Sent = await taken.carry_out()
        except (RelayError, HistoryError):
            await in_database(_hold, session_id, seen)
            await broadcast.tell_session(session_id, broadcast.CHANGED)
            if is_asked:
                raise
            return None
        if sent.run:
            return sent
        seen = replace(seen, after=sent.seq, run=None)


def _take(owner_id: int, session_id: UUID, seen: Seen, follows: UUID | None) -> _Message | _ToolCommand | None:
    """The oldest message of that conversation: removed and appended in one transaction, or claimed if it is a tool."""
    # Mostly nothing waits. A message that was queued before the run ended is seen: the end waits for its transaction.
    if not QueuedMessage.objects.filter(session=session_id).exists():
        return None
    with writing():
        owned = Session.objects.select_related("owner").filter(pk=session_id, owner_id=owner_id, hidden_at=None)
        if (session := owned.first()) is None:
            return None
        storage.lock([session_id])
        place = find_end(session_id, seen)
        waiting = waiting_at(session_id, place.seq)
        if place.run is not None or not waiting or waiting[0].held_at is not None:
            return None
        row, draft = waiting[0], queue.draft_of(waiting[0])
        command = _read(draft)
        if command is not None and command.is_tool:
            return _ToolCommand(session, row, command, place.seq) if queue.claim(row) else None
        queue.take(row)
        follows = follows or last_run_at(session_id, place.seq)
        return _Message(session, *_append(session.owner, session, draft, place, {}, on_leaf=True, follows=follows))


def _hold(session_id: UUID, seen: Seen) -> None:
    with writing():
        storage.lock([session_id])
        hold(session_id, find_end(session_id, seen).seq)
