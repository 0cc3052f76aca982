"""What a program is told of what happens in the session that it has open: frames of runs as events, in order."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from history.bodies import clean
from history.models import ApiKey, Session
from history.rights import Purpose, find
from relay import as_json, runs
from relay.consumers.following import Following, found
from relay.consumers.sockets import GAP_SECONDS, LOOK_SECONDS, Socket
from relay.database import in_database
from relay.models import Run
from relay.readers import Reader

logger = logging.getLogger(__name__)

# What frames carry for ourselves and a program has no use for.
SILENT = ("type", "id", "kind", "exchange")
Answer = dict[str, Any]


class ProgramEvents(Socket):
    """A program that has the session `current` open, follows its runs, and has seen those in `done` end."""

    user: Any
    api_key: ApiKey | None
    reader: Reader
    client: dict[str, Any]
    current: UUID | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.following: dict[UUID, Following] = {}
        self.done: set[UUID] = set()

    async def tell(self, kind: str, **what: Any) -> None:
        try:
            await self.send(clean(json.dumps({"type": kind, **what}, ensure_ascii=False)))
        except (RuntimeError, ConnectionError, OSError) as error:
            logger.debug("A program went away while it was told something: %s", error)

    async def may_be_told(self) -> bool:
        """Whether whoever opened the session may still read it; who comes in knows."""
        return True

    async def running(self, session: Session) -> list[Answer]:
        """Answers on their way, as far as they have come; frames after `n` follow as events."""
        return [await self._so_far(run) for run in await in_database(runs.running_in, session.pk)]

    async def _so_far(self, run: Run) -> Answer:
        self.following[run.pk] = followed = Following(run.pk, leaf=run.leaf)
        so_far = await runs.so_far(run.pk)
        frames = followed.catch_up(so_far) if so_far else []
        self._keep_looking()
        pieces = [piece for frame in frames for piece in frame["pieces"]]
        return {"run": str(run.pk), "n": followed.n, "pieces": pieces}

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of the open session. What cannot be told yet, because something is missing, waits."""
        run_id = UUID(frame["run"])
        if run_id in self.done or not await self.may_be_told():
            return
        followed = self.following.setdefault(run_id, Following(run_id))
        await self._tell_frames(followed, followed.take(frame))
        if followed.has_gap and (here := runs.so_far_here(run_id)):
            await self._tell_frames(followed, followed.catch_up(here))
        self._keep_looking()

    async def _tell_frames(self, followed: Following, frames: list[dict[str, Any]]) -> None:
        for frame in frames:
            told = {name: value for name, value in frame.items() if name not in SILENT and value != ""}
            if frame["kind"] == "stored":
                told |= await in_database(self._stored, frame["leaf"])
            if frame["kind"] == "ended":
                self.done.add(followed.run)
                self.following.pop(followed.run, None)
            what = {**told, "run": str(followed.run)}
            await self.tell(f"run.{frame['kind']}", session_id=str(self.current), **what)

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
        try:
            if await self.may_be_told():
                await self._tell_frames(followed, await in_database(found, followed))
        except DatabaseError as error:
            logger.warning("A run of another process could not be looked at: %s", type(error).__name__)

    def _stored(self, leaf: int) -> Answer:
        session = Session.objects.filter(pk=self.current).first() if self.current else None
        return (
            {"message": as_json.history_json(session, count=1, leaf=leaf)["messages"][-1:]} if session and leaf else {}
        )

    async def session_changed(self, message: dict[str, Any]) -> None:
        if not await self.may_be_told():
            return
        session = await in_database(find, self.api_key or self.user, self.current or "", Purpose.READ)
        if session is None:
            return
        await self.tell("session.changed", session=as_json.session_json(session))
        for run in await in_database(runs.running_in, session.pk):
            if not runs.is_here(run.pk) and run.pk not in self.done:
                self.following.setdefault(run.pk, Following(run.pk, leaf=run.origin))
        self._keep_looking()
