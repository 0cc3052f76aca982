"""Actions without a model, and slash commands: stop, roll back, switch branches, fork, rename, delete."""

from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history import retention
from history.entries import JsonObject, ModelInput
from history.models import Message, Session
from history.record import recorder
from history.record.selectors import PAGE, messages_of
from relay.agents.requests import FolderNotAllowed, list_folder, resolve_folder
from relay.commands import Command, help_text
from relay.conversation import compression
from relay.conversation.turns import NotPossible, SendResult, read_head, text_parts
from relay.live import groups, runs
from relay.models import User
from relay.runtime.event_loop import in_database
from relay.tools.base import all_tools

MOST_PLAIN_CHARS = 2_000


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
            return await compression.compress(user, session, model=arguments["model"])
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
