"""The socket for programs: JSON in, JSON out, with the same actions as the chat page. docs/websocket.md lists them."""

from uuid import UUID, uuid4

from django.utils.translation import gettext as _

from history.models import Session
from history.record.listing import ListCursor, list_sessions
from history.transcripts import serializers
from relay import conversation
from relay.consumers.actions import ACTIONS, MAX_MESSAGE_CHARS, Action, Result
from relay.consumers.base import ActionRequest, CloseCode, InvalidRequest, MessageRate, connection_info
from relay.consumers.program_sessions import Answer, ProgramSessions, id_of
from relay.conversation import SendResult, ViewerPosition
from relay.conversation.controls import plain_history
from relay.live import groups
from relay.models import QueuedMessage
from relay.runtime.async_db import in_database
from relay.runtime.locale import reader_of

PROTOCOL = 1


class ProgramConsumer(ProgramSessions):
    """`unused_id` is the id of the session that the next message without an open session creates."""

    unused_id: UUID

    async def connect(self) -> None:
        self.user, self.api_key = self.scope.get("user"), self.scope.get("api_key")  # type: ignore[assignment]
        self.cursors, self.done = {}, set()
        if self.user is None or not self.user.is_authenticated:
            return await self.close(CloseCode.NOT_SIGNED_IN)
        self.rate, self.client = MessageRate(), connection_info(self.scope)
        self.reader, self.unused_id = reader_of(self.user, self.scope), uuid4()
        await self.accept()
        known = {"protocol": PROTOCOL, "user": self.user.get_username(), "session_id": str(self.unused_id)}
        await self.send_event("welcome", **known, is_degraded=groups.is_degraded(), **self.client)
        return None

    def size_error(self, text_data: str | None) -> str:
        if text_data is None:
            return _("Send text frames with JSON.")
        return _("A frame can have up to %(most)d characters.") % {"most": MAX_MESSAGE_CHARS}

    async def send_result(self, request: ActionRequest, result: Result, session: Session) -> None:
        if isinstance(result, Session):
            result = {"session": serializers.session_json(result)}
        elif isinstance(result, SendResult):
            result = _sent(session, result)
        answer = {"session_id": str(session.pk)} if result is None else result
        await self.send_event(request.type, id=id_of(request), **answer)


def _sent(session: Session, sent: SendResult) -> Answer:
    answer: Answer = {"session_id": str(session.pk)}
    if sent.seq:
        answer |= {"seq": sent.seq, "is_branch": sent.is_branch}
    if sent.run:
        answer["run"] = str(sent.run)
    if sent.is_queued:
        answer |= {"is_queued": True, "queued": sent.queued_id}
    if sent.words:
        answer["text"] = sent.words
    return answer | ({"forked": str(sent.go_to)} if sent.go_to else {})


async def create(program: ProgramConsumer, _none: object, request: ActionRequest) -> Session:
    program.require_scope("write")
    session = await in_database(program.create_session, request.text("agent"), request.text("title"), uuid4())
    await program.open_session(session)
    return session


async def list_(program: ProgramConsumer, _none: object, request: ActionRequest) -> Answer:
    before = request.text("cursor")
    try:
        cursor = ListCursor.read(before) if before else None
    except ValueError:
        raise InvalidRequest(_("“%(name)s” is not valid.") % {"name": "cursor"}) from None
    count = min(max(1, request.optional_number("count") or 20), 100)
    page = await in_database(lambda: list_sessions(program.visible_sessions(), before=cursor, limit=count))
    sessions = [serializers.session_json(session) for session in page.sessions]
    return {"sessions": sessions, "cursor": str(page.next_before) if page.next_before else None}


async def open_(program: ProgramConsumer, session: Session, request: ActionRequest) -> Answer:
    """Go to another session. If that is not possible, the open one stays open."""
    await program.open_session(session)
    running = await program.follow_runs(session)
    text = _("Switched to session: %(name)s") % {"name": session.title or _("Untitled")}
    return {"session": serializers.session_json(session), "text": text, "running": running}


async def send(program: ProgramConsumer, _none: object, request: ActionRequest) -> Answer:
    if program.current is None and not request.text("session"):
        program.require_scope("write")
        session = await in_database(program.create_session, request.text("agent"), "", program.unused_id)
        program.unused_id = uuid4()
    else:
        session = await program.find_session(request, scope="write")
    await program.open_session(session)
    after, run = await _after(session, request), request.optional_id("run")
    seen = ViewerPosition(after=after, run=run, on_leaf=bool(request.fields.get("on_leaf")))
    sent = await conversation.send(program.user, session, request.draft(), seen, client=program.client)
    return _sent(session, sent)


async def _after(session: Session, request: ActionRequest) -> int:
    """The entry that the program saw last: the head, unless it says so."""
    after = request.optional_number("after")
    return await in_database(lambda: Session.objects.get(pk=session.pk).head) if after is None else after


async def queue(program: ProgramConsumer, session: Session, request: ActionRequest) -> Answer:
    """The messages of a session that are not sent yet, oldest first: for its owner, as they are in no record."""
    rows = await in_database(lambda: list(QueuedMessage.objects.filter(session=session.pk)))
    return {"session_id": str(session.pk), "queued": [_queued_json(row) for row in rows]}


def _queued_json(row: QueuedMessage) -> Answer:
    """`is_held`: it is not sent automatically; `error`: why it was refused."""
    return {
        "queued": row.pk,
        "text": row.text,
        "attachment": list(row.attachments),
        "agent": row.agent,
        "model": row.model,
        "after": row.after,
        "is_held": row.held_at is not None,
        "error": row.error or None,
        "created_at": row.created_at.isoformat(),
    }


async def send_queued(program: ProgramConsumer, session: Session, request: ActionRequest) -> SendResult:
    """Send what waits, in order, behind `after` or the head."""
    after = await _after(session, request)
    return await conversation.send_queued(program.user, session, after=after, run=request.optional_id("run"))


async def unqueue(program: ProgramConsumer, session: Session, request: ActionRequest) -> Answer:
    """`queued`: that message; without it all that wait."""
    withdrawn = await conversation.unqueue(session, queued_id=request.optional_number("queued"))
    return {"session_id": str(session.pk), "withdrawn": withdrawn}


async def rename(program: ProgramConsumer, session: Session, request: ActionRequest) -> Session:
    await conversation.rename(session, title=request.text("title"))
    return session


async def delete(program: ProgramConsumer, session: Session, request: ActionRequest) -> None:
    await conversation.delete(program.user, session)
    if program.current == session.pk:
        await program.close_session()


async def history(program: ProgramConsumer, _none: object, request: ActionRequest) -> Answer:
    """`format: "text"` gives the plain form for terminals as well."""
    count = request.optional_number("count") or 20
    before, leaf = request.optional_number("cursor"), request.optional_number("leaf")
    if program.current is None and not request.text("session"):
        empty: Answer = {"session_id": str(program.unused_id), "message_count": 0, "messages": [], "cursor": None}
        return empty | {"text": _("No conversation history yet")}
    session = await program.find_session(request)
    answer = await in_database(serializers.history_json, session, count=count, before=before, leaf=leaf)
    if request.text("format") == "text" or not answer["messages"]:
        translated = program.reader.reading()(plain_history)
        answer["text"] = await in_database(translated, session, count=count)
    return answer


async def ping(program: ProgramConsumer, _none: object, request: ActionRequest) -> Answer:
    return {}


async def continue_(program: ProgramConsumer, session: Session, request: ActionRequest) -> SendResult:
    leaf, model = request.optional_number("leaf"), request.text("model")
    return await conversation.continue_(program.user, session, leaf=leaf, model=model, client=program.client)


ProgramConsumer.actions = ACTIONS | {
    "create": Action(create, needs_session=False),
    "list": Action(list_, needs_session=False),
    "open": Action(open_, scope="read"),
    "switch": Action(open_, scope="read"),
    "send": Action(send, needs_session=False),
    "queue": Action(queue),
    "send_queued": Action(send_queued),
    "unqueue": Action(unqueue),
    "rename": Action(rename),
    "delete": Action(delete, scope="delete"),
    "continue": Action(continue_),
    "history": Action(history, needs_session=False),
    "ping": Action(ping, needs_session=False),
}
