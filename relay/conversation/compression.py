"""Summaries of older messages: request one, have one written again, take one back."""

from django.utils.translation import gettext as _

from history.db.transactions import writing
from history.entries import EMPTY, Retracted, Summary
from history.models import Message, Session
from history.record import recorder
from history.record.paths import retracted_in
from relay.agents.compression import plan_compression
from relay.agents.loop import find_open_calls
from relay.agents.settings import find_agent
from relay.agents.turn import CompressionRequest, Turn, request_compression
from relay.conversation.queue import start_answer
from relay.conversation.turns import Client, NotPossible, SendResult, choose_model, get_message, read_head
from relay.live import groups, run_task
from relay.models import Run, User
from relay.providers.base import Model
from relay.providers.registry import router
from relay.runtime.async_db import in_database
from relay.usage import allowances


class NothingToSummarise(NotPossible):
    """A summary would be longer than the messages, or there are none since the last one."""


class NoSuchSummary(NotPossible):
    """The entry is not a summary, or on another branch."""


async def compress(
    user: User, session: Session, *, model: str = "", instead_of: int = 0, client: Client = EMPTY
) -> SendResult:
    """Have older messages summarised. `instead_of` is a summary that is to be written again.

    While an answer is being written, that happens before its next step, or at its end.
    """
    sent, turn = await in_database(
        prepare_compression, user, session, model=model, instead_of=instead_of, client=client
    )
    return await start_answer(session, sent, turn)


async def run_compression(session: Session, sent: SendResult, turn: Turn) -> list[int]:
    """Run to its end what `prepare_compression` has prepared; the summaries that came of it."""
    sent = await start_answer(session, sent, turn)
    if sent.run and (running := run_task.local_tasks.get(sent.run)) and running.task:
        await running.task
    summaries = Message.objects.on_path(session).filter(seq__gt=sent.seq, kind=Summary.kind).order_by("seq")
    return await in_database(lambda: list(summaries.values_list("seq", flat=True)))


def prepare_compression(
    user: User, session: Session, *, model: str = "", instead_of: int = 0, client: Client
) -> tuple[SendResult, Turn | None]:
    """The turn to be run. None: an answer is being written, and its run summarises before its next step."""
    if not instead_of and any(request_compression(run.pk) for run in Run.objects.running_in(session.pk)):
        return SendResult(words=_("Older messages will be summarised before the next step of this answer.")), None
    leaf = _find_leaf(session)
    if instead_of:
        _check_in_force(session, instead_of)
    request = CompressionRequest(why="again" if instead_of else "asked", model=model, instead_of=instead_of)
    agent, picked = find_agent(session.agent), choose_model(session, "")
    turn = Turn(
        session_id=session.pk, user=user, leaf=leaf, agent=agent, model=picked, client=client, compression=request
    )
    if not plan_compression(turn, leaf, model=Model(name=""), request=request)[0]:
        raise NothingToSummarise(_("There is nothing to summarise yet."))
    route = router().route(model or agent.model_for("executor", picked=picked))
    if not route.model.can_summarise:
        name = {"name": _(route.model.shown)}
        raise NotPossible(_("%(name)s cannot summarise. Choose another model.") % name)
    allowances.note_message(user)
    return SendResult(seq=leaf), turn


async def undo_summary(user: User, session: Session, *, seq: int) -> None:
    """Send the summarised messages to the model again; the summary itself stays in the record."""
    await in_database(retract_summary, user, session, seq=seq)
    groups.notify_session(session.pk)


def retract_summary(user: User, session: Session, *, seq: int) -> None:
    with writing():
        _check_in_force(session, seq)
        leaf = _find_leaf(session)
        entry = Retracted(seq=seq, reason="undo", metadata={"by": user.get_username()})
        appended = recorder.append(session, entry, after=leaf)
        # A run that answers there continues after it.
        Run.objects.filter(session=session.pk, ended_at=None, leaf=leaf).update(leaf=appended.seq)


def _find_leaf(session: Session) -> int:
    """The head, unless tools are called there: their results must be the next entry."""
    head = read_head(session)
    if find_open_calls(session.pk, head):
        raise NotPossible(_("Tools are still running. Try again when they have finished."))
    return head


def _check_in_force(session: Session, seq: int) -> None:
    message = get_message(session, seq)
    if message.kind != Summary.kind or not message.on_path:
        raise NoSuchSummary(_("This is not a summary of this conversation."))
    if seq in retracted_in(session.pk):
        raise NotPossible(_("This summary was already undone."))
