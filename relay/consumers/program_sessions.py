"""The sessions of a program: which it may see and change, which is open, and how a new one begins."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from history.access.key_cache import has_scope
from history.access.permissions import Purpose, find, sessions_for
from history.access.reasons import find_opened
from history.models import Session
from history.record import recorder
from relay.agents.settings import pick_agent
from relay.consumers.intents import ActionRequest
from relay.consumers.program_events import ProgramEvents
from relay.runtime.async_db import in_database


class ActionRefused(Exception):
    """`code` is for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class ProgramSessions(ProgramEvents):
    """`fresh` is the id of the session that the next message without an open session creates. It is used once."""

    fresh: UUID

    def mine(self) -> QuerySet[Session]:
        """What this door shows: the person's own conversations, or those of the key."""
        seen = sessions_for(self.api_key or self.user, Purpose.LIST)
        return seen if self.api_key and has_scope(self.api_key, "admin") else seen.filter(owner=self.user)

    def require(self, scope: str) -> None:
        if self.api_key is not None and not has_scope(self.api_key, scope):
            raise ActionRefused("scope_missing", _("This key lacks the scope “%(scope)s”.") % {"scope": scope})

    async def session(self, intent: ActionRequest, *, scope: str = "read") -> Session:
        self.require(scope)
        name = intent.text("session") or (str(self.current) if self.current else "")
        found = await in_database(self._found, name, scope, intent.text("reason")) if name else None
        if found is None:
            await self._forget_if_gone(name)
            raise ActionRefused("no_such_session", _("There is no such session."))
        return found

    async def _forget_if_gone(self, name: str) -> None:
        """A session that was deleted elsewhere is not open any more."""
        is_open = self.current is not None and name == str(self.current)
        if is_open and await in_database(find, self.api_key or self.user, name, Purpose.LIST) is None:
            await self.close_session()

    def _found(self, name: str, scope: str, reason: str = "") -> Session | None:
        """To read, for which somebody else's needs a reason, or one's own to change."""
        viewer = self.api_key or self.user
        if scope == "read":
            return find_opened(viewer, name, reason=reason)
        found = find(viewer, name, Purpose(scope))
        return found if found and found.owner_id == self.user.pk else None

    async def session_or_new(self, intent: ActionRequest) -> Session:
        if self.current is None and not intent.text("session"):
            self.require("write")
            started = await in_database(self.start, intent.text("agent"), "", self.fresh)
            self.fresh = uuid4()
            return started
        return await self.session(intent, scope="write")

    def start(self, agent: str, title: str, session_id: UUID) -> Session:
        if self.api_key is not None and self.api_key.recording not in ("full", "redacted"):
            raise ActionRefused("not_recorded", _("A conversation is kept here, and this key records none."))
        if not settings.CHAT_HISTORY_ENABLED:
            raise ActionRefused("history_off", _("History is off on this server, so the chat takes no message."))
        found = pick_agent(agent)
        started = {"id": session_id, "owner": self.user, "api_key": self.api_key, "agent": found.name}
        return recorder.start_session(**started, title=title.strip()[:200])

    async def open_session(self, session: Session) -> None:
        if self.current == session.pk:
            return
        await self.close_session()
        self.current = session.pk
        await self.open_group(session.pk, version=session.version)
        await self.note_ended_runs(session)

    async def close_session(self) -> None:
        self.stop_polling()
        await self.let_go()

    async def let_go(self) -> None:
        """Nothing of the open session is told any more; whoever looks for it finds nothing to look for."""
        self.cursors.clear()
        self.done.clear()
        session, self.current = self.current, None
        if session is not None:
            await self.close_group(session)
