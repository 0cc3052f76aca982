"""Actions of the page and program sockets: requests, rate limit, errors, and what both can do in a session.

A client sends a JSON object with a `type` and a few fields. `ACTIONS` says for each type which fields it has, which
permission it needs and which function of `relay.conversation` carries it out. Both sockets read, limit and refuse
requests in the same way; the page socket answers with HTML, the program socket with JSON.
"""

import json
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.utils.translation import gettext as _

from history.entries import JsonObject
from history.errors import HistoryError
from history.models import Session
from relay import conversation
from relay.chat import error_texts
from relay.consumers.outbox import ReaderTooSlow
from relay.consumers.sockets import DATABASE_AWAY, Socket
from relay.conversation import Draft, SendResult
from relay.errors import RelayError, Unavailable
from relay.models import User
from relay.runtime.async_db import in_database
from relay.runtime.event_loop import parse_apart
from relay.runtime.locale import ViewerLocale

logger = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 1_000_000
MAX_MESSAGES, PERIOD_SECONDS = 30, 10.0
LARGEST_NUMBER = 2**53


class ActionRefused(Exception):
    """The action is not carried out. `code` is for programs, the text for people."""

    def __init__(self, code: str, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.code, self.retry_after = code, retry_after


class InvalidRequest(ActionRefused):
    def __init__(self, text: str) -> None:
        super().__init__("bad_command", text)


@dataclass(frozen=True, slots=True)
class ActionRequest:
    type: str
    fields: JsonObject

    @classmethod
    def of(cls, document: object, *, types: Mapping[str, object]) -> "ActionRequest":
        if not isinstance(document, dict) or not isinstance(document.get("type"), str):
            raise InvalidRequest(_("An intent must be an object with a “type”."))
        if document["type"] not in types:
            raise InvalidRequest(_("Unknown message type “%(type)s”.") % {"type": document["type"][:40]})
        return cls(document["type"], document)

    def text(self, name: str) -> str:
        value = self.fields.get(name, "")
        if not isinstance(value, str):
            raise InvalidRequest(_("“%(name)s” must be a text.") % {"name": name})
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A form with one such field sends a text, with several a list."""
        value = self.fields.get(name) or []
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise InvalidRequest(_("“%(name)s” must be a list of texts.") % {"name": name})
        return tuple(values)

    def optional_number(self, name: str) -> int | None:
        value = self.fields.get(name, "")
        if value in ("", None):
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_NUMBER:
            raise InvalidRequest(_("“%(name)s” must be the number of an entry.") % {"name": name})
        return value

    def number(self, name: str) -> int:
        value = self.optional_number(name)
        if value is None:
            raise InvalidRequest(_("“%(name)s” is missing.") % {"name": name})
        return value

    def optional_id(self, name: str) -> UUID | None:
        value = self.text(name)
        try:
            return UUID(value) if value else None
        except ValueError:
            raise InvalidRequest(_("“%(name)s” is not an id.") % {"name": name}) from None

    def draft(self) -> Draft:
        return Draft(
            text=self.text("text"),
            attachments=self.texts("attachment"),
            agent=self.text("agent"),
            model=self.text("model"),
        )


class SocketClosed(Exception):
    """The socket was closed with a code that says why, so the request gets no answer."""


class MessageRate:
    """True as long as no more than `MAX_MESSAGES` came within the last `PERIOD_SECONDS`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_MESSAGES)

    def allows_one_more(self) -> bool:
        now = time.monotonic()
        if len(self._times) == MAX_MESSAGES and now - self._times[0] < PERIOD_SECONDS:
            return False
        self._times.append(now)
        return True


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
                await self.check_user()
                action = self.actions[request.type]
                session: Any = await self.find_session(request, scope=action.scope) if action.needs_session else None
                await self.send_result(request, await action.run(self, session, request), session)
        except ReaderTooSlow:
            raise
        except SocketClosed:
            pass
        except Exception as error:  # noqa: BLE001 - logged where it is a defect
            with self.reader.reading():
                refused = refusal_of(error)
            await self.send_error(refused, request)

    async def _parse(self, text_data: str | None) -> object:
        if text_data is None or len(text_data) > MAX_MESSAGE_CHARS:
            raise InvalidRequest(self.size_error(text_data))
        try:
            return await parse_apart(len(text_data), json.loads, text_data)
        except (ValueError, RecursionError):
            raise InvalidRequest(_("This is not JSON.")) from None


def refusal_of(error: Exception) -> ActionRefused:
    """Code and text of an error, in the language of the reader."""
    if isinstance(error, ActionRefused):
        return error
    if isinstance(error, DATABASE_AWAY):
        error = Unavailable()
    if isinstance(error, RelayError | HistoryError):
        code = re.sub("(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()  # NotPossible: not_possible
        retry_after = error.retry_after if isinstance(error, Unavailable) else None
        return ActionRefused(code, error_texts.of_error(error), retry_after=retry_after)
    logger.error("An action failed.", exc_info=error)
    return ActionRefused("internal", _("Something went wrong. The server log has the details."))


# What both sockets can do.


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
