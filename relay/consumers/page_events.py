"""Updates of a chat page: entries as they are stored, and an answer while it is written.

A page that connects, or has missed frames, is brought up to date from the database (`catch_up`). An answer that is
being written is shown from numbered frames.
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
from relay.consumers.frame_cursor import PageCursor
from relay.consumers.sockets import GAP_SECONDS, POLL_SECONDS, PageSocket, run_once
from relay.conversation.drafts import SendResult
from relay.live import runs
from relay.live.live_answer import LiveAnswer
from relay.live.snapshots import read_snapshot
from relay.pages.chat import fragments
from relay.pages.chat.fragments import PageUpdate, View
from relay.runtime.async_db import in_database

logger = logging.getLogger(__name__)

# How long a stored entry waits to be shown. Mostly the end of the run follows, and both are shown in one update.
ENTRY_DELAY_SECONDS = 0.3


class PageEvents(PageSocket):
    """A page that shows `view` of a `session`. `cursor` is its position in the run that is being answered there."""

    view: View
    session: Session
    cursor: PageCursor | None = None
    client: dict[str, Any]
    # The last message of this page, and what the page showed when it was sent: its last entry and session version.
    last_sent: tuple[tuple[int, int | None], SendResult] | None = None
    _announced = ""
    _delayed: asyncio.Task[None] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.other_runs: set[str] = set()  # runs of other branches of the session

    async def release(self) -> None:
        if self._delayed is not None:
            self._delayed.cancel()
        await super().release()

    async def session_changed(self, message: dict[str, Any]) -> None:
        self.other_runs.clear()
        caught = await self.catch_up(because=message.get("id", ""))
        if caught.has_answer and not caught.outcome:
            await self.show(fragments.announcement("relayed", self.view.reader))

    async def resync(self, message: dict[str, Any]) -> None:
        self.other_runs.clear()
        await self.catch_up(because=message.get("id", ""))

    async def degraded_changed(self, message: dict[str, Any]) -> None:
        await self.show(fragments.degraded(self.view.reader, is_degraded=message["is_degraded"]))

    async def sidebar_changed(self, message: dict[str, Any]) -> None:
        session_id, view = UUID(message["session"]), self.view
        key = ("rail", message.get("id"), view.reader, view.user.pk, session_id == view.session_id)
        await self.show(await run_once(key, lambda: in_database(fragments.rail_row, session_id, view)))

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of this session. Runs of other branches are ignored."""
        run, kind = frame["run"], frame["kind"]
        if kind != "ended" and run != self.run and (self.run or run in self.other_runs):
            return
        if run == self.run and kind in ("stored", "summarising"):
            self._catch_up_delayed(because=frame["id"])
            return
        if run != self.run or kind == "ended" or self._delayed is not None:
            await self._catch_up_with(frame)
        if self.cursor is not None and run == self.run:
            await self._show_frame(self.cursor, frame)

    @property
    def run(self) -> str:
        """The run that the page shows, or an empty string."""
        return str(self.cursor.run) if self.cursor is not None else ""

    async def _catch_up_with(self, frame: dict[str, Any]) -> None:
        """For a run that the page does not show yet, or whose last entry is not shown yet."""
        run = frame["run"]
        await self.catch_up(because=frame["id"])
        if self.run != run:
            self.other_runs.add(run)
        if frame["kind"] == "ended" and frame["leaf"] == self.view.shown:
            ended = await run_once(("outcome", frame["id"]), lambda: in_database(fragments.outcome_of, run))
            await self._announce(run, ended)

    async def _show_frame(self, cursor: PageCursor, frame: dict[str, Any]) -> None:
        answer = cursor.answer
        match frame["kind"]:
            case "opened" if answer is None or answer.exchange != frame["exchange"]:
                await self.show(await self._render_answer(cursor, cursor.open_answer(frame)))
            case "retrying" if answer is not None:
                await self.show(fragments.live_retry(frame["run"], frame["error"], frame["at"], self.view.reader))
            case "pieces":
                await self._show_pieces(cursor, frame)
            case "result":
                await self._show_result(frame)

    async def _render_answer(self, cursor: PageCursor, answer: LiveAnswer) -> str:
        async with answer.lock:
            cursor.show(answer)
            return fragments.live_answer(answer, self.view.reader)

    async def _announce(self, run: str, outcome: str) -> None:
        """Announce the end of a run once, whether a frame or the database told it."""
        if self._announced != run:
            self._announced = run
            await self.show(fragments.announcement(outcome, self.view.reader))

    async def _show_pieces(self, cursor: PageCursor, frame: dict[str, Any]) -> None:
        """A gap in the frames of another process is filled by `_poll`, when what it said is in the database."""
        changes, answer = await cursor.receive_changes(frame), cursor.answer
        if changes and answer is not None:
            await self.show("".join(fragments.live_change(answer, change, self.view.reader) for change in changes))
        elif changes is None and (answer is None or cursor.n >= frame["n"] or runs.is_local(cursor.run)):
            await self.catch_up()

    async def _show_result(self, frame: dict[str, Any]) -> None:
        status = {name: frame[name] for name in ("seq", "index", "status", "duration")}
        await self.show(fragments.call_status(**status, reader=self.view.reader))

    def _catch_up_delayed(self, *, because: str) -> None:
        """The last entry of a run and its end come one after the other, and are shown in one update."""
        if self._delayed is None:
            self._delayed = asyncio.get_running_loop().create_task(self._catch_up_later(because))

    async def _catch_up_later(self, because: str) -> None:
        await asyncio.sleep(ENTRY_DELAY_SECONDS)
        async with self.turn:
            if self._delayed is not None:
                await self._catch_up_or_wait(because=because)

    async def catch_up(self, *, because: str = "") -> PageUpdate:
        """Show everything that is stored, and the answer that is being written.

        `because` is the id of the message that causes this: pages that show the same share one query for it.
        """
        self._delayed = None
        before, cursor = self.run, self.cursor
        caught = await self._read_update(because, cursor.element if cursor else "")
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
                    html += fragments.live_retry(self.run, retry.kind, retry.at, self.view.reader)
        await self.show(html)
        if caught.outcome:
            await self._announce(before, caught.outcome)
        if caught.run is not None and not runs.is_local(caught.run.pk):
            self.start_polling(self._poll)
        return caught

    async def _read_update(self, because: str, live: str) -> PageUpdate:
        view, run = self.view, self.run

        async def read() -> PageUpdate:
            return await in_database(fragments.catch_up, view, live=live, followed=run)

        key = (because, view.session_id, view.user.pk, view.reader, view.shown, view.leaf, live, run)
        return await run_once(key, read) if because else await read()

    async def _poll(self) -> None:
        """Frames of another process may be lost, so a page that shows its run reads the database."""
        while (cursor := self.cursor) is not None:
            await asyncio.sleep(GAP_SECONDS if cursor.has_gap else POLL_SECONDS)
            async with self.turn:
                cursor = self.cursor
                if cursor is not None and (cursor.has_gap or cursor.is_silent(POLL_SECONDS)):
                    await self._catch_up_or_wait()

    async def _catch_up_or_wait(self, *, because: str = "") -> None:
        try:
            await self.catch_up(because=because)
        except (DatabaseError, Session.DoesNotExist) as error:
            logger.warning("A page could not be brought up to date and tries again: %s", type(error).__name__)

    async def show(self, html: str) -> None:
        if html:
            await self.send(text_data=clean(html))
