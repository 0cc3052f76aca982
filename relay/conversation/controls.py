"""Actions without a message, and slash commands: stop, roll back, switch branches, fork, rename, delete, summarise."""

from uuid import UUID

from django.utils.translation import gettext as _, pgettext

from history import retention
from history.db.transactions import writing
from history.entries import EMPTY, JsonObject, ModelInput, Retracted, Summary
from history.models import Message, Session
from history.record import recorder
from history.record.paths import retracted_in
from history.record.selectors import PAGE, messages_of
from relay.agents.compression import plan_compression
from relay.agents.loop import find_open_calls
from relay.agents.requests import FolderNotAllowed, list_folder, resolve_folder
from relay.agents.settings import find_agent
from relay.agents.turn import CompressionRequest, TurnInput, request_compression
from relay.commands import Command, help_text
from relay.conversation.queue import start_answer
from relay.conversation.turns import Client, NotPossible, SendResult, choose_model, get_message, read_head, text_parts
from relay.live import groups, run_task, runs
from relay.models import Run, User
from relay.providers.base import Model
from relay.providers.registry import router
from relay.runtime.async_db import in_database
from relay.tools.base import all_tools
from relay.usage import allowances

MOST_PLAIN_CHARS = 2_000


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


async def run_compression(session: Session, sent: SendResult, turn: TurnInput) -> list[int]:
    """Run to its end what `prepare_compression` has prepared; the summaries that came of it."""
    sent = await start_answer(session, sent, turn)
    if sent.run and (running := run_task.local_tasks.get(sent.run)) and running.task:
        await running.task
    summaries = Message.objects.on_path(session).filter(seq__gt=sent.seq, kind=Summary.kind).order_by("seq")
    return await in_database(lambda: list(summaries.values_list("seq", flat=True)))


def prepare_compression(
    user: User, session: Session, *, model: str = "", instead_of: int = 0, client: Client
) -> tuple[SendResult, TurnInput | None]:
    """The turn to be run. None: an answer is being written, and its run summarises before its next step."""
    if not instead_of and any(request_compression(run.pk) for run in Run.objects.running_in(session.pk)):
        return SendResult(words=_("Older messages will be summarised before the next step of this answer.")), None
    leaf = _find_leaf(session)
    if instead_of:
        _check_in_force(session, instead_of)
    request = CompressionRequest(why="again" if instead_of else "asked", model=model, instead_of=instead_of)
    agent, picked = find_agent(session.agent), choose_model(session, "")
    turn = TurnInput(
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


async def stop(session: Session, *, run: UUID | None = None) -> None:
    """Stop one run, or every one of this session."""
    await in_database(runs.request_stop_in_session, session.pk, run)


async def rollback(user: User, session: Session, *, to: int) -> None:
    """Continue from entry `to`; what came after it stays in the record, beside the path."""
    await in_database(_move, user, session, to, "rollback")
    groups.notify_session(session.pk)


async def switch(user: User, session: Session, *, leaf: int) -> None:
    await in_database(_move, user, session, leaf, "switch")
    groups.notify_session(session.pk)


def _move(user: User, session: Session, to: int, reason: str) -> None:
    runs.request_stop_in_session(session.pk)
    recorder.move_head(session, to=to, reason=reason, by=user.get_username())


async def fork(user: User, session: Session, *, at: int | None = None) -> Session:
    return await in_database(lambda: recorder.fork(session, at=read_head(session) if at is None else at, owner=user))


async def rename(session: Session, *, title: str) -> None:
    if not title.strip():
        raise NotPossible(_("A title needs at least one character."))
    await in_database(recorder.rename, session, title=title)
    groups.notify_session(session.pk)
    groups.notify_sidebar(session.owner_id, session.pk)


async def delete(user: User, session: Session) -> None:
    """Move the session to the trash and stop its runs."""
    await in_database(_delete, user, session)
    groups.notify_sidebar(session.owner_id, session.pk)


def _delete(user: User, session: Session) -> None:
    runs.request_stop_in_session(session.pk)
    retention.hide(session, actor=user)


async def run_command(user: User, session: Session, command: Command) -> SendResult:
    """Carry out a command. The command itself is not recorded in the conversation."""
    arguments = command.arguments
    match command.name:
        case "help":
            return SendResult(words=help_text(all_tools()))
        case "title":
            await rename(session, title=arguments["title"])
            return SendResult(words=_("The title is now “%(title)s”.") % {"title": session.title})
        case "fork":
            at = await in_database(_entry_of, session, arguments["seq"]) if "seq" in arguments else None
            return SendResult(go_to=(await fork(user, session, at=at)).pk)
        case "context":
            return await _add_folder(session, arguments["folder"])
        case "rollback":
            await rollback(user, session, to=await in_database(_find_rollback, session, arguments))
            return SendResult(words=_("The conversation continues from there. Later messages can still be read."))
        case "compress":
            return await compress(user, session, model=arguments["model"])
        case "history":
            return SendResult(words=await in_database(plain_history, session, count=arguments["limit"]))
    raise NotPossible(help_text(all_tools()))


async def _add_folder(session: Session, folder: str) -> SendResult:
    """A listing of the folder becomes an internal message, which is sent to the model."""
    try:
        text = await in_database(lambda: list_folder(resolve_folder(folder)))
    except FolderNotAllowed:
        raise NotPossible(_("%(folder)s is not an allowed folder.") % {"folder": folder[:200]}) from None
    entry = ModelInput(channel="context", is_internal=True, parts=text_parts(text), metadata={"folder": folder})
    await in_database(lambda: recorder.append(session, entry, after=read_head(session)))
    groups.notify_session(session.pk)
    return SendResult(words=_("The agent now knows what is in %(folder)s.") % {"folder": folder[:200]})


def _entry_of(session: Session, number: int) -> int:
    """The entry of the message with this number. Pages number the messages that they show."""
    seen = Message.objects.on_path(session).only_messages().order_by("seq")
    found = seen.values_list("seq", flat=True)[number - 1 : number] if number > 0 else ()
    if not found:
        raise NotPossible(_("There is no message #%(number)s.") % {"number": number})
    return int(found[0])


def _find_rollback(session: Session, arguments: JsonObject) -> int:
    """The entry to continue from: one that is named, or the one before the last so many turns."""
    if "seq" in arguments:
        return _entry_of(session, int(arguments["seq"]))
    inputs = Message.objects.on_path(session).filter(kind=ModelInput.kind, is_internal=False)
    newest = list(inputs.order_by("-seq").values_list("parent_seq", flat=True)[: arguments["turns"]])
    if not newest:
        raise NotPossible(_("There is nothing to go back to."))
    return newest[-1]


def plain_history(session: Session, *, count: int = PAGE) -> str:
    """The last messages as plain text, oldest first, for terminals and for `/history`."""
    speakers = {
        "user": pgettext("speaker", "User"),
        "assistant": pgettext("speaker", "Assistant"),
        "tool": pgettext("speaker", "Tool"),
    }
    lines = [
        f"{speakers[message.role]}: {_shorten(message.content)}"
        for message in messages_of(session, limit=count).messages
        if message.content and not message.is_internal and message.role in speakers
    ]
    return "\n\n".join([_("=== Conversation history ==="), *lines]) if lines else _("No conversation history yet")


def _shorten(text: str) -> str:
    return text if len(text) <= MOST_PLAIN_CHARS else f"{text[:MOST_PLAIN_CHARS]}…"
