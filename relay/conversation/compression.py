"""Summaries on a person's or a program's behalf: written now, written anew by another model, taken back."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from history.db.transactions import writing
from history.entries import ModelOutput, Retracted, Summary
from history.models import Message, Session
from history.record import recorder, selectors
from history.record.branches import retracted_in
from relay.agents.compression import plan_compression
from relay.agents.saving import request_compression
from relay.agents.settings import find_agent
from relay.agents.turn import CompressionRequest, Turn
from relay.conversation.drafts import Client, NotPossible, SendResult
from relay.conversation.turns import choose_model, get_message, read_head, start_answer
from relay.live import groups, runs
from relay.models import Run
from relay.providers.base import Model
from relay.providers.registry import router
from relay.runtime.async_db import in_database
from relay.usage import allowances


class NothingToSummarise(NotPossible):
    """So little was said that a summary would be longer, or nothing since the last one."""


class NoSuchSummary(NotPossible):
    """The entry is none, or on another branch."""


async def start_compression(
    user: Any,
    session: Session,
    *,
    model: str = "",
    instead_of: int = 0,
    client: Client | None = None,
    on_end: runs.OnEnd | None,
) -> SendResult:
    """Have older messages summarised; `instead_of`: the ones that this summary stands for, anew.

    While an answer is on its way, that happens before its next step, or at its end.
    """
    sent, turn = await in_database(
        prepare_compression, user, session, model=model, instead_of=instead_of, client=client or {}
    )
    return await start_answer(session, sent, turn, on_end=on_end)


def prepare_compression(
    user: Any, session: Session, *, model: str = "", instead_of: int = 0, client: Client
) -> tuple[SendResult, Turn | None]:
    """What is to be run; no turn: an answer is on its way and will see to it."""
    if not instead_of and any(request_compression(run.pk) for run in Run.objects.running_in(session.pk)):
        return SendResult(words=_("Older messages are summarised before the next step of this answer.")), None
    leaf = _place(session)
    if instead_of:
        _check_in_force(session, instead_of)
    request = CompressionRequest(why="again" if instead_of else "asked", model=model, instead_of=instead_of)
    agent, picked = find_agent(session.agent), choose_model(session, "")
    turn = Turn(
        session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client, compression=request
    )
    if not plan_compression(turn, leaf, model=Model(name=""), request=request).plan:
        raise NothingToSummarise(_("There is nothing to summarise here yet."))
    route = router().route(model or agent.model_for("executor", picked=picked))
    if not route.model.can_summarise:
        name = {"name": _(route.model.shown)}
        raise NotPossible(_("%(name)s cannot summarise. Choose another model.") % name)
    allowances.note_message(user)
    return SendResult(seq=leaf), turn


async def undo_summary(user: Any, session: Session, *, seq: int) -> None:
    """What the summary stood for counts again; the summary itself stays in the record."""
    await in_database(retract_summary, user, session, seq=seq)
    groups.notify_session(session.pk)


def retract_summary(user: Any, session: Session, *, seq: int) -> None:
    with writing():
        _check_in_force(session, seq)
        leaf = _place(session)
        entry = Retracted(seq=seq, reason="undo", metadata={"by": user.get_username()})
        appended = recorder.append(session, entry, after=leaf)
        # Whoever answers there goes on behind it.
        Run.objects.filter(session=session.pk, ended_at=None, leaf=leaf).update(leaf=appended.seq)


def _place(session: Session) -> int:
    """The head, unless calls are open there: their results must be the next thing."""
    head = read_head(session)
    message = Message.objects.at(session, head).first()
    entry = selectors.entries_of([message])[0] if message else None
    if isinstance(entry, ModelOutput) and entry.tool_requests and entry.status == "complete":
        raise NotPossible(_("Tools are called here and have not answered yet. Try again when they have."))
    return head


def _check_in_force(session: Session, seq: int) -> None:
    message = get_message(session, seq)
    if message.kind != Summary.kind or not message.on_path:
        raise NoSuchSummary(_("This is no summary of this conversation."))
    if seq in retracted_in(session.pk):
        raise NotPossible(_("This summary was taken back already."))
