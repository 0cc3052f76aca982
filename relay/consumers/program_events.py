"""Events of the socket for programs: frames of the runs in its open session, each once and in order."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from history.access.permissions import Purpose, find
from history.db.packing import clean
from history.models import ApiKey, Session
from relay.chat import serializers
from relay.consumers.frame_cursor import ProgramCursor
from relay.consumers.sockets import DATABASE_AWAY, GAP_SECONDS, POLL_SECONDS, Socket
from relay.live import runs
from relay.live.snapshots import local_snapshot, read_since, read_start
from relay.models import Run
from relay.runtime.async_db import in_database
from relay.runtime.locale import ViewerLocale

logger = logging.getLogger(__name__)

# Fields of frames that are internal.
INTERNAL_FIELDS = ("type", "id", "kind", "exchange")
Answer = dict[str, Any]


class ProgramEvents(Socket):
    """A program that has the session `current` open. `cursors` are its positions in running runs, `done` ended ones."""

    user: Any
    api_key: ApiKey | None
    reader: ViewerLocale
    client: dict[str, Any]
    current: UUID | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursors: dict[UUID, ProgramCursor] = {}
        self.done: set[UUID] = set()

    async def send_event(self, kind: str, **fields: Any) -> None:
        await self.send(clean(json.dumps({"type": kind, **fields}, ensure_ascii=False)))

    async def can_read_session(self) -> bool:
        """Whether the client may still read the open session."""
        return True

    async def note_ended_runs(self, session: Session) -> None:
        """Late frames of runs that ended before the session was opened are not sent."""
        self.done |= await in_database(Run.objects.recently_ended_in, session.pk)

    async def follow_runs(self, session: Session) -> list[Answer]:
        """Start to follow the running runs of a session."""
        begun = [await self._start_following(run.pk) for run in await in_database(Run.objects.running_in, session.pk)]
        return [answer for answer in begun if answer]

    async def _start_following(self, run_id: UUID) -> Answer | None:
        """The partial answer of a run; frames after `n` follow as events."""
        snapshot = local_snapshot(run_id) or await in_database(read_start, run_id)
        if snapshot is None:
            self.done.add(run_id)
            return None
        self.cursors[run_id] = cursor = ProgramCursor(run_id)
        pieces = cursor.start_at(snapshot)
        self._poll_if_needed()
        return {"run": str(run_id), "n": cursor.n, "leaf": cursor.leaf, "pieces": pieces}

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of the open session. A frame after a gap waits until the gap is filled."""
        run_id = UUID(frame["run"])
        if run_id in self.done or not await self.can_read_session():
            return
        cursor = self.cursors.setdefault(run_id, ProgramCursor(run_id))
        await self._send_frames(cursor, cursor.receive(frame))
        if cursor.has_gap and runs.is_local(run_id):
            await self._catch_up(cursor)
        self._poll_if_needed()

    async def _send_frames(self, cursor: ProgramCursor, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            kind = frame["kind"]
            hidden = INTERNAL_FIELDS if kind == "opened" else (*INTERNAL_FIELDS, "after")
            fields = {name: value for name, value in frame.items() if name not in hidden and value != ""}
            if kind == "stored":
                fields |= await self._read_message(frame["leaf"])
            if kind == "ended":
                self.done.add(cursor.run)
                self.cursors.pop(cursor.run, None)
            event = {**fields, "run": str(cursor.run)}
            await self.send_event(f"run.{kind}", session_id=str(self.current), **event)

    async def _read_message(self, leaf: int) -> Answer:
        """The entry itself, unless the database has gone away since it was stored."""
        try:
            return await in_database(self._message_json, leaf)
        except DATABASE_AWAY:
            return {}

    def _poll_if_needed(self) -> None:
        """Frames of another process may be lost, so their runs are read from the database."""
        if any(not runs.is_local(run_id) for run_id in self.cursors):
            self.start_polling(self._poll)

    async def _poll(self) -> None:
        while others := [cursor for cursor in self.cursors.values() if not runs.is_local(cursor.run)]:
            await asyncio.sleep(GAP_SECONDS if any(cursor.has_gap for cursor in others) else POLL_SECONDS)
            async with self.turn:
                for cursor in others:
                    # Its end may have been sent meanwhile: a run leaves its process a moment before its last frame.
                    is_open = cursor.run in self.cursors
                    if is_open and (cursor.has_gap or cursor.is_silent(POLL_SECONDS)):
                        await self._catch_up(cursor)

    async def _catch_up(self, cursor: ProgramCursor) -> None:
        """Fill a gap from this process and the database, or from the database alone."""
        try:
            if await self.can_read_session():
                # First the answer, then the entries: the entry that the answer follows is stored by then.
                local = local_snapshot(cursor.run)
                snapshot = await in_database(read_since, cursor.run, cursor.leaf, local)
                await self._send_frames(cursor, cursor.catch_up(snapshot))
        except DatabaseError as error:
            logger.warning("A run could not be read: %s", type(error).__name__)

    def _message_json(self, leaf: int) -> Answer:
        session = Session.objects.filter(pk=self.current).first() if self.current else None
        return (
            {"message": serializers.history_json(session, count=1, leaf=leaf)["messages"][-1:]}
            if session and leaf
            else {}
        )

    async def resync(self, message: dict[str, Any]) -> None:
        """Frames of other processes were missed."""
        for cursor in list(self.cursors.values()):
            await self._catch_up(cursor)
        if self.current is not None:
            await self.session_changed(message)

    async def degraded_changed(self, message: dict[str, Any]) -> None:
        await self.send_event("server.degraded", is_degraded=message["is_degraded"])

    async def session_changed(self, message: dict[str, Any]) -> None:
        if not await self.can_read_session():
            return
        session = await in_database(find, self.api_key or self.user, self.current or "", Purpose.READ)
        if session is None:
            return
        await self.send_event("session.changed", session=serializers.session_json(session))
        for run in await in_database(Run.objects.running_in, session.pk):
            if not runs.is_local(run.pk) and run.pk not in self.done:
                self.cursors.setdefault(run.pk, ProgramCursor(run.pk, leaf=run.origin))
        self._poll_if_needed()
