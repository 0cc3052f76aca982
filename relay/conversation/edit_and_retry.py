"""Edit a message, regenerate or continue an answer, and answer a question of an agent."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.utils.translation import gettext as _

from history.context.rendering import is_task_finished
from history.context.values import Snapshot
from history.entries import Entry, ModelInput, ModelOutput, Text, ToolResults, now
from history.models import Message, Session
from history.record import recorder, selectors
from relay.agents.settings import AgentSettings, find_agent, pick_agent, setting_changes
from relay.agents.turn import Turn
from relay.chat import attachments
from relay.conversation.queue import start_answer
from relay.conversation.turns import (
    LAST_TURN,
    Client,
    Draft,
    NotPossible,
    SendResult,
    append_input,
    check_draft,
    choose_model,
    find_run_answering,
    get_message,
    read_head,
    text_parts,
)
from relay.live import runs
from relay.models import User
from relay.runtime.async_db import in_database
from relay.tools.running import answer_all
from relay.usage import allowances

P = ParamSpec("P")
CONTINUE = "Continue exactly where you stopped."


def answering(
    prepare: Callable[Concatenate[User, Session, P], Turn],
) -> Callable[Concatenate[User, Session, P], Coroutine[Any, Any, SendResult]]:
    """An action of a user in a session that appends entries, and returns the turn that is to be answered."""

    @wraps(prepare)
    async def act(user: User, session: Session, /, *args: P.args, **kwargs: P.kwargs) -> SendResult:
        turn = await in_database(prepare, user, session, *args, **kwargs)
        return await start_answer(session, SendResult(seq=turn.leaf), turn)

    return act


async def edit(user: User, session: Session, *, seq: int, draft: Draft, client: Client | None = None) -> SendResult:
    """A branch beside entry `seq`, which becomes the path, and its answer."""
    check_draft(draft)
    return await _edit(user, session, seq, draft, client or {})


@answering
def _edit(user: User, session: Session, seq: int, draft: Draft, client: Client) -> Turn:
    message = get_message(session, seq)
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
    edited = ModelInput(parts=(*text_parts(draft.text), *media))
    appended = append_input(session, edited, agent, after=message.parent_seq, moving="edit")
    model = choose_model(session, draft.model)
    return Turn(session_id=session.pk, user=user, leaf=appended.seq, agent=agent, model=model, client=client)


@answering
def regenerate(user: User, session: Session, *, seq: int, model: str = "", client: Client | None = None) -> Turn:
    """Another answer beside entry `seq`, by our agent with its instruction and tools."""
    message = get_message(session, seq)
    if message.kind != ModelOutput.kind:
        raise NotPossible(_("Only answers can be regenerated."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    picked = choose_model(session, model)
    agent = find_agent(message.agent or session.agent)
    leaf = recorder.regenerate(session, seq=seq)
    changes = setting_changes(selectors.snapshot(session, leaf=leaf, options=LAST_TURN), agent, at=now())
    leaf = _append(session, changes, after=leaf)
    return Turn(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client or {})


@answering
def continue_(
    user: User, session: Session, *, leaf: int | None = None, model: str = "", client: Client | None = None
) -> Turn:
    """Continue a cut answer, or answer a message that has no answer."""
    leaf = read_head(session) if leaf is None else leaf
    if find_run_answering(session.pk, leaf):
        raise NotPossible(_("The answer is already being written."))
    before = selectors.snapshot(session, leaf=leaf, options=LAST_TURN)
    if is_task_finished(before.nodes):
        raise NotPossible(_("This task is finished. Write what to do next."))
    if not before.nodes:
        raise NotPossible(_("This session has no messages yet."))
    allowances.note_message(user)
    agent = find_agent(session.agent)
    leaf = _prepare_to_continue(session, leaf, agent, before=before)
    picked = choose_model(session, model)
    return Turn(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client or {})


def _prepare_to_continue(session: Session, leaf: int, agent: AgentSettings, *, before: Snapshot) -> int:
    """Append changes of the agent, and a request to continue a cut answer, or results of interrupted calls."""
    entry = selectors.entries_of([get_message(session, leaf)])[0]
    added: list[Entry] = setting_changes(before, agent, at=now())
    if isinstance(entry, ModelOutput) and entry.tool_requests:
        added.insert(0, answer_all(entry.tool_requests, {}, agent=agent.name))
    elif isinstance(entry, ModelOutput):
        added.append(ModelInput(channel="agent", is_internal=True, parts=(Text(text=CONTINUE),)))
    return _append(session, added, after=leaf)


def _append(session: Session, entries: list[Entry], *, after: int) -> int:
    return recorder.append_many(session, entries, after=after)[-1].seq if entries else after


@answering
def answer(user: User, session: Session, *, seq: int, call_id: str, text: str, client: Client | None = None) -> Turn:
    """The user's answer to a call of `ask_user` in entry `seq`."""
    check_draft(Draft(text=text))
    message = get_message(session, seq)
    entry = selectors.entries_of([message])[0]
    requests = entry.tool_requests if isinstance(entry, ModelOutput) else ()
    is_answered = Message.objects.of(session).filter(parent_seq=seq, kind=ToolResults.kind).exists()
    if is_answered or call_id not in {request.call_id for request in requests}:
        raise NotPossible(_("This question no longer waits for an answer."))
    if find_run_answering(session.pk, seq):
        raise NotPossible(_("The answer is already being written."))
    allowances.note_message(user)
    agent = find_agent(message.agent or session.agent)
    model, answers = choose_model(session, ""), {call_id: text}
    return Turn(
        session_id=session.pk, user=user, leaf=seq, agent=agent, model=model, answers=answers, client=client or {}
    )
