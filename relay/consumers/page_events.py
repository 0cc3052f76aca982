"""What a page is shown of what happens in its session: entries as they are stored, an answer while it is written.

A page that connects, or has missed something, is brought up to date from the database (`catch_up`); an answer on its
way is shown from numbered frames.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from history.db.packing import clean
from history.models import Session
from relay.consumers.sockets import GAP_SECONDS, LOOK_SECONDS, PersonSocket, asked_once
from relay.consumers.watching import Watch
from relay.conversation.drafts import Sent
from relay.live import runs
from relay.live.frames import LiveAnswer
from relay.pages.chat import fragments
from relay.pages.chat.fragments import PageUpdate, View
from relay.runtime.async_db import in_database

logger = logging.getLogger(__name__)

# How long an entry of a run waits for what follows it: mostly the run's end, which is shown together with it.
SOON_SECONDS = 0.3


class PageEvents(PersonSocket):
    """A page that shows `view` of a `session`, and watches the answer that is being written there."""

    view: View
    session: Session
    watch: Watch
    client: dict[str, Any]
    # The last message of this page, and what the page showed when it was sent: its last entry and session version.
    last_sent: tuple[tuple[int, int | None], Sent] | None = None
    _announced = ""
    _soon: asyncio.Task[None] | None = None

    async def gone(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        await super().gone()

    async def session_changed(self, message: dict[str, Any]) -> None:
        self.watch.others.clear()
        caught = await self.catch_up(because=message.get("id", ""))
        if caught.has_answer and not caught.outcome:
            await self.show(fragments.announcement("relayed", self.view.reader))

    async def resync(self, message: dict[str, Any]) -> None:
        self.watch.others.clear()
        await self.catch_up(because=message.get("id", ""))

    async def degraded_changed(self, message: dict[str, Any]) -> None:
        await self.show(fragments.degraded(self.view.reader, is_degraded=message["is_degraded"]))

    async def rail_changed(self, message: dict[str, Any]) -> None:
        session_id, view = UUID(message["session"]), self.view
        key = ("rail", message.get("id"), view.reader, view.user.pk, session_id == view.session_id)
        await self.show(await asked_once(key, lambda: in_database(fragments.rail_row, session_id, view)))

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of this session; another branch's run is none of this page's business."""
        run, kind = frame["run"], frame["kind"]
        if kind != "ended" and not self.watch.concerns(run):
            return
        if run == self.watch.run and kind in ("stored", "summarising"):
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
            ended = await asked_once(("outcome", frame["id"]), lambda: in_database(fragments.outcome_of, run))
            await self._announce(run, ended)

    async def _show_frame(self, frame: dict[str, Any]) -> None:
        match frame["kind"]:
            case "opened" if not self.watch.shows(frame):
                await self.show(await self._live_answer(self.watch.open(frame)))
            case "retrying" if self.watch.answer is not None:
                await self.show(fragments.live_retry(frame["run"], frame["error"], frame["at"], self.view.reader))
            case "pieces":
                await self._show_pieces(frame)
            case "result":
                await self._show_result(frame)

    async def _live_answer(self, answer: LiveAnswer) -> str:
        async with self.watch.showing(answer):
            return fragments.live_answer(answer, self.view.reader)

    async def _announce(self, run: str, outcome: str) -> None:
        """Once, however we learnt of it."""
        if self._announced != run:
            self._announced = run
            await self.show(fragments.announcement(outcome, self.view.reader))

    async def _show_pieces(self, frame: dict[str, Any]) -> None:
        changes, answer = await self.watch.take(frame), self.watch.answer
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

    async def catch_up(self, *, because: str = "") -> PageUpdate:
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
            # An answer is stored a moment before the run says so, and must not stand there twice meanwhile.
            if so_far and so_far.exchange and so_far.after >= caught.run.leaf:
                html += await self._live_answer(await self.watch.resume(so_far))
                if so_far.retry:
                    html += fragments.live_retry(self.watch.run, so_far.retry.kind, so_far.retry.at, self.view.reader)
        await self.show(html)
        if caught.outcome:
            await self._announce(followed, caught.outcome)
        if caught.run is not None and not runs.is_here(caught.run.pk):
            self.start_looking(self._look)
        return caught

    async def _caught_up(self, because: str, followed: str) -> PageUpdate:
        view, live = self.view, self.watch.element

        async def ask() -> PageUpdate:
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
        if html:
            await self.send(text_data=clean(html))
