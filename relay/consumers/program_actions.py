"""The commands of a program: one function each, the same engine as the pages. docs/websocket.md lists every word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import uuid4

from django.utils.translation import gettext as _

from history.models import Session
from history.record.listing import ListCursor, list_sessions
from relay import conversation
from relay.chat import serializers
from relay.chat.plain_text import plain_history
from relay.consumers.intents import ActionRequest, InvalidRequest
from relay.consumers.program_events import Answer
from relay.consumers.program_sessions import ProgramSessions
from relay.conversation import SendResult
from relay.runtime.async_db import in_database
from relay.runtime.locale import ViewerLocale


async def create(program: ProgramSessions, intent: ActionRequest) -> Answer:
    program.require("write")
    session = await in_database(program.start, intent.text("agent"), intent.text("title"), uuid4())
    await program.open_session(session)
    return {"session": serializers.session_json(session)}


async def list_(program: ProgramSessions, intent: ActionRequest) -> Answer:
    before = intent.text("cursor")
    try:
        cursor = ListCursor.read(before) if before else None
    except ValueError:
        raise InvalidRequest(_("“%(name)s” is not one that a list has given out.") % {"name": "cursor"}) from None
    count = min(max(1, intent.optional_number("count") or 20), 100)
    page = await in_database(lambda: list_sessions(program.mine(), before=cursor, limit=count))
    told = [serializers.session_json(session) for session in page.sessions]
    return {"sessions": told, "cursor": str(page.next_before) if page.next_before else None}


async def open_(program: ProgramSessions, intent: ActionRequest) -> Answer:
    """Go to another session. Where that is not possible, we stay where we were, and say so."""
    session = await program.session(intent)
    await program.open_session(session)
    running = await program.follow_runs(session)
    title = session.title or _("Untitled")
    told = {"session": serializers.session_json(session), "text": _("Switched to session: %(name)s") % {"name": title}}
    return told | {"running": running}


async def send(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session_or_new(intent)
    await program.open_session(session)
    after = intent.optional_number("after")
    seen = await in_database(lambda: Session.objects.get(pk=session.pk).head) if after is None else after
    on_leaf = bool(intent.fields.get("on_leaf"))
    told = {"after": seen, "run": intent.optional_id("run"), "on_leaf": on_leaf}
    return _sent(
        session,
        await conversation.send(program.user, session, draft=intent.draft(), client=program.client, **told),  # type: ignore[arg-type]
    )


async def queue(program: ProgramSessions, intent: ActionRequest) -> Answer:
    """The messages of a session that are not sent yet, oldest first: for its owner, as they are in no record."""
    session = await program.session(intent, scope="write")
    told = [serializers.queued_json(row) for row in await conversation.list_queued(session)]
    return {"session_id": str(session.pk), "queued": told}


async def send_queued(program: ProgramSessions, intent: ActionRequest) -> Answer:
    """Send what waits, in order, behind `after` or the head."""
    session = await program.session(intent, scope="write")
    after = intent.optional_number("after")
    seen = await in_database(lambda: Session.objects.get(pk=session.pk).head) if after is None else after
    sent = await conversation.send_queued(program.user, session, after=seen, run=intent.optional_id("run"))
    return _sent(session, sent)


async def unqueue(program: ProgramSessions, intent: ActionRequest) -> Answer:
    """`queued`: that message; without it all that wait."""
    session = await program.session(intent, scope="write")
    withdrawn = await conversation.unqueue(session, queued_id=intent.optional_number("queued"))
    return {"session_id": str(session.pk), "withdrawn": withdrawn}


async def edit(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    seq, draft = intent.number("seq"), intent.draft()
    return _sent(session, await conversation.edit(program.user, session, seq=seq, draft=draft, client=program.client))


async def regenerate(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    seq, model = intent.number("seq"), intent.text("model")
    sent = await conversation.regenerate(program.user, session, seq=seq, model=model, client=program.client)
    return _sent(session, sent)


async def continue_(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    leaf, model = intent.optional_number("leaf"), intent.text("model")
    sent = await conversation.continue_(program.user, session, leaf=leaf, model=model, client=program.client)
    return _sent(session, sent)


async def answer(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    told = {"seq": intent.number("seq"), "call_id": intent.text("call_id"), "text": intent.text("text")}
    return _sent(session, await conversation.answer(program.user, session, **told, client=program.client))  # type: ignore[arg-type]


async def stop(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    await conversation.stop(session, run=intent.optional_id("run"))
    return {"session_id": str(session.pk)}


async def rename(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    await conversation.rename(session, title=intent.text("title"))
    return {"session": serializers.session_json(session)}


async def delete(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="delete")
    await conversation.delete(program.user, session)
    if program.current == session.pk:
        await program.close_session()
    return {"session_id": str(session.pk)}


async def fork(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    copy = await conversation.fork(program.user, session, at=intent.optional_number("seq"))
    return {"session": serializers.session_json(copy)}


async def rollback(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    await conversation.rollback(program.user, session, to=intent.number("to"))
    await in_database(session.refresh_from_db)
    return {"session": serializers.session_json(session)}


async def compress(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    model, seq = intent.text("model"), intent.optional_number("seq") or 0
    sent = await conversation.compress(program.user, session, model=model, instead_of=seq, client=program.client)
    return _sent(session, sent)


async def undo_summary(program: ProgramSessions, intent: ActionRequest) -> Answer:
    session = await program.session(intent, scope="write")
    await conversation.undo_summary(program.user, session, seq=intent.number("seq"))
    await in_database(session.refresh_from_db)
    return {"session": serializers.session_json(session)}


async def history(program: ProgramSessions, intent: ActionRequest) -> Answer:
    """`format: "text"` gives the plain form for terminals as well."""
    count = intent.optional_number("count") or 20
    asked = {"before": intent.optional_number("cursor"), "leaf": intent.optional_number("leaf")}
    if program.current is None and not intent.text("session"):
        return {"session_id": str(program.fresh), "message_count": 0, "messages": [], "cursor": None, "text": _empty()}
    session = await program.session(intent)
    told = await in_database(serializers.history_json, session, count=count, **asked)
    if intent.text("format") == "text" or not told["messages"]:
        told["text"] = await in_database(_plain, program.reader, session, count)
    return told


async def ping(program: ProgramSessions, intent: ActionRequest) -> Answer:
    return {}


def _plain(reader: ViewerLocale, session: Session, count: int) -> str:
    with reader.reading():
        return plain_history(session, count=count)


def _sent(session: Session, sent: SendResult) -> Answer:
    told: Answer = {"session_id": str(session.pk)}
    if sent.seq:
        told |= {"seq": sent.seq, "is_branch": sent.is_branch}
    if sent.run:
        told["run"] = str(sent.run)
    if sent.is_queued:
        told |= {"is_queued": True, "queued": sent.queued_id}
    if sent.words:
        told["text"] = sent.words
    return told | ({"forked": str(sent.go_to)} if sent.go_to else {})


def _empty() -> str:
    return _("No conversation history yet")


Command = Callable[[ProgramSessions, ActionRequest], Awaitable[Answer]]
COMMANDS: dict[str, Command] = {
    "create": create,
    "list": list_,
    "open": open_,
    "switch": open_,
    "send": send,
    "queue": queue,
    "send_queued": send_queued,
    "unqueue": unqueue,
    "edit": edit,
    "regenerate": regenerate,
    "continue": continue_,
    "answer": answer,
    "stop": stop,
    "rename": rename,
    "delete": delete,
    "fork": fork,
    "rollback": rollback,
    "compress": compress,
    "undo_summary": undo_summary,
    "history": history,
    "ping": ping,
}
