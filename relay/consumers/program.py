"""The socket for programs: JSON in, JSON out, one engine with the pages. docs/websocket.md lists every word.

A command is an object with a `type`, and an `id` that its answer repeats. What happens in the open session comes as
events of its own. A command that makes no sense gets an error event, and the socket lives on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

from channels.auth import get_user
from django.conf import settings
from django.db import DatabaseError
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from history import keys, recorder
from history.bodies import clean
from history.errors import HistoryError
from history.keyring import ApiKeyError, holds
from history.listing import Cursor, list_sessions
from history.models import ApiKey, Session
from history.opening import find_opened
from history.rights import Purpose, find, sessions_for
from relay import as_json, conversation, runs, words
from relay.agent.settings import find_agent
from relay.consumers.doors import key_in
from relay.consumers.following import Following, found
from relay.consumers.intents import BadIntent, Intent
from relay.consumers.limits import MOST_FRAME_CHARS, Rate
from relay.consumers.sockets import GAP_SECONDS, LOOK_SECONDS, NOT_SIGNED_IN, Socket, client_of
from relay.conversation import Sent
from relay.database import in_database
from relay.errors import RelayError
from relay.models import Run
from relay.plain import plain_history
from relay.readers import Reader, reader_of

logger = logging.getLogger(__name__)

PROTOCOL = 1
# What frames carry for ourselves and a program has no use for.
SILENT = ("type", "id", "kind", "exchange")
Answer = dict[str, Any]


class Refused(Exception):
    """`code` is for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class ProgramConsumer(Socket):
    user: Any
    api_key: ApiKey | None
    reader: Reader
    current: UUID | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.following: dict[UUID, Following] = {}
        self.done: set[UUID] = set()

    async def connect(self) -> None:
        scope: dict[str, Any] = dict(self.scope)
        self.user, self.api_key = scope.get("user"), scope.get("api_key")
        if self.user is None or not self.user.is_authenticated:
            return await self.close(NOT_SIGNED_IN)
        self.rate, self.client = Rate(), client_of(self.scope)
        self.reader = reader_of(self.user, self.scope)
        # No session exists before the first message; this is the name that it will have.
        self.fresh = uuid4()
        await self.accept()
        await self.tell(
            "welcome", protocol=PROTOCOL, user=self.user.get_username(), session_id=str(self.fresh), **self.client
        )
        return None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        asked = ""
        try:
            with self.reader.reading():
                intent = self._read(text_data)
                asked = str(intent.fields.get("id", ""))[:100]
                if not self.rate.allows_one_more():
                    raise Refused("too_fast", _("That was too fast. Wait a few seconds and try again."))
                await self._check_who()
                answer = await COMMANDS[intent.type](self, intent)
            await self.tell(intent.type, id=asked, **answer)
        except BadIntent as error:
            await self.tell("error", id=asked, code="bad_command", message=str(error))
        except Refused as error:
            await self.tell("error", id=asked, code=error.code, message=str(error))
        except (RelayError, HistoryError) as error:
            with self.reader.reading():
                text = words.of_error(error)
            await self.tell("error", id=asked, code=_code(error), message=text)
        except Exception:
            logger.exception("A command failed.")
            await self.tell(
                "error", id=asked, code="internal", message=_("Something went wrong here. It is in the log.")
            )

    def _read(self, text_data: str | None) -> Intent:
        if text_data is None:
            raise BadIntent(_("Send text frames with JSON."))
        if len(text_data) > MOST_FRAME_CHARS:
            raise BadIntent(_("A frame may have %(most)d characters.") % {"most": MOST_FRAME_CHARS})
        return Intent.read(text_data, verbs=COMMANDS.keys())

    async def _check_who(self) -> None:
        """A key that was revoked, or somebody who signed out, is done here."""
        if self.api_key is not None:
            try:
                self.api_key = await in_database(keys.authenticate, key_in(self.scope), scope="read")
            except ApiKeyError as error:
                await self.close(NOT_SIGNED_IN)
                raise Refused("not_signed_in", str(error)) from error
            return
        if not (await get_user(self.scope)).is_authenticated:
            await self.close(NOT_SIGNED_IN)
            raise Refused("not_signed_in", _("You are signed out."))

    async def tell(self, kind: str, **what: Any) -> None:
        try:
            await self.send(clean(json.dumps({"type": kind, **what}, ensure_ascii=False)))
        except (RuntimeError, ConnectionError, OSError) as error:
            logger.debug("A program went away while it was told something: %s", error)

    # Commands.

    async def _create(self, intent: Intent) -> Answer:
        self._require("write")
        session = await in_database(self._start, intent.text("agent"), intent.text("title"), uuid4())
        await self._open_session(session)
        return {"session": as_json.session_json(session)}

    async def _list(self, intent: Intent) -> Answer:
        before = intent.text("cursor")
        try:
            cursor = Cursor.read(before) if before else None
        except ValueError:
            raise BadIntent(_("“%(name)s” is not one that a list has given out.") % {"name": "cursor"}) from None
        count = min(max(1, intent.optional_number("count") or 20), 100)
        page = await in_database(lambda: list_sessions(self._mine(), before=cursor, limit=count))
        told = [as_json.session_json(session) for session in page.sessions]
        return {"sessions": told, "cursor": str(page.next_before) if page.next_before else None}

    async def _open(self, intent: Intent) -> Answer:
        """Go to another session. Where that is not possible, we stay where we were, and say so."""
        session = await self._session(intent)
        await self._open_session(session)
        running = await self._running(session)
        title = session.title or _("Untitled")
        told = {"session": as_json.session_json(session), "text": _("Switched to session: %(name)s") % {"name": title}}
        return told | {"running": running}

    async def _send(self, intent: Intent) -> Answer:
        session = await self._session_or_new(intent)
        await self._open_session(session)
        after = intent.optional_number("after")
        seen = await in_database(lambda: Session.objects.get(pk=session.pk).head) if after is None else after
        on_leaf = bool(intent.fields.get("on_leaf"))
        return _sent(
            session,
            await conversation.send(
                self.user, session, draft=intent.draft(), after=seen, on_leaf=on_leaf, client=self.client
            ),
        )

    async def _edit(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        seq, draft = intent.number("seq"), intent.draft()
        return _sent(session, await conversation.edit(self.user, session, seq=seq, draft=draft, client=self.client))

    async def _regenerate(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        seq, model = intent.number("seq"), intent.text("model")
        sent = await conversation.regenerate(self.user, session, seq=seq, model=model, client=self.client)
        return _sent(session, sent)

    async def _continue(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        leaf, model = intent.optional_number("leaf"), intent.text("model")
        sent = await conversation.continue_(self.user, session, leaf=leaf, model=model, client=self.client)
        return _sent(session, sent)

    async def _answer(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        told = {"seq": intent.number("seq"), "call_id": intent.text("call_id"), "text": intent.text("text")}
        return _sent(session, await conversation.answer(self.user, session, **told, client=self.client))  # type: ignore[arg-type]

    async def _stop(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        await conversation.stop(session, run=intent.optional_id("run"))
        return {"session_id": str(session.pk)}

    async def _rename(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        await conversation.rename(session, title=intent.text("title"))
        return {"session": as_json.session_json(session)}

    async def _delete(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="delete")
        await conversation.delete(self.user, session)
        if self.current == session.pk:
            await self._close_session()
        return {"session_id": str(session.pk)}

    async def _fork(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        copy = await conversation.fork(self.user, session, at=intent.optional_number("seq"))
        return {"session": as_json.session_json(copy)}

    async def _rollback(self, intent: Intent) -> Answer:
        session = await self._session(intent, scope="write")
        await conversation.rollback(self.user, session, to=intent.number("to"))
        await in_database(session.refresh_from_db)
        return {"session": as_json.session_json(session)}

    async def _history(self, intent: Intent) -> Answer:
        """`format: "text"` gives the plain form for terminals as well."""
        count = intent.optional_number("count") or 20
        asked = {"before": intent.optional_number("cursor"), "leaf": intent.optional_number("leaf")}
        if self.current is None and not intent.text("session"):
            return {"session_id": str(self.fresh), "message_count": 0, "messages": [], "cursor": None, "text": _empty()}
        session = await self._session(intent)
        told = await in_database(as_json.history_json, session, count=count, **asked)
        if intent.text("format") == "text" or not told["messages"]:
            told["text"] = await in_database(self._plain, session, count)
        return told

    async def _ping(self, intent: Intent) -> Answer:
        return {}

    def _plain(self, session: Session, count: int) -> str:
        with self.reader.reading():
            return plain_history(session, count=count)

    # Sessions.

    def _mine(self) -> QuerySet[Session]:
        """What this door shows: the person's own conversations, or those of the key."""
        seen = sessions_for(self.api_key or self.user, Purpose.LIST)
        return seen if self.api_key and holds(self.api_key, "admin") else seen.filter(owner=self.user)

    def _require(self, scope: str) -> None:
        if self.api_key is not None and not holds(self.api_key, scope):
            raise Refused("scope_missing", _("This key lacks the scope “%(scope)s”.") % {"scope": scope})

    async def _session(self, intent: Intent, *, scope: str = "read") -> Session:
        self._require(scope)
        name = intent.text("session") or (str(self.current) if self.current else "")
        found = await in_database(self._found, name, scope, intent.text("reason")) if name else None
        if found is None:
            raise Refused("no_such_session", _("There is no such session."))
        return found

    def _found(self, name: str, scope: str, reason: str = "") -> Session | None:
        """To read, for which somebody else's needs a reason, or one's own to change."""
        viewer = self.api_key or self.user
        if scope == "read":
            return find_opened(viewer, name, reason=reason)
        found = find(viewer, name, Purpose(scope))
        return found if found and found.owner_id == self.user.pk else None

    async def _session_or_new(self, intent: Intent) -> Session:
        if self.current is None and not intent.text("session"):
            self._require("write")
            return await in_database(self._start, intent.text("agent"), "", self.fresh)
        return await self._session(intent, scope="write")

    def _start(self, agent: str, title: str, session_id: UUID) -> Session:
        if self.api_key is not None and self.api_key.recording not in ("full", "redacted"):
            raise Refused("not_recorded", _("A conversation is kept here, and this key records none."))
        if not settings.CHAT_HISTORY_ENABLED:
            raise Refused("history_off", _("History is off on this server, so the chat takes no message."))
        found = find_agent(agent)
        started = {"id": session_id, "owner": self.user, "api_key": self.api_key, "agent": found.name}
        return recorder.start_session(**started, title=title.strip()[:200])

    async def _open_session(self, session: Session) -> None:
        if self.current == session.pk:
            return
        await self._close_session()
        self.current = session.pk
        await self.enter(session.pk, version=session.version)

    async def _close_session(self) -> None:
        self.stop_looking()
        self.following.clear()
        self.done.clear()
        if self.current is not None:
            await self.leave(self.current)
            self.current = None

    async def _running(self, session: Session) -> list[Answer]:
        """Answers on their way, as far as they have come; frames after `n` follow as events."""
        return [await self._so_far(run) for run in await in_database(runs.running_in, session.pk)]

    async def _so_far(self, run: Run) -> Answer:
        self.following[run.pk] = followed = Following(run.pk, leaf=run.leaf)
        so_far = await runs.so_far(run.pk)
        frames = followed.catch_up(so_far) if so_far else []
        self._keep_looking()
        pieces = [piece for frame in frames for piece in frame["pieces"]]
        return {"run": str(run.pk), "n": followed.n, "pieces": pieces}

    # Events.

    async def run_frame(self, frame: dict[str, Any]) -> None:
        """One frame of a run of the open session. What cannot be told yet, because something is missing, waits."""
        run_id = UUID(frame["run"])
        if run_id in self.done:
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
                    if followed.has_gap or time.monotonic() - followed.heard_at >= LOOK_SECONDS:
                        await self._tell_found(followed)

    async def _tell_found(self, followed: Following) -> None:
        try:
            await self._tell_frames(followed, await in_database(found, followed))
        except DatabaseError as error:
            logger.warning("A run of another process could not be looked at: %s", type(error).__name__)

    def _stored(self, leaf: int) -> Answer:
        session = Session.objects.filter(pk=self.current).first() if self.current else None
        return (
            {"message": as_json.history_json(session, count=1, leaf=leaf)["messages"][-1:]} if session and leaf else {}
        )

    async def session_changed(self, message: dict[str, Any]) -> None:
        session = await in_database(find, self.api_key or self.user, self.current or "", Purpose.READ)
        if session is None:
            return
        await self.tell("session.changed", session=as_json.session_json(session))
        for run in await in_database(runs.running_in, session.pk):
            if not runs.is_here(run.pk) and run.pk not in self.done:
                self.following.setdefault(run.pk, Following(run.pk, leaf=run.origin))
        self._keep_looking()


def _sent(session: Session, sent: Sent) -> Answer:
    told: Answer = {"session_id": str(session.pk)}
    if sent.seq:
        told |= {"seq": sent.seq, "is_branch": sent.is_branch}
    if sent.run:
        told["run"] = str(sent.run)
    if sent.is_queued:
        told["is_queued"] = True
    if sent.words:
        told["text"] = sent.words
    return told | ({"forked": str(sent.go_to)} if sent.go_to else {})


def _empty() -> str:
    return _("No conversation history yet")


def _code(error: Exception) -> str:
    """NotPossible → not_possible."""
    name = type(error).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


Command = Callable[[ProgramConsumer, Intent], Awaitable[Answer]]
COMMANDS: dict[str, Command] = {
    "create": ProgramConsumer._create,
    "list": ProgramConsumer._list,
    "open": ProgramConsumer._open,
    "switch": ProgramConsumer._open,
    "send": ProgramConsumer._send,
    "edit": ProgramConsumer._edit,
    "regenerate": ProgramConsumer._regenerate,
    "continue": ProgramConsumer._continue,
    "answer": ProgramConsumer._answer,
    "stop": ProgramConsumer._stop,
    "rename": ProgramConsumer._rename,
    "delete": ProgramConsumer._delete,
    "fork": ProgramConsumer._fork,
    "rollback": ProgramConsumer._rollback,
    "history": ProgramConsumer._history,
    "ping": ProgramConsumer._ping,
}
