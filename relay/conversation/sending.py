"""Messages and answers: send a message, edit it, regenerate or continue an answer, and answer a question of an agent.

A message is sent at once, or through the queue while an answer is being written.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.utils.translation import gettext_lazy as _

from history.context.messages import is_task_finished
from history.context.values import Snapshot
from history.db.transactions import writing
from history.entries import EMPTY, Entry, ModelInput, ModelOutput, Text, ToolResults, now
from history.models import Message, Session
from history.record import recorder, selectors, writer
from relay.agents.settings import find_agent, pick_agent, setting_changes
from relay.agents.turn import TurnInput
from relay.chat import attachments
from relay.commands import Command, help_text
from relay.conversation import turns
from relay.conversation.controls import run_command
from relay.conversation.queue import ToolCommand, enqueue, send_next, start_answer
from relay.conversation.turns import Client, MessageDraft, NotPossible, SendResult, ViewerPosition
from relay.live import runs
from relay.models import Agent, QueuedMessage, User
from relay.runtime.async_db import admitted, in_database
from relay.tools.base import all_tools
from relay.tools.running import answer_all
from relay.usage import allowances

P = ParamSpec("P")
CONTINUE = "Continue exactly where you stopped."


async def start_session(user: User, draft: MessageDraft, *, client: Client = EMPTY) -> Session:
    """A new session with its first message, which is being answered. If that is refused, no session is left."""
    command = turns.parse_command(draft)
    # Other commands than tools need a conversation.
    if command is not None and not command.is_tool:
        raise NotPossible(help_text(all_tools()))
    with admitted():
        session, filed, work = await in_database(_start, user, draft, client, command)
        await _carry_out(session, filed, work)
    return session


def _start(
    user: User, draft: MessageDraft, client: Client, command: Command | None
) -> tuple[Session, SendResult, TurnInput | ToolCommand | None]:
    with writing():
        if command is not None:
            allowances.check_allowance(user)
        session = recorder.start_session(owner=user, agent=pick_agent(draft.agent).name)
        return session, *_append_or_claim(user, session, draft, 0, client, command, on_leaf=False)


async def send(
    user: User, session: Session, draft: MessageDraft, seen: ViewerPosition, *, client: Client = EMPTY
) -> SendResult:
    command = turns.parse_command(draft)
    if command is not None and not command.is_tool:
        return await run_command(user, session, command)
    filed, work, is_stalled = await in_database(_file, user, session, draft, seen, client, command)
    sent = await _carry_out(session, filed, work)
    if is_stalled:
        await send_next(user.pk, session.pk, seen)
    return sent


def _file(
    user: User, session: Session, draft: MessageDraft, seen: ViewerPosition, client: Client, command: Command | None
) -> tuple[SendResult, TurnInput | ToolCommand | None, bool]:
    """Append the message, or put it into the queue, in one transaction: no run can end between look and write.

    Returns what became of it, what is to be done now, and whether no run is going to send the queue in which it is.
    """
    with writing():
        writer.lock([session.pk])
        place = turns.find_insert_position(session.pk, seen)
        if place.run is not None or QueuedMessage.objects.sendable(session.pk, place.seq):
            row = enqueue(user, session, draft, place.seq)
            return SendResult(is_queued=True, queued_id=row.pk), None, place.run is None
        return *_append_or_claim(user, session, draft, place.seq, client, command, on_leaf=seen.on_leaf), False


def _append_or_claim(
    user: User,
    session: Session,
    draft: MessageDraft,
    after: int,
    client: Client,
    command: Command | None,
    *,
    on_leaf: bool,
) -> tuple[SendResult, TurnInput | ToolCommand]:
    """A tool command is a row before it is carried out: a process that dies in the middle loses nothing of it."""
    if command is None:
        return turns.append_message(user, session, draft, after=after, client=client, on_leaf=on_leaf, follows=None)
    tool = ToolCommand(user, session, enqueue(user, session, draft, after), command, after, on_leaf)
    tool.claim()
    return SendResult(), tool


async def _carry_out(session: Session, filed: SendResult, work: TurnInput | ToolCommand | None) -> SendResult:
    return await (work.carry_out_typed() if isinstance(work, ToolCommand) else start_answer(session, filed, work))


def answering(
    prepare: Callable[Concatenate[User, Session, P], TurnInput],
) -> Callable[Concatenate[User, Session, P], Coroutine[Any, Any, SendResult]]:
    """An action of a user in a session that appends entries, and returns the turn that is to be answered."""

    @wraps(prepare)
    async def act(user: User, session: Session, /, *args: P.args, **kwargs: P.kwargs) -> SendResult:
        turn = await in_database(prepare, user, session, *args, **kwargs)
        return await start_answer(session, SendResult(seq=turn.leaf), turn)

    return act


async def edit(user: User, session: Session, *, seq: int, draft: MessageDraft, client: Client = EMPTY) -> SendResult:
    """A branch beside entry `seq`, which becomes the path, and its answer."""
    turns.check_draft(draft)
    return await _edit(user, session, seq, draft, client)


@answering
def _edit(user: User, session: Session, seq: int, draft: MessageDraft, client: Client) -> TurnInput:
    message = turns.get_message(session, seq)
    if message.kind != ModelInput.kind:
        raise NotPossible(_("Only messages of users can be edited."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    agent = pick_agent(draft.agent, otherwise=session.agent)
    if draft.attachments:
        media = attachments.parts_of(user, draft.attachments)
    else:
        entry = selectors.entries_of([message])[0]
        media = tuple(entry.attachments) if isinstance(entry, ModelInput) else ()
    edited = ModelInput(parts=(*turns.text_parts(draft.text), *media))
    appended = turns.append_input(session, edited, agent, after=message.parent_seq, moving="edit")
    model = turns.choose_model(session, draft.model)
    return TurnInput(session_id=session.pk, user=user, leaf=appended.seq, agent=agent, model=model, client=client)


@answering
def regenerate(user: User, session: Session, *, seq: int, model: str = "", client: Client = EMPTY) -> TurnInput:
    """Another answer beside entry `seq`, by our agent with its instruction and tools."""
    message = turns.get_message(session, seq)
    if message.kind != ModelOutput.kind:
        raise NotPossible(_("Only answers can be regenerated."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    picked = turns.choose_model(session, model)
    agent = find_agent(message.agent or session.agent)
    leaf = recorder.regenerate(session, seq=seq)
    changes = setting_changes(selectors.snapshot(session, leaf=leaf, options=turns.LAST_TURN), agent, at=now())
    leaf = _append(session, changes, after=leaf)
    return TurnInput(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client)


@answering
def continue_(
    user: User, session: Session, *, leaf: int | None = None, model: str = "", client: Client = EMPTY
) -> TurnInput:
    """Continue a cut answer, or answer a message that has no answer."""
    leaf = turns.read_head(session) if leaf is None else leaf
    if turns.find_run_answering(session.pk, leaf):
        raise NotPossible(_("The answer is already being written."))
    before = selectors.snapshot(session, leaf=leaf, options=turns.LAST_TURN)
    if is_task_finished(before.nodes):
        raise NotPossible(_("This task is finished. Write what to do next."))
    if not before.nodes:
        raise NotPossible(_("This session has no messages yet."))
    allowances.note_message(user)
    agent = find_agent(session.agent)
    leaf = _prepare_to_continue(session, leaf, agent, before=before)
    picked = turns.choose_model(session, model)
    return TurnInput(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client)


def _prepare_to_continue(session: Session, leaf: int, agent: Agent, *, before: Snapshot) -> int:
    """Append changes of the agent, and a request to continue a cut answer, or results of interrupted calls."""
    entry = selectors.entries_of([turns.get_message(session, leaf)])[0]
    added: list[Entry] = setting_changes(before, agent, at=now())
    if isinstance(entry, ModelOutput) and entry.tool_requests:
        added.insert(0, answer_all(entry.tool_requests, {}, agent=agent.name))
    elif isinstance(entry, ModelOutput):
        added.append(ModelInput(channel="agent", is_internal=True, parts=(Text(text=CONTINUE),)))
    return _append(session, added, after=leaf)


def _append(session: Session, entries: list[Entry], *, after: int) -> int:
    return recorder.append_many(session, entries, after=after)[-1].seq if entries else after


@answering
def answer(user: User, session: Session, *, seq: int, call_id: str, text: str, client: Client = EMPTY) -> TurnInput:
    """The user's answer to a call of `ask_user` in entry `seq`."""
    turns.check_draft(MessageDraft(text=text))
    message = turns.get_message(session, seq)
    entry = selectors.entries_of([message])[0]
    requests = entry.tool_requests if isinstance(entry, ModelOutput) else ()
    is_answered = Message.objects.of(session).filter(parent_seq=seq, kind=ToolResults.kind).exists()
    if is_answered or call_id not in {request.call_id for request in requests}:
        raise NotPossible(_("This question no longer waits for an answer."))
    if turns.find_run_answering(session.pk, seq):
        raise NotPossible(_("The answer is already being written."))
    allowances.note_message(user)
    agent = find_agent(message.agent or session.agent)
    model, answers = turns.choose_model(session, ""), {call_id: text}
    return TurnInput(
        session_id=session.pk, user=user, leaf=seq, agent=agent, model=model, answers=answers, client=client
    )
