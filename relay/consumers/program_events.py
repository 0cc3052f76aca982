"""Events of a program's socket: the frames of the runs in its open session, each exactly once and in order."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from history.access.permissions import Purpose, find
from history.db.packing import clean
from history.models import ApiKey, Session
from relay.chat import serializers
from relay.consumers.following import Following, read_start, read_state
from relay.consumers.sockets import DATABASE_AWAY, GAP_SECONDS, LOOK_SECONDS, Socket
from relay.live import runs
from relay.runtime.async_db import in_database
from relay.runtime.locale import ViewerLocale

logger = logging.getLogger(__name__)

# What frames carry for ourselves and a program has no use for.
SILENT = ("type", "id", "kind", "exchange")
Answer = dict[str, Any]


class ProgramEvents(Socket):
    """A program that has the session `current` open, follows its runs, and has seen those in `done` end."""

    user: Any
    api_key: ApiKey | None
    reader: ViewerLocale
    client: dict[str, Any]
    current: UUID | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.following: dict[UUID, Following] = {}
        self.done: set[UUID] = set()

    async def tell(self, kind: str, **what: Any) -> None:
        await self.send(clean(json.dumps({"type": kind, **what}, ensure_ascii=False)))

    async def may_be_told(self) -> bool:
        """Whether whoever opened the session may still read it; who comes in knows."""
        return True

    async def note_ended_runs(self, session: Session) -> None:
        """What has ended before a session was opened is in the record: late frames of it are not sent."""
        self.done |= await in_database(runs.ended_in, session.pk)

    async def running(self, session: Session) -> list[Answer]:
        """Begin to follow the runs of a session."""
        begun = [await self._start_following(run.pk) for run in await in_database(runs.running_in, session.pk)]
        return [answer for answer in begun if answer]

    async def _start_following(self, run_id: UUID) -> Answer | None:
        """The answer of a run as far as it has come; frames after `n` follow as events."""
        so_far = runs.so_far_here(run_id) or await in_database(read_start, run_id)
        if so_far is None:
            self.done.add(run_id)
            return None
        self.following[run_id] = followed = Following(run_id)
        pieces = followed.start_at(so_far)
        self._keep_looking()
        return {"run": str(run_id), "n": followed.n, "leaf": followed.leaf, "pieces": pieces}

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of the open session. A frame after a gap waits until the gap is filled."""
        run_id = UUID(frame["run"])
        if run_id in self.done or not await self.may_be_told():
            return
        followed = self.following.setdefault(run_id, Following(run_id))
        await self._tell_frames(followed, followed.take(frame))
        if followed.has_gap and runs.is_here(run_id):
            await self._tell_found(followed)
        self._keep_looking()

    async def _tell_frames(self, followed: Following, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            kind = frame["kind"]
            hidden = SILENT if kind == "opened" else (*SILENT, "after")
            told = {name: value for name, value in frame.items() if name not in hidden and value != ""}
            if kind == "stored":
                told |= await self._stored_message(frame["leaf"])
            if kind == "ended":
                self.done.add(followed.run)
                self.following.pop(followed.run, None)
            what = {**told, "run": str(followed.run)}
            await self.tell(f"run.{kind}", session_id=str(self.current), **what)

    async def _stored_message(self, leaf: int) -> Answer:
        """The entry itself, unless the database has gone away since it was stored."""
        try:
            return await in_database(self._stored, leaf)
        except DATABASE_AWAY:
            return {}

    def _keep_looking(self) -> None:
        """Frames of another process may never reach us: then look for ourselves."""
        if any(not runs.is_here(run_id) for run_id in self.following):
            self.start_looking(self._look)

    async def _look(self) -> None:
        while elsewhere := [one for one in self.following.values() if not runs.is_here(one.run)]:
            await asyncio.sleep(GAP_SECONDS if any(one.has_gap for one in elsewhere) else LOOK_SECONDS)
            async with self.turn:
                for followed in elsewhere:
                    # Its end may have been told meanwhile: a run is gone from here a moment before it says so.
                    is_told = followed.run not in self.following
                    is_silent = time.monotonic() - followed.heard_at >= LOOK_SECONDS
                    if not is_told and (followed.has_gap or is_silent):
                        await self._tell_found(followed)

    async def _tell_found(self, followed: Following) -> None:
        """Fill a gap: from this process and the database, or from the database alone."""
        try:
            if await self.may_be_told():
                # First the answer, then the entries: what it follows is stored by then.
                here = runs.so_far_here(followed.run)
                state = await in_database(read_state, followed.run, followed.leaf, here)
                await self._tell_frames(followed, followed.catch_up(state))
        except DatabaseError as error:
            logger.warning("A run could not be read: %s", type(error).__name__)

    def _stored(self, leaf: int) -> Answer:
        session = Session.objects.filter(pk=self.current).first() if self.current else None
        return (
            {"message": serializers.history_json(session, count=1, leaf=leaf)["messages"][-1:]}
            if session and leaf
            else {}
        )

    async def resync(self, message: dict[str, Any]) -> None:
        """Frames of other processes were missed."""
        for followed in list(self.following.values()):
            await self._tell_found(followed)
        if self.current is not None:
            await self.session_changed(message)

    async def degraded_changed(self, message: dict[str, Any]) -> None:
        await self.tell("server.degraded", is_degraded=message["is_degraded"])

    async def session_changed(self, message: dict[str, Any]) -> None:
        if not await self.may_be_told():
            return
        session = await in_database(find, self.api_key or self.user, self.current or "", Purpose.READ)
        if session is None:
            return
        await self.tell("session.changed", session=serializers.session_json(session))
        for run in await in_database(runs.running_in, session.pk):
            if not runs.is_here(run.pk) and run.pk not in self.done:
                self.following.setdefault(run.pk, Following(run.pk, leaf=run.origin))
        self._keep_looking()
