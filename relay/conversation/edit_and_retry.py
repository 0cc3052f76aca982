"""Edit a message, regenerate or continue an answer, and answer a question of an agent."""

from django.utils.translation import gettext as _

from history.context import Snapshot, is_task_finished
from history.entries import Entry, ModelInput, ModelOutput, Part, Text, ToolResults, now
from history.models import Message, Session
from history.record import recorder, selectors
from relay.agents.settings import AgentSettings, find_agent, pick_agent, setting_changes
from relay.agents.turn import Turn
from relay.chat import attachments
from relay.conversation.positions import is_being_answered
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
    get_message,
    read_head,
    text_parts,
)
from relay.live import runs
from relay.models import User
from relay.runtime.async_db import in_database
from relay.tools.running import answer_all
from relay.usage import allowances

CONTINUE = "Continue exactly where you stopped."


async def edit(user: User, session: Session, *, seq: int, draft: Draft, client: Client | None = None) -> SendResult:
    """A branch beside entry `seq`, which becomes the path, and its answer."""
    check_draft(draft)
    sent, turn = await in_database(_edit, user, session, seq, draft, client or {})
    return await start_answer(session, sent, turn)


def _edit(user: User, session: Session, seq: int, draft: Draft, client: Client) -> tuple[SendResult, Turn]:
    message = get_message(session, seq)
    if message.kind != ModelInput.kind:
        raise NotPossible(_("Only messages of users can be edited."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    agent = pick_agent(draft.agent, otherwise=session.agent)
    media = attachments.parts_of(user, draft.attachments) if draft.attachments else _media_of(message)
    edited = ModelInput(parts=(*text_parts(draft.text), *media))
    appended = append_input(session, edited, agent, after=message.parent_seq, moving="edit")
    model = choose_model(session, draft.model)
    turn = Turn(session_id=session.pk, user=user, leaf=appended.seq, agent=agent, model=model, client=client)
    return SendResult(seq=appended.seq), turn


async def regenerate(
    user: User, session: Session, *, seq: int, model: str = "", client: Client | None = None
) -> SendResult:
    """Another answer beside entry `seq`."""
    sent, turn = await in_database(_regenerate, user, session, seq, model, client or {})
    return await start_answer(session, sent, turn)


def _regenerate(user: User, session: Session, seq: int, model: str, client: Client) -> tuple[SendResult, Turn]:
    message = get_message(session, seq)
    if message.kind != ModelOutput.kind:
        raise NotPossible(_("Only answers can be regenerated."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    picked = choose_model(session, model)
    agent = find_agent(message.agent or session.agent)
    leaf = _with_setting_changes(session, recorder.regenerate(session, seq=seq), agent)
    turn = Turn(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client)
    return SendResult(seq=leaf), turn


def _with_setting_changes(session: Session, leaf: int, agent: AgentSettings) -> int:
    """With the instruction and tools of our agent, also where another program got the first answer."""
    before = selectors.snapshot(session, leaf=leaf, options=LAST_TURN)
    changes = setting_changes(before, agent, at=now())
    return recorder.append_many(session, changes, after=leaf)[-1].seq if changes else leaf


async def continue_(
    user: User, session: Session, *, leaf: int | None = None, model: str = "", client: Client | None = None
) -> SendResult:
    """Continue a cut answer, or answer a message that has no answer."""
    sent, turn = await in_database(_continue, user, session, leaf, model, client or {})
    return await start_answer(session, sent, turn)


def _continue(user: User, session: Session, leaf: int | None, model: str, client: Client) -> tuple[SendResult, Turn]:
    leaf = read_head(session) if leaf is None else leaf
    if is_being_answered(session.pk, leaf):
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
    turn = Turn(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client)
    return SendResult(seq=leaf), turn


def _prepare_to_continue(session: Session, leaf: int, agent: AgentSettings, *, before: Snapshot) -> int:
    """Append changes of the agent, and a request to continue a cut answer, or results of interrupted calls."""
    entry = selectors.entries_of([get_message(session, leaf)])[0]
    added: list[Entry] = setting_changes(before, agent, at=now())
    if isinstance(entry, ModelOutput) and entry.tool_requests:
        added.insert(0, answer_all(entry.tool_requests, {}, agent=agent.name))
    elif isinstance(entry, ModelOutput):
        added.append(ModelInput(channel="agent", is_internal=True, parts=(Text(text=CONTINUE),)))
    return recorder.append_many(session, added, after=leaf)[-1].seq if added else leaf


async def answer(
    user: User, session: Session, *, seq: int, call_id: str, text: str, client: Client | None = None
) -> SendResult:
    """The user's answer to a call of `ask_user` in entry `seq`."""
    sent, turn = await in_database(_answer, user, session, seq, call_id, text, client or {})
    return await start_answer(session, sent, turn)


def _answer(user: User, session: Session, seq: int, call_id: str, text: str, client: Client) -> tuple[SendResult, Turn]:
    check_draft(Draft(text=text))
    message = get_message(session, seq)
    entry = selectors.entries_of([message])[0]
    requests = entry.tool_requests if isinstance(entry, ModelOutput) else ()
    is_answered = Message.objects.of(session).filter(parent_seq=seq, kind=ToolResults.kind).exists()
    if is_answered or call_id not in {request.call_id for request in requests}:
        raise NotPossible(_("This question no longer waits for an answer."))
    if is_being_answered(session.pk, seq):
        raise NotPossible(_("The answer is already being written."))
    allowances.note_message(user)
    agent = find_agent(message.agent or session.agent)
    model, answers = choose_model(session, ""), {call_id: text}
    turn = Turn(session_id=session.pk, user=user, leaf=seq, agent=agent, model=model, answers=answers, client=client)
    return SendResult(seq=seq), turn


def _media_of(message: Message) -> tuple[Part, ...]:
    entry = selectors.entries_of([message])[0]
    return tuple(entry.attachments) if isinstance(entry, ModelInput) else ()
