"""Parts of sockets: close codes, the output queue, requests and their limits, and calls that several pages share.

The output queue of a socket is bounded in bytes: a client that does not read is dropped, not buffered. `Outbox.send`
never waits, so a consumer continues with its other work while a slow client reads. A task passes the messages on to the
server and waits for it (`project.server.flow_control` makes Daphne wait, too). What is not sent yet is counted. Over
the limit `SlowClient` is raised, everything unsent is dropped, and only a close frame is still accepted.
"""

import asyncio
import logging
import re
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.utils import timezone
from django.utils.translation import gettext as _

from history.entries import JsonObject
from history.errors import HistoryError
from relay.chat import error_texts
from relay.conversation import MessageDraft
from relay.errors import RelayError, Unavailable

logger = logging.getLogger(__name__)

# A single message may be larger: it is accepted as long as what waits before it is below this.
MOST_UNSENT_BYTES = 1_000_000
# How long the last messages may take, and the close frame of a client that does not read.
LAST_SECONDS, SLOW_SECONDS = 3.0, 60.0
DATABASE_AWAY = (OperationalError, InterfaceError)
CACHE_SECONDS = 2.0  # how long the result of a call is shared by pages that need it because of the same message

T = TypeVar("T")
_shared_calls: dict[Hashable, asyncio.Future[Any]] = {}
MAX_MESSAGES, PERIOD_SECONDS = 30, 10.0
LARGEST_NUMBER = 2**53


class CloseCode:
    """The codes of docs/websocket.md. Daphne can send only 1000 and 3000 to 4999, and no members of an enumeration."""

    # After these, connecting again does not help.
    NOT_SIGNED_IN, NOT_ALLOWED, NOT_FOUND = 4401, 4403, 4404
    # After these it does. 4011 to 4013 mean what 1011 to 1013 mean.
    TOO_SLOW, FAILED, RESTARTING, UNAVAILABLE = 4008, 4011, 4012, 4013


class SlowClient(Exception):
    """The client has not read what was sent, and too much is waiting."""


class Outbox:
    def __init__(self, send: Any) -> None:
        self._server_send = send
        self._messages: deque[tuple[dict[str, Any], int]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.unsent_bytes = 0
        self.is_too_slow = False
        self.is_gone = False

    async def send(self, message: Any) -> None:
        """ASGI's `send` for a consumer."""
        if self.is_gone:
            return
        is_content = message["type"] == "websocket.send"
        if is_content and (self.is_too_slow or self.unsent_bytes > MOST_UNSENT_BYTES):
            self.is_too_slow = True
            self._messages.clear()
            raise SlowClient
        size = sys.getsizeof(message.get("text")) if is_content else 0
        self.unsent_bytes += size
        self._messages.append((message, size))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._pass_on())

    async def finish(self) -> None:
        """Wait for what is not sent yet, for a while."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=SLOW_SECONDS if self.is_too_slow else LAST_SECONDS)
            self._task.cancel()

    async def _pass_on(self) -> None:
        try:
            while self._messages:
                message, size = self._messages.popleft()
                await self._server_send(message)
                self.unsent_bytes -= size
        except Exception as error:  # noqa: BLE001 - each server has its own; nearly all mean that the client is gone
            logger.debug("A socket closed during a send: %s", error)
            self.is_gone = True
            self._messages.clear()
            # A client that is still there connects again and reads what it missed. It must not wait for ever.
            with suppress(Exception):
                await self._server_send({"type": "websocket.close", "code": CloseCode.FAILED})


class SideTasks:
    """Tasks beside the messages of a socket, each of them once at a time."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._tasks.get(work.__name__)
        if task is None or task.done():
            self._tasks[work.__name__] = asyncio.get_running_loop().create_task(work())

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()


async def run_once(key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
    """Run a call that many pages need because of the same message once, for the first of them."""
    if key not in _shared_calls:
        _shared_calls[key] = asyncio.ensure_future(call())
        asyncio.get_running_loop().call_later(CACHE_SECONDS, _shared_calls.pop, key, None)
    result: T = await asyncio.shield(_shared_calls[key])
    return result


def connection_info(scope: Any) -> dict[str, Any]:
    """Address and time of the connection, stored with each call that is made for it."""
    peer = scope.get("client") or ("", 0)
    return {"address": str(peer[0]), "connected_at": timezone.now().isoformat()}


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
            raise InvalidRequest(_("A request must be an object with a “type”."))
        if document["type"] not in types:
            raise InvalidRequest(_("Unknown message type “%(type)s”.") % {"type": document["type"][:40]})
        return cls(document["type"], document)

    def text(self, name: str) -> str:
        value = self.fields.get(name, "")
        if not isinstance(value, str):
            raise InvalidRequest(_("“%(name)s” must be a string.") % {"name": name})
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A form with one such field sends a text, with several a list."""
        value = self.fields.get(name) or []
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise InvalidRequest(_("“%(name)s” must be a list of strings.") % {"name": name})
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

    def draft(self) -> MessageDraft:
        return MessageDraft(
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


def refusal_of(error: Exception) -> ActionRefused:
    """Code and text of an error, in the language of the reader."""
    if isinstance(error, ActionRefused):
        return error
    if isinstance(error, DATABASE_AWAY):
        error = Unavailable()
    if isinstance(error, RelayError | HistoryError):
        code = re.sub("(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()  # NotPossible: not_possible
        retry_after = error.retry_after if isinstance(error, Unavailable) else None
        return ActionRefused(code, error_texts.error_text(error), retry_after=retry_after)
    logger.error("An action failed.", exc_info=error)
    return ActionRefused("internal", _("Something went wrong. The server log has the details."))
