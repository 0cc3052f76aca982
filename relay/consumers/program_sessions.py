"""The sessions of a program: which it may see and change, and the events of the one that it has open."""

import json
import logging
import time
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from history.access import keys
from history.access.key_cache import ApiKeyError, has_scope
from history.access.permissions import Purpose, find, sessions_for
from history.access.reasons import find_opened
from history.db.packing import clean
from history.errors import HistoryError
from history.models import ApiKey, Session
from history.record import recorder
from history.transcripts import serializers
from relay.agents.settings import pick_agent
from relay.consumers.actions import ActionSocket
from relay.consumers.authentication import read_api_key
from relay.consumers.base import DATABASE_AWAY, ActionRefused, ActionRequest, CloseCode, refusal_of
from relay.errors import Unavailable
from relay.live import runs, sign_outs
from relay.live.frames import Frame, ProgramCursor
from relay.live.run_task import local_snapshot, read_since, read_snapshot
from relay.models import Run
from relay.runtime.async_db import in_database
from relay.runtime.memory_layer import Message

logger = logging.getLogger(__name__)

INTERNAL_FIELDS = ("type", "id", "admission", "kind", "exchange")  # fields of frames that are internal
# How often an open session is checked: whether it may still be read.
CHECK_SECONDS = 1.0
Answer = dict[str, Any]


class ProgramSessions(ActionSocket):
    """A program that has the session `current` open. `cursors` are its positions in running runs, `done` ended ones."""

    api_key: ApiKey | None
    cursors: dict[UUID, ProgramCursor]
    done: set[UUID]
    current: UUID | None = None
    checked_at = 0.0  # when it was last checked whether the open session may still be read

    async def can_read_session(self) -> bool:
        """Checked once a second: a key is revoked, a permission is taken away, the hour of a reason is over."""
        if self.current is None or time.monotonic() - self.checked_at < CHECK_SECONDS:
            return self.current is not None
        self.checked_at = time.monotonic()
        try:
            await self.check_user()
            if await in_database(find_opened, self.api_key or self.user, self.current) is not None:
                return True
            problem = ActionRefused("no_such_session", _("There is no such session."))
        except (ActionRefused, HistoryError) as error:
            problem = refusal_of(error)
        except (*DATABASE_AWAY, Unavailable) as error:
            logger.warning("The permission of a program could not be checked: %s", type(error).__name__)
            return True
        await self.close_session()
        await self.send_error(problem, None)
        return False

    async def send_error(self, error: ActionRefused, request: ActionRequest | None) -> None:
        retry = {} if error.retry_after is None else {"retry_after": error.retry_after}
        fields = {"id": id_of(request), "code": error.code, "message": str(error)}
        await self.send_event("error", **fields, **retry)

    async def check_user(self) -> None:
        if self.api_key is not None:
            try:
                self.api_key = await in_database(keys.authenticate, read_api_key(self.scope), scope="read")
            except ApiKeyError as error:
                if error.retry_helps:
                    raise Unavailable from error
                await self.close(CloseCode.NOT_SIGNED_IN)
                raise ActionRefused("not_signed_in", str(error)) from error
            return
        user = await in_database(sign_outs.read_current_user, sign_outs.sign_in_of(self.user, self.scope))
        if user is None:
            await self.close(CloseCode.NOT_SIGNED_IN)
            raise ActionRefused("not_signed_in", _("You are signed out."))
        self.user = user  # with the permissions of this moment

    def require_scope(self, scope: str) -> None:
        if self.api_key is not None and not has_scope(self.api_key, scope):
            raise ActionRefused("scope_missing", _("This key lacks the scope “%(scope)s”.") % {"scope": scope})

    def visible_sessions(self) -> QuerySet[Session]:
        """The user's own conversations, or those of the key."""
        visible = sessions_for(self.api_key or self.user, Purpose.LIST)
        return visible if self.api_key and has_scope(self.api_key, "admin") else visible.filter(owner=self.user)

    async def find_session(self, request: ActionRequest, *, scope: str = "read") -> Session:
        self.require_scope(scope)
        name = request.text("session") or (str(self.current) if self.current else "")
        found = await in_database(self._find, name, scope, request.text("reason")) if name else None
        if found is None:
            is_open = self.current is not None and name == str(self.current)
            if is_open and await in_database(find, self.api_key or self.user, name, Purpose.LIST) is None:
                await self.close_session()
            raise ActionRefused("no_such_session", _("There is no such session."))
        return found

    def _find(self, name: str, scope: str, reason: str) -> Session | None:
        """To read, another user's session too if there is a reason; to change, only one's own."""
        viewer = self.api_key or self.user
        if scope == "read":
            return find_opened(viewer, name, reason=reason)
        found = find(viewer, name, Purpose(scope))
        return found if found and found.owner_id == self.user.pk else None

    def create_session(self, agent: str, title: str, session_id: UUID) -> Session:
        if self.api_key is not None and self.api_key.recording not in ("full", "redacted"):
            raise ActionRefused("not_recorded", _("This key does not record conversations, so it cannot chat."))
        if not settings.CHAT_HISTORY_ENABLED:
            raise ActionRefused("history_off", _("History is off on this server. The chat accepts no messages."))
        name = pick_agent(agent).name
        return recorder.start_session(
            id=session_id, owner=self.user, api_key=self.api_key, agent=name, title=title.strip()[:200]
        )

    async def open_session(self, session: Session) -> None:
        if self.current == session.pk:
            return
        await self.close_session()
        self.current = session.pk
        await self.open_group(session.pk, version=session.version)
        # Late frames of runs that ended before the session was opened are not sent.
        self.done |= await in_database(Run.objects.recently_ended_in, session.pk)

    async def close_session(self) -> None:
        self.cursors.clear()
        self.done.clear()
        session, self.current = self.current, None
        if session is not None:
            await self.close_group(session)

    async def send_event(self, kind: str, **fields: Any) -> None:
        await self.send(clean(json.dumps({"type": kind, **fields}, ensure_ascii=False)))

    async def follow_runs(self, session: Session) -> list[Answer]:
        """Start to follow the running runs of a session: their partial answers. Frames after `n` follow as events."""
        answers: list[Answer] = []
        for run in await in_database(Run.objects.running_in, session.pk):
            if (snapshot := await read_snapshot(run.pk)) is None:
                self.done.add(run.pk)
                continue
            self.cursors[run.pk] = cursor = ProgramCursor(run.pk)
            pieces = cursor.start_at(snapshot)
            answers.append({"run": str(run.pk), "n": cursor.n, "leaf": cursor.leaf, "pieces": pieces})
        return answers

    async def run_frame(self, frame: Frame) -> None:
        """One frame of a run of the open session. A frame after a gap waits until the gap is filled."""
        run_id = UUID(frame["run"])
        if run_id in self.done or not await self.can_read_session():
            return
        cursor = self.cursors.setdefault(run_id, ProgramCursor(run_id))
        await self._send_frames(cursor, cursor.receive(frame))
        if cursor.has_gap and runs.is_local(run_id):
            await self._catch_up(cursor)

    async def _send_frames(self, cursor: ProgramCursor, frames: list[Frame]) -> None:
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

        def read() -> Answer:
            session = Session.objects.filter(pk=self.current).first() if self.current and leaf else None
            messages = serializers.history_json(session, count=1, leaf=leaf)["messages"] if session else None
            return {} if messages is None else {"message": messages[-1:]}

        try:
            return await in_database(read)
        except DATABASE_AWAY:
            return {}

    def has_gap(self) -> bool:
        return any(cursor.has_gap for cursor in self.cursors.values())

    async def fill_gap(self) -> None:
        for cursor in list(self.cursors.values()):
            if cursor.has_gap:
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

    async def resync(self, message: Message) -> None:
        for cursor in list(self.cursors.values()):
            await self._catch_up(cursor)
        if self.current is not None:
            await self.session_changed(message)

    async def degraded_changed(self, message: Message) -> None:
        await self.send_event("server.degraded", is_degraded=message["is_degraded"])

    async def session_changed(self, message: Message) -> None:
        if not await self.can_read_session():
            return
        session = await in_database(find, self.api_key or self.user, self.current or "", Purpose.READ)
        if session is None:
            return
        await self.send_event("session.changed", session=serializers.session_json(session))
        # The process of a lost run has sent no last frame.
        others = [run_id for run_id in self.cursors if not runs.is_local(run_id)]
        for run_id in await in_database(Run.objects.lost_among, others):
            await self._catch_up(self.cursors[run_id])


def id_of(request: ActionRequest | None) -> str:
    return str(request.fields.get("id", ""))[:100] if request else ""
