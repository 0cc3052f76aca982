"""Actions of the page and program sockets: how they are read and carried out, and what both can do in a session.

`ACTIONS` says for each type of request which permission it needs and which function of `relay.conversation` carries it
out. Both sockets read, limit and refuse requests in the same way; one answers with HTML, the other with JSON.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from history.entries import JsonObject
from history.models import Session
from relay import conversation
from relay.consumers.base import (
    ActionRefused,
    ActionRequest,
    InvalidRequest,
    MessageRate,
    SlowClient,
    SocketClosed,
    refusal_of,
)
from relay.consumers.sockets import Socket
from relay.conversation import SendResult
from relay.models import User
from relay.runtime.async_db import URGENT, admitted, in_database
from relay.runtime.event_loop import parse_apart
from relay.runtime.locale import ViewerLocale

MAX_MESSAGE_CHARS = 1_000_000
# What came of an action: a message that was sent, a session that was changed or copied, or an answer for programs.
Result = SendResult | Session | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Action:
    """`scope` is the permission that it needs in the session. Without a session, `needs_session` is false."""

    run: Callable[[Any, Session, ActionRequest], Awaitable[Result]]
    scope: str = "write"
    needs_session: bool = True


class ActionSocket(Socket):
    """A socket whose client requests `actions`, one at a time, none of which waits for a model."""

    actions: ClassVar[Mapping[str, Action]]
    unlimited: ClassVar[frozenset[str]] = frozenset()  # actions that the rate limit does not count
    urgent: ClassVar[frozenset[str]] = frozenset({"stop"})  # does not wait behind the questions of others
    user: User
    reader: ViewerLocale
    client: JsonObject
    rate: MessageRate

    def size_error(self, text_data: str | None) -> str:
        """What to answer to a message that is no text, or too long."""
        raise NotImplementedError

    async def check_user(self) -> None:
        """Refuse requests of users whose sign-in or key has ended."""
        raise NotImplementedError

    async def find_session(self, request: ActionRequest, *, scope: str = "read") -> Session:
        """The session of a request, for which the client needs the permission `scope`."""
        raise NotImplementedError

    async def send_result(self, request: ActionRequest, result: Result, session: Session) -> None:
        raise NotImplementedError

    async def send_error(self, error: ActionRefused, request: ActionRequest | None) -> None:
        raise NotImplementedError

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        request = None
        try:
            with self.reader.reading():
                request = ActionRequest.of(await self._parse(text_data), types=self.actions)
                if request.type not in self.unlimited and not self.rate.allows_one_more():
                    raise ActionRefused("too_fast", _("Too many messages at once. Wait a few seconds and try again."))
                with admitted(URGENT if request.type in self.urgent else None):
                    await self._act(request)
        except SlowClient:
            raise
        except SocketClosed:
            pass
        except Exception as error:  # noqa: BLE001 - logged where it is a defect
            with self.reader.reading():
                refused = refusal_of(error)
            await self.send_error(refused, request)

    async def _act(self, request: ActionRequest) -> None:
        await self.check_user()
        action = self.actions[request.type]
        session: Any = await self.find_session(request, scope=action.scope) if action.needs_session else None
        await self.send_result(request, await action.run(self, session, request), session)

    async def _parse(self, text_data: str | None) -> object:
        if text_data is None or len(text_data) > MAX_MESSAGE_CHARS:
            raise InvalidRequest(self.size_error(text_data))
        try:
            return await parse_apart(len(text_data), json.loads, text_data)
        except (ValueError, RecursionError):
            raise InvalidRequest(_("The message is not valid JSON.")) from None


async def rollback(at: ActionSocket, session: Session, request: ActionRequest) -> Session:
    await conversation.rollback(at.user, session, to=request.number("to"))
    await in_database(session.refresh_from_db)
    return session


async def undo_summary(at: ActionSocket, session: Session, request: ActionRequest) -> Session:
    await conversation.undo_summary(at.user, session, seq=request.number("seq"))
    await in_database(session.refresh_from_db)
    return session


# `seq` of `compress`: a summary that is to be written anew, perhaps by another model.
ACTIONS: dict[str, Action] = {
    "stop": Action(lambda at, session, request: conversation.stop(session, run=request.optional_id("run"))),
    "edit": Action(
        lambda at, session, request: conversation.edit(
            at.user, session, seq=request.number("seq"), draft=request.draft(), client=at.client
        )
    ),
    "regenerate": Action(
        lambda at, session, request: conversation.regenerate(
            at.user, session, seq=request.number("seq"), model=request.text("model"), client=at.client
        )
    ),
    "answer": Action(
        lambda at, session, request: conversation.answer(
            at.user,
            session,
            seq=request.number("seq"),
            call_id=request.text("call_id"),
            text=request.text("text"),
            client=at.client,
        )
    ),
    "fork": Action(lambda at, session, request: conversation.fork(at.user, session, at=request.optional_number("seq"))),
    "rollback": Action(rollback),
    "compress": Action(
        lambda at, session, request: conversation.compress(
            at.user,
            session,
            model=request.text("model"),
            instead_of=request.optional_number("seq") or 0,
            client=at.client,
        )
    ),
    "undo_summary": Action(undo_summary),
}
