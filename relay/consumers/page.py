"""The socket of a chat page: it sends actions, and is shown HTML.

A page that connects, or has missed frames, is brought up to date from the database (`catch_up`). An answer that is
being written is shown from numbered frames.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from django.db import DatabaseError
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, find
from history.db.packing import clean
from history.models import Session
from history.text import whole_number
from relay import conversation
from relay.consumers.actions import ACTIONS, Action, ActionSocket, Result
from relay.consumers.base import (
    ActionRefused,
    ActionRequest,
    CloseCode,
    MessageRate,
    SocketClosed,
    connection_info,
    run_once,
)
from relay.consumers.sockets import PageSocket
from relay.conversation import SendResult, ViewerPosition
from relay.live import groups, runs, sign_outs
from relay.live.answer_html import AnswerCursor, PageCursor
from relay.live.frames import Frame
from relay.live.run_task import read_snapshot
from relay.models import User
from relay.pages.chat import fragments
from relay.pages.chat.fragments import PageUpdate, View
from relay.runtime.async_db import in_database
from relay.runtime.locale import reader_of
from relay.runtime.memory_layer import Message

logger = logging.getLogger(__name__)

# How long a stored entry waits to be shown. Mostly the end of the run follows, and both are shown in one update.
ENTRY_DELAY_SECONDS = 0.3


class ChatConsumer(ActionSocket, PageSocket):
    """A page that shows `view` of a `session`. `cursor` is its position in the run that is being answered there."""

    unlimited = frozenset({"ping"})
    view: View
    session: Session
    cursor: PageCursor | None = None
    # The last message of this page, and what the page showed when it was sent: its last entry and session version.
    last_sent: tuple[tuple[int, int | None], SendResult] | None = None
    _announced = ""
    _delayed = ""  # the frame of an entry that is stored and not shown yet
    other_runs: set[str]  # runs of other branches of the session

    async def connect_page(self, user: User) -> None:
        session_id = self.scope["url_route"]["kwargs"]["session_id"]
        session = await in_database(find, user, session_id, Purpose.WRITE)
        if session is None:
            await self.end(CloseCode.NOT_FOUND)
        self.session, self.user, self.rate, self.other_runs = session, user, MessageRate(), set()
        self.reader, self.client = reader_of(user, self.scope), connection_info(self.scope)
        query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        shown, leaf = (whole_number(query.get(name, [""])[0]) for name in ("shown", "leaf"))
        self.view = View(session_id=session.pk, user=user, reader=self.reader, shown=shown or 0, leaf=leaf)
        await self.open_group(session.pk, version=session.version)
        await self.accept()
        if groups.is_degraded():
            await self.degraded_changed({"is_degraded": True})
        await self.catch_up()

    def size_error(self, text_data: str | None) -> str:
        return _("This is too long for one message. Attach it as a file.")

    async def check_user(self) -> None:
        user, session = await in_database(self._read_access)
        if session is None:
            await self.close(CloseCode.NOT_SIGNED_IN if user is None else CloseCode.NOT_FOUND)
            raise SocketClosed
        self.session = session

    def _read_access(self) -> tuple[User | None, Session | None]:
        user = sign_outs.read_current_user(self.sign_in)
        return user, find(user, self.view.session_id, Purpose.WRITE) if user is not None else None

    async def find_session(self, request: ActionRequest, *, scope: str = "read") -> Session:
        return self.session

    async def send_error(self, error: ActionRefused, request: ActionRequest | None) -> None:
        await self.show(fragments.notices([str(error)], self.view.reader, level="error"))

    async def send_result(self, request: ActionRequest, result: Result, session: Session) -> None:
        if isinstance(result, Session) and result.pk != self.session.pk:
            result = SendResult(go_to=result.pk)
        if not isinstance(result, SendResult):
            return
        if result.go_to:
            await self.show(fragments.render_update("go_to", session_id=result.go_to))
        if result.is_branch:
            self.view = replace(self.view, leaf=result.seq)
        words = result.words
        if result.is_branch and not words:
            words = _("The conversation continued before your message arrived. Your message is on its own branch.")
        if words or result.seq or result.is_queued:
            await self.show(fragments.notices([words] if words else [], self.view.reader))

    async def session_changed(self, message: Message) -> None:
        self.other_runs.clear()
        caught = await self.catch_up(because=message.get("id", ""))
        if caught.has_answer and not caught.outcome:
            await self.show_update("announcement", outcome="relayed")

    async def resync(self, message: Message) -> None:
        self.other_runs.clear()
        await self.catch_up(because=message.get("id", ""))

    async def degraded_changed(self, message: Message) -> None:
        await self.show(fragments.degraded(self.view.reader, is_degraded=message["is_degraded"]))

    async def sidebar_changed(self, message: Message) -> None:
        session_id, view = UUID(message["session"]), self.view
        key = ("sidebar", message.get("id"), view.reader, view.user.pk, session_id == view.session_id)
        await self.show(await run_once(key, partial(in_database, fragments.sidebar_row, session_id, view)))

    async def run_frame(self, frame: Frame) -> None:
        """One frame of a run of this session. Runs of other branches are ignored."""
        run, kind = frame["run"], frame["kind"]
        if kind != "ended" and run != self.run and (self.run or run in self.other_runs):
            return
        if run == self.run and kind in ("stored", "summarising"):
            self._delayed = self._delayed or frame["id"]
            self.side_tasks.start(self._show_delayed)
            return
        if run != self.run or kind == "ended" or self._delayed:
            await self.catch_up(because=frame["id"])
            if self.run != run:
                self.other_runs.add(run)
            if kind == "ended" and frame["leaf"] == self.view.shown and self._announced != run:
                ended = await run_once(("outcome", frame["id"]), partial(in_database, fragments.outcome_of, run))
                await self._announce(run, ended)
        if self.cursor is not None and run == self.run:
            await self._show_frame(self.cursor, frame)

    @property
    def run(self) -> str:
        """The run that the page shows, or an empty string."""
        return self.cursor.run_name if self.cursor is not None else ""

    async def _show_frame(self, cursor: PageCursor, frame: Frame) -> None:
        answer = cursor.answer
        match frame["kind"]:
            case "opened" if answer is None or answer.exchange != frame["exchange"]:
                await self.show(await self._render_answer(cursor, cursor.open_answer(frame)))
            case "retrying" if answer is not None:
                await self.show(fragments.live_retry(frame["run"], frame["error"], frame["at"], self.view.reader))
            case "pieces":
                await self._show_pieces(cursor, frame)
            case "result":
                status = {name: frame[name] for name in ("seq", "index", "status", "duration")}
                await self.show_update("call_status", **status)

    async def _render_answer(self, cursor: PageCursor, answer: AnswerCursor) -> str:
        async with answer.lock:
            cursor.show(answer)
            return fragments.live_answer(answer, self.view.reader)

    async def _announce(self, run: str, outcome: str) -> None:
        """Announce the end of a run once, whether a frame or the database reports it."""
        if self._announced != run:
            self._announced = run
            await self.show_update("announcement", outcome=outcome)

    async def _show_pieces(self, cursor: PageCursor, frame: Frame) -> None:
        changes, answer = await cursor.receive_changes(frame), cursor.answer
        if changes and answer is not None:
            await self.show("".join(fragments.live_change(answer, change, self.view.reader) for change in changes))
        elif changes is None and (answer is None or cursor.n >= frame["n"] or runs.is_local(cursor.run)):
            await self.catch_up()

    async def _show_delayed(self) -> None:
        await asyncio.sleep(ENTRY_DELAY_SECONDS)
        async with self.turn:
            if self._delayed:
                await self.fill_gap(self._delayed)

    async def catch_up(self, *, because: str = "") -> PageUpdate:
        """Show everything that is stored, and the answer that is being written.

        `because` is the id of the message that causes this: pages that show the same share one query for it.
        """
        self._delayed = ""
        before, cursor = self.run, self.cursor
        view, element = self.view, cursor.element if cursor else ""
        read = partial(in_database, partial(fragments.catch_up, view, live=element, followed=before))
        key = (because, view.session_id, view.user.pk, view.reader, view.shown, view.leaf, element, before)
        caught = await run_once(key, read) if because else await read()
        self.view = replace(self.view, shown=caught.shown, leaf=caught.leaf)
        html = caught.html
        self.cursor = None
        if caught.run:
            self.cursor = cursor if cursor and cursor.run == caught.run.pk else PageCursor(caught.run.pk)
            self.cursor.answer = None
            snapshot = await read_snapshot(caught.run.pk)
            # An answer is stored a moment before its frame `stored` is sent, and must not be shown twice.
            if snapshot and snapshot.exchange and snapshot.after >= caught.run.leaf:
                html += await self._render_answer(self.cursor, await self.cursor.resume_answer(snapshot))
                if retry := snapshot.retry:
                    html += fragments.live_retry(self.run, retry["error"], retry["at"], self.view.reader)
        await self.show(html)
        if caught.outcome:
            await self._announce(before, caught.outcome)
        return caught

    def has_gap(self) -> bool:
        return self.cursor is not None and self.cursor.has_gap

    async def fill_gap(self, because: str = "") -> None:
        try:
            await self.catch_up(because=because)
        except (DatabaseError, Session.DoesNotExist) as error:
            logger.warning("A page could not be updated and tries again: %s", type(error).__name__)

    async def show(self, html: str) -> None:
        if html:
            await self.send(text_data=clean(html))

    async def show_update(self, kind: str, **context: Any) -> None:
        with self.view.reader.reading():
            html = fragments.render_update(kind, **context)
        await self.show(html)


async def send(page: ChatConsumer, session: Session, request: ActionRequest) -> SendResult:
    """What the page showed is in the form: the last entry, the run, and the version of the session.

    A second message with the same version was sent before the page showed the first: it continues that one.
    """
    after, run = request.number("after"), request.optional_id("run")
    shown = (after, request.optional_number("version"))
    if page.last_sent is not None and page.last_sent[0] == shown:
        before = page.last_sent[1]
        after, run = before.seq or after, before.run or run
    seen = ViewerPosition(after=after, run=run, on_leaf=request.optional_number("leaf") is not None)
    sent = await conversation.send(page.user, session, request.draft(), seen, client=page.client)
    if sent.seq:
        page.last_sent = (shown, sent)
    return sent


async def unqueue(page: ChatConsumer, session: Session, request: ActionRequest) -> None:
    """`id`: that message; without it all that wait."""
    await conversation.unqueue(session, queued_id=request.optional_number("id"))


async def send_queued(page: ChatConsumer, session: Session, request: ActionRequest) -> None:
    await conversation.send_queued(page.user, session, after=page.view.shown)


async def continue_(page: ChatConsumer, session: Session, request: ActionRequest) -> SendResult:
    leaf, model = page.view.leaf, request.text("model")
    return await conversation.continue_(page.user, session, leaf=leaf, model=model, client=page.client)


async def switch(page: ChatConsumer, session: Session, request: ActionRequest) -> None:
    await conversation.switch(page.user, session, leaf=request.number("leaf"))
    page.view = replace(page.view, leaf=None)


ChatConsumer.actions = ACTIONS | {
    "send": Action(send),
    "unqueue": Action(unqueue),
    "send_queued": Action(send_queued),
    "switch": Action(switch),
    "continue": Action(continue_),
    "ping": Action(lambda page, session, request: page.show(fragments.render_update("pong"))),
}
