"""Lines that begin with a slash: done at once, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.utils.translation import gettext as _

from history.db.transactions import writing
from history.entries import MESSAGES, Entry, HeadMoved, ModelInput, ModelOutput, ToolRequest
from history.models import Message, Session
from history.record import recorder
from relay.agents.folders import FolderNotAllowed, list_folder, resolve_folder
from relay.chat.plain_text import plain_history
from relay.commands import Command, help_text
from relay.conversation import compression, controls, queue
from relay.conversation.drafts import Draft, NotPossible, SendResult, text_parts
from relay.conversation.turns import read_head, start_answer
from relay.live import groups, runs
from relay.models import QueuedMessage
from relay.runtime.async_db import in_database, in_database_after_outages
from relay.tools.base import ToolContext
from relay.tools.registry import all_tools
from relay.tools.running import run_calls
from relay.usage import allowances


async def run_command(user: Any, session: Session, command: Command, *, on_end: runs.OnEnd) -> SendResult:
    """Do what the line says; it leaves no trace of its own in the conversation."""
    told = command.arguments
    match command.name:
        case "help":
            return SendResult(words=help_text(all_tools()))
        case "title":
            await controls.rename(session, title=told["title"])
            return SendResult(words=_("The title is “%(title)s” now.") % {"title": session.title})
        case "fork":
            at = await in_database(_entry_of, session, told["seq"]) if "seq" in told else None
            return SendResult(go_to=(await controls.fork(user, session, at=at)).pk)
        case "context":
            return await _add_folder(session, told["folder"])
        case "rollback":
            await controls.rollback(user, session, to=await in_database(_place_before, session, told))
            return SendResult(words=_("The conversation goes on from there. What came after it can still be read."))
        case "compress":
            return await compression.start_compression(user, session, model=told["model"], on_end=on_end)
        case "history":
            return SendResult(words=await in_database(plain_history, session, count=told["limit"]))
    raise NotPossible(help_text(all_tools()))


async def _add_folder(session: Session, folder: str) -> SendResult:
    """What is in it becomes part of the conversation: internal, because nobody said it, and told to the model."""
    try:
        text = await in_database(lambda: list_folder(resolve_folder(folder)))
    except FolderNotAllowed:
        raise NotPossible(_("%(folder)s is no folder that may be shown here.") % {"folder": folder[:200]}) from None
    entry = ModelInput(channel="context", is_internal=True, parts=text_parts(text), metadata={"folder": folder})
    await in_database(lambda: recorder.append(session, entry, after=read_head(session)))
    groups.notify_session(session.pk)
    return SendResult(words=_("The agent knows now what is in %(folder)s.") % {"folder": folder[:200]})


async def run_tool_command(
    user: Any,
    session: Session,
    command: Command,
    draft: Draft,
    *,
    after: int,
    on_leaf: bool,
    queued: QueuedMessage,
) -> SendResult:
    """Any tool by hand, recorded as what it is: what was typed, the call, its result. `queued`: its row until then."""
    await in_database(allowances.note_message, user)
    request = command.as_request(f"typed-{uuid4().hex[:12]}")
    context = ToolContext(user=user, session_id=session.pk, agent=session.agent, by_hand=True)
    results = await run_calls([request], toolbox=all_tools(), context=context)
    told = [results, *context.kept_by(results)]
    begun = results.results[0].started_at or results.at
    tries = 0

    def record() -> SendResult:
        nonlocal tries
        tries += 1
        return _record_tool(session, draft, request, told, after, on_leaf, begun, queued, is_repeated=tries > 1)

    return await start_answer(session, await in_database_after_outages(record), None, on_end=None)


def _record_tool(
    session: Session,
    draft: Draft,
    request: ToolRequest,
    told: Sequence[Entry],
    after: int,
    on_leaf: bool,
    at: datetime,
    queued: QueuedMessage,
    *,
    is_repeated: bool,
) -> SendResult:
    """`is_repeated`: an earlier attempt failed, and may have been committed unnoticed."""
    typed = {"source": "command"}
    entries: list[Entry] = [
        ModelInput(parts=text_parts(draft.text), metadata=typed, at=at),
        ModelOutput(parts=(request,), end_reason="tool_use", metadata=typed, at=at),
        *told,
    ]
    with writing():
        if not queue.remove_message(queued) and is_repeated:
            return SendResult(seq=read_head(session))
        if on_leaf and after != read_head(session):
            entries.insert(0, HeadMoved(to=after, reason="switch", at=at))
        appended = recorder.append_many(session, entries, after=after)[-1]
    return SendResult(seq=appended.seq, is_branch=not appended.moved_head)


def _entry_of(session: Session, number: int) -> int:
    """The entry of the message with this number, as the page numbers what people see."""
    seen = Message.objects.on_path(session).filter(kind__in=MESSAGES, is_internal=False).order_by("seq")
    found = seen.values_list("seq", flat=True)[number - 1 : number] if number > 0 else ()
    if not found:
        raise NotPossible(_("There is no message #%(number)s.") % {"number": number})
    return int(found[0])


def _place_before(session: Session, told: Mapping[str, Any]) -> int:
    """Where to go on: after an entry that is named, or before the last so many turns."""
    if "seq" in told:
        return _entry_of(session, int(told["seq"]))
    inputs = Message.objects.on_path(session).filter(kind=ModelInput.kind, is_internal=False)
    newest = list(inputs.order_by("-seq").values_list("parent_seq", flat=True)[: told["turns"]])
    if not newest:
        raise NotPossible(_("There is nothing to go back to."))
    return newest[-1]
