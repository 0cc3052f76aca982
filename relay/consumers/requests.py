"""Requests of the page and program sockets: their fields, their rate limit, and the errors that answer them."""

import logging
import re
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _

from history.entries import JsonObject
from history.errors import HistoryError
from relay.chat import error_texts
from relay.consumers.base import DATABASE_AWAY
from relay.conversation import Draft
from relay.errors import RelayError, Unavailable

logger = logging.getLogger(__name__)

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
