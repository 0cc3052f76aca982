"""The socket of a chat page. The page sends intents, the server owns the conversation and sends back HTML.

A page that connects, or has missed something, is brought up to date from the database (`catch_up`); an answer on its
way is shown from numbered frames. Nothing here waits for a model: an intent is carried out and the consumer is free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from channels.auth import get_user
from django.db import DatabaseError
from django.utils import timezone
from django.utils.translation import gettext as _

from history.bodies import clean
from history.errors import HistoryError
from history.models import Session
from history.rights import Purpose, find
from relay import broadcast, conversation, fragments, runs, words
from relay.consumers.intents import BadIntent, Intent
from relay.consumers.limits import MOST_FRAME_CHARS, Rate
from relay.consumers.sockets import Socket, asked_once
from relay.consumers.watching import Watch
from relay.conversation import Sent
from relay.database import in_database
from relay.errors import RelayError
from relay.fragments import CaughtUp, View
from relay.readers import reader_of

logger = logging.getLogger(__name__)

NOT_SIGNED_IN, NOT_FOUND = 4401, 4404
# How often a page looks for itself while an answer is written by a process that we do not hear.
LOOK_SECONDS = 1.0
# How long it waits for a frame that went missing between processes: by then what it said has been noted.
GAP_SECONDS = 0.35
# How long an entry of a run waits for what follows it: mostly the run's end, which is shown together with it.
SOON_SECONDS = 0.3


class ChatConsumer(Socket):
    view: View
    session: Session
    watch: Watch
    _announced = ""
    _soon: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        user: Any = self.scope["user"]
        session_id = self.scope["url_route"]["kwargs"]["session_id"]
        if not user.is_authenticated:
            return await self.close(NOT_SIGNED_IN)
        session = await in_database(find, user, session_id, Purpose.WRITE)
        if session is None:
            return await self.close(NOT_FOUND)
        self.session, self.rate = session, Rate()
        self.view = View(session_id=session.pk, user=user, reader=reader_of(user, self.scope), **self._asked())
        self.watch = Watch()
        self.client = client_of(self.scope)
        await self.enter(session.pk, version=session.version)
        await self.channel_layer.group_add(broadcast.person_group(user.pk), self.channel_name)
        await self.accept()
        await self.catch_up()
        return None

    def _asked(self) -> dict[str, Any]:
        asked = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        shown, leaf = (asked.get(name, [""])[0] for name in ("shown", "leaf"))
        return {"shown": _number(shown) or 0, "leaf": _number(leaf)}

    async def gone(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        if hasattr(self, "view"):
            await self.channel_layer.group_discard(broadcast.person_group(self.view.user.pk), self.channel_name)
        await super().gone()

    # What the page wants.

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            intent = self._read(text_data)
            if intent is None:
                return
            await self._check_who()
            with self.view.reader.reading():
                sent = await VERBS[intent.type](self, intent)
            await self._show(sent)
        except BadIntent as error:
            await self.complain(str(error))
        except (RelayError, HistoryError) as error:
            with self.view.reader.reading():
                await self.complain(words.of_error(error))
        except Session.DoesNotExist:
            pass  # told by the code that it was closed with
        except Exception:
            logger.exception("An intent failed.")
            with self.view.reader.reading():
                await self.complain(_("Something went wrong here. It is in the log."))

    def _read(self, text_data: str | None) -> Intent | None:
        with self.view.reader.reading():
            if text_data is None or len(text_data) > MOST_FRAME_CHARS:
                raise BadIntent(_("This is more than one message can hold. Attach it as a file instead."))
            intent = Intent.read(text_data, verbs=VERBS.keys())
            if intent.type != "ping" and not self.rate.allows_one_more():
                raise BadIntent(_("That was too fast. Wait a few seconds and try again."))
            return intent

    async def _check_who(self) -> None:
        """Whoever has signed out or was shut out meanwhile has no say any more."""
        user = await get_user(self.scope)
        session = await in_database(find, user, self.view.session_id, Purpose.WRITE)
        if session is None:
            await self.close(NOT_SIGNED_IN if not user.is_authenticated else NOT_FOUND)
            raise Session.DoesNotExist
        self.session = session

    async def _show(self, sent: Sent | None) -> None:
        if sent is None:
            return
        if sent.go_to:
            await self.show(fragments.way_to(sent.go_to))
        if sent.is_branch:
            self.view = replace(self.view, leaf=sent.seq)
        if sent.words or sent.is_branch:
            with self.view.reader.reading():
                told = sent.words or _("Somebody went on from here before you. Your message is on a branch of its own.")
            await self.show(fragments.notices([told], self.view.reader))
        elif sent.seq or sent.is_queued:
            await self.show(fragments.notices([], self.view.reader))

    async def complain(self, text: str) -> None:
        await self.show(fragments.notices([text], self.view.reader, level="error"))

    async def _send(self, intent: Intent) -> Sent:
        return await conversation.send(
            self.view.user,
            self.session,
            draft=intent.draft(),
            after=intent.number("after"),
            on_leaf=intent.optional_number("leaf") is not None,
            client=self.client,
        )

    async def _stop(self, intent: Intent) -> None:
        await conversation.stop(self.session, run=intent.optional_id("run"))

    async def _edit(self, intent: Intent) -> Sent:
        return await conversation.edit(
            self.view.user, self.session, seq=intent.number("seq"), draft=intent.draft(), client=self.client
        )

    async def _regenerate(self, intent: Intent) -> Sent:
        model = intent.text("model")
        return await conversation.regenerate(
            self.view.user, self.session, seq=intent.number("seq"), model=model, client=self.client
        )

    async def _continue(self, intent: Intent) -> Sent:
        return await conversation.continue_(
            self.view.user, self.session, leaf=self.view.leaf, model=intent.text("model"), client=self.client
        )

    async def _answer(self, intent: Intent) -> Sent:
        return await conversation.answer(
            self.view.user,
            self.session,
            seq=intent.number("seq"),
            call_id=intent.text("call_id"),
            text=intent.text("text"),
            client=self.client,
        )

    async def _unqueue(self, intent: Intent) -> None:
        await conversation.unqueue(self.session, queued_id=intent.number("id"))

    async def _send_queued(self, intent: Intent) -> None:
        await conversation.send_queued(self.view.user.pk, self.session.pk, after=self.view.shown)

    async def _rollback(self, intent: Intent) -> None:
        await conversation.rollback(self.view.user, self.session, to=intent.number("to"))

    async def _switch(self, intent: Intent) -> None:
        await conversation.switch(self.view.user, self.session, leaf=intent.number("leaf"))
        self.view = replace(self.view, leaf=None)

    async def _fork(self, intent: Intent) -> Sent:
        copy = await conversation.fork(self.view.user, self.session, at=intent.optional_number("seq"))
        return Sent(go_to=copy.pk)

    async def _ping(self, intent: Intent) -> None:
        await self.show(fragments.pong())

    # What happens in the session.

    async def session_changed(self, message: dict[str, Any]) -> None:
        self.watch.others.clear()
        await self.catch_up(because=message.get("id", ""))

    async def rail_changed(self, message: dict[str, Any]) -> None:
        session_id, view = UUID(message["session"]), self.view
        key = ("rail", message.get("id"), view.reader, view.user.pk, session_id == view.session_id)
        await self.show(await asked_once(key, lambda: in_database(fragments.rail_row, session_id, view)))

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of this session; another branch's run is none of this page's business."""
        run, kind = frame["run"], frame["kind"]
        if kind != "ended" and not self.watch.concerns(run):
            return
        if run == self.watch.run and kind == "stored":
            self._catch_up_soon(because=frame["id"])
            return
        if run != self.watch.run or kind == "ended" or self._soon is not None:
            await self._catch_up_with(frame)
        if run == self.watch.run:
            await self._show_frame(frame)

    async def _catch_up_with(self, frame: dict[str, Any]) -> None:
        """A run that we do not know yet, or one whose last entry we have put off showing."""
        run = frame["run"]
        await self.catch_up(because=frame["id"])
        if self.watch.run != run:
            self.watch.others.add(run)
        if frame["kind"] == "ended" and frame["leaf"] == self.view.shown:
            await self._announce(run, frame["outcome"])

    async def _show_frame(self, frame: dict[str, Any]) -> None:
        match frame["kind"]:
            case "opened" if not self.watch.shows(frame):
                await self.show(fragments.live_answer(self.watch.open(frame), self.view.reader))
            case "pieces":
                await self._show_pieces(frame)
            case "result":
                await self._show_result(frame)

    async def _announce(self, run: str, outcome: str) -> None:
        """Once, however we learnt of it."""
        if self._announced != run:
            self._announced = run
            await self.show(fragments.announcement(outcome, self.view.reader))

    async def _show_pieces(self, frame: dict[str, Any]) -> None:
        changes, answer = self.watch.take(frame), self.watch.answer
        if changes and answer is not None:
            await self.show("".join(fragments.live_change(answer, change, self.view.reader) for change in changes))
        elif changes is None and (answer is None or runs.is_here(UUID(frame["run"]))):
            await self.catch_up()

    async def _show_result(self, frame: dict[str, Any]) -> None:
        told = {name: frame[name] for name in ("seq", "index", "status", "duration")}
        await self.show(fragments.call_status(**told, reader=self.view.reader))

    def _catch_up_soon(self, *, because: str) -> None:
        """The last entry of a run and its end come one after the other, and are shown in one step."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().create_task(self._catch_up_later(because))

    async def _catch_up_later(self, because: str) -> None:
        await asyncio.sleep(SOON_SECONDS)
        async with self.turn:
            if self._soon is not None:
                await self._catch_up_or_wait(because=because)

    async def catch_up(self, *, because: str = "") -> None:
        """Show everything that is stored, and the answer that is on its way as far as it has come.

        `because` names the message that makes us look; pages that show the same and were told the same share the look.
        """
        self._soon = None
        followed = self.watch.run
        caught = await self._caught_up(because, followed)
        self.view = replace(self.view, shown=caught.shown, leaf=caught.leaf)
        html = caught.html
        self.watch.follow(str(caught.run.pk) if caught.run else "")
        if caught.run:
            so_far = await runs.so_far(caught.run.pk)
            if so_far and so_far.exchange:
                html += fragments.live_answer(self.watch.resume(so_far), self.view.reader)
        await self.show(html)
        if caught.outcome:
            await self._announce(followed, caught.outcome)
        if caught.run is not None and not runs.is_here(caught.run.pk):
            self.start_looking(self._look)

    async def _caught_up(self, because: str, followed: str) -> CaughtUp:
        view, live = self.view, self.watch.element

        async def ask() -> CaughtUp:
            return await in_database(fragments.catch_up, view, live=live, followed=followed)

        key = (because, view.session_id, view.user.pk, view.reader, view.shown, view.leaf, live, followed)
        return await asked_once(key, ask) if because else await ask()

    async def _look(self) -> None:
        """Where the run is another process's, frames may never reach us."""
        while self.watch.run:
            await asyncio.sleep(GAP_SECONDS if self.watch.has_gap else LOOK_SECONDS)
            async with self.turn:
                if self.watch.run and (self.watch.has_gap or self.watch.has_been_silent(LOOK_SECONDS)):
                    await self._catch_up_or_wait()

    async def _catch_up_or_wait(self, *, because: str = "") -> None:
        try:
            await self.catch_up(because=because)
        except (DatabaseError, Session.DoesNotExist) as error:
            logger.warning("A page could not be brought up to date and tries again: %s", type(error).__name__)

    async def show(self, html: str) -> None:
        """A socket that is gone is no error: what was meant for it is in the database."""
        if not html:
            return
        try:
            await self.send(text_data=clean(html))
        except (RuntimeError, ConnectionError, OSError) as error:
            logger.debug("A page went away while it was sent something: %s", error)


Verb = Callable[[ChatConsumer, Intent], Awaitable[Sent | None]]
VERBS: dict[str, Verb] = {
    "send": ChatConsumer._send,
    "stop": ChatConsumer._stop,
    "edit": ChatConsumer._edit,
    "regenerate": ChatConsumer._regenerate,
    "continue": ChatConsumer._continue,
    "answer": ChatConsumer._answer,
    "unqueue": ChatConsumer._unqueue,
    "send_queued": ChatConsumer._send_queued,
    "rollback": ChatConsumer._rollback,
    "switch": ChatConsumer._switch,
    "fork": ChatConsumer._fork,
    "ping": ChatConsumer._ping,
}


def client_of(scope: Any) -> dict[str, Any]:
    """Who is connected from where, since when: kept with each call that is made for them."""
    peer = scope.get("client") or ("", 0)
    return {"address": str(peer[0]), "connected_at": timezone.now().isoformat()}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
