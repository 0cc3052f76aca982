"""Saying it differently, asking again, going on, and answering a question."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from history.context import Snapshot, is_task_finished
from history.entries import Entry, ModelInput, ModelOutput, Part, Text, ToolResults, now
from history.models import Message, Session
from history.record import recorder, selectors
from relay.agents.instructions import setting_changes
from relay.agents.settings import AgentSettings, find_agent, pick_agent
from relay.agents.turn import Turn
from relay.chat import attachments
from relay.conversation.drafts import Client, Draft, NotPossible, SendResult, check_draft, text_parts
from relay.conversation.positions import is_being_answered
from relay.conversation.sending import send_next_queued
from relay.conversation.turns import LAST_TURN, append_input, choose_model, get_message, read_head, start_answer
from relay.live import runs
from relay.runtime.async_db import in_database
from relay.tools.running import answer_all
from relay.usage import allowances

CONTINUE = "Continue exactly where you stopped."


async def edit(user: Any, session: Session, *, seq: int, draft: Draft, client: Client | None = None) -> SendResult:
    """A branch beside entry `seq`, which becomes the path, and its answer."""
    check_draft(draft)
    sent, turn = await in_database(_edit, user, session, seq, draft, client or {})
    return await start_answer(session, sent, turn, on_end=send_next_queued)


def _edit(user: Any, session: Session, seq: int, draft: Draft, client: Client) -> tuple[SendResult, Turn]:
    message = get_message(session, seq)
    if message.kind != ModelInput.kind:
        raise NotPossible(_("Only what a person said can be edited."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    agent = pick_agent(draft.agent, otherwise=session.agent)
    kept = attachments.parts_of(user, draft.attachments) if draft.attachments else _media_of(message)
    said = ModelInput(parts=(*text_parts(draft.text), *kept))
    appended = append_input(session, said, agent, after=message.parent_seq, moving="edit")
    turn = Turn(
        session_id=session.pk,
        user=user,
        leaf=appended.seq,
        agent=agent,
        model=choose_model(session, draft.model),
        client=client,
    )
    return SendResult(seq=appended.seq), turn


async def regenerate(
    user: Any, session: Session, *, seq: int, model: str = "", client: Client | None = None
) -> SendResult:
    """Another answer beside entry `seq`."""
    sent, turn = await in_database(_regenerate, user, session, seq, model, client or {})
    return await start_answer(session, sent, turn, on_end=send_next_queued)


def _regenerate(user: Any, session: Session, seq: int, model: str, client: Client) -> tuple[SendResult, Turn]:
    message = get_message(session, seq)
    if message.kind != ModelOutput.kind:
        raise NotPossible(_("Only an answer can be given again."))
    runs.request_stop_in_session(session.pk)
    allowances.note_message(user)
    picked = choose_model(session, model)
    agent = find_agent(message.agent or session.agent)
    leaf = _up_to_date(session, recorder.regenerate(session, seq=seq), agent)
    turn = Turn(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client)
    return SendResult(seq=leaf), turn


def _up_to_date(session: Session, leaf: int, agent: AgentSettings) -> int:
    """So an answer that another program got is given again by our agent, with its instruction and tools."""
    before = selectors.snapshot(session, leaf=leaf, options=LAST_TURN)
    added = setting_changes(before, agent, at=now())
    return recorder.append_many(session, added, after=leaf)[-1].seq if added else leaf


async def continue_(
    user: Any, session: Session, *, leaf: int | None = None, model: str = "", client: Client | None = None
) -> SendResult:
    """Go on where an answer was cut short, or where nobody has answered."""
    sent, turn = await in_database(_continue, user, session, leaf, model, client or {})
    return await start_answer(session, sent, turn, on_end=send_next_queued)


def _continue(user: Any, session: Session, leaf: int | None, model: str, client: Client) -> tuple[SendResult, Turn]:
    leaf = read_head(session) if leaf is None else leaf
    if is_being_answered(session.pk, leaf):
        raise NotPossible(_("The answer is on its way already."))
    taken = selectors.snapshot(session, leaf=leaf, options=LAST_TURN)
    if is_task_finished(taken.nodes):
        raise NotPossible(_("This task is finished. Say what to do next."))
    if not taken.nodes:
        raise NotPossible(_("Nothing has been said here yet."))
    allowances.note_message(user)
    agent = find_agent(session.agent)
    leaf = _ready_to_go_on(session, leaf, agent, before=taken)
    picked = choose_model(session, model)
    turn = Turn(session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client)
    return SendResult(seq=leaf), turn


def _ready_to_go_on(session: Session, leaf: int, agent: AgentSettings, *, before: Snapshot) -> int:
    """An answer that broke off is asked to go on; calls that nobody answered are said to have been interrupted.

    What has changed about the agent since is said before that.
    """
    entry = selectors.entries_of([get_message(session, leaf)])[0]
    added: list[Entry] = setting_changes(before, agent, at=now())
    if isinstance(entry, ModelOutput) and entry.tool_requests:
        added.insert(0, answer_all(entry.tool_requests, {}, agent=agent.name))
    elif isinstance(entry, ModelOutput):
        added.append(ModelInput(channel="agent", is_internal=True, parts=(Text(text=CONTINUE),)))
    return recorder.append_many(session, added, after=leaf)[-1].seq if added else leaf


async def answer(
    user: Any, session: Session, *, seq: int, call_id: str, text: str, client: Client | None = None
) -> SendResult:
    """A person's answer to `ask_user`, which entry `seq` asked."""
    sent, turn = await in_database(_answer, user, session, seq, call_id, text, client or {})
    return await start_answer(session, sent, turn, on_end=send_next_queued)


def _answer(user: Any, session: Session, seq: int, call_id: str, text: str, client: Client) -> tuple[SendResult, Turn]:
    check_draft(Draft(text=text))
    message = get_message(session, seq)
    entry = selectors.entries_of([message])[0]
    asked = entry.tool_requests if isinstance(entry, ModelOutput) else ()
    answered = Message.objects.of(session).filter(parent_seq=seq, kind=ToolResults.kind).exists()
    if answered or call_id not in {request.call_id for request in asked}:
        raise NotPossible(_("This question does not wait for an answer any more."))
    if is_being_answered(session.pk, seq):
        raise NotPossible(_("The answer is on its way already."))
    allowances.note_message(user)
    agent = find_agent(message.agent or session.agent)
    turn = Turn(
        session_id=session.pk,
        user=user,
        leaf=seq,
        agent=agent,
        model=choose_model(session, ""),
        answers={call_id: text},
        client=client,
    )
    return SendResult(seq=seq), turn


def _media_of(message: Message) -> tuple[Part, ...]:
    entry = selectors.entries_of([message])[0]
    return tuple(entry.attachments) if isinstance(entry, ModelInput) else ()
