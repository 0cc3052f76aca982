"""The socket for programs: JSON in, JSON out, one engine with the pages. docs/websocket.md lists every word.

A command is an object with a `type`, and an `id` that its answer repeats. What happens in the open session comes as
events of its own. A command that makes no sense gets an error event, and the socket lives on.
"""

from __future__ import annotations

import logging
import time
from typing import Any
from uuid import uuid4

from django.utils.translation import gettext as _

from history.access import keys
from history.access.key_cache import ApiKeyError
from history.access.reasons import find_opened
from history.errors import HistoryError
from relay.chat import error_texts
from relay.consumers.authentication import read_api_key
from relay.consumers.intents import ActionRequest, InvalidRequest
from relay.consumers.limits import MAX_MESSAGE_CHARS, MessageRate
from relay.consumers.outbox import ReaderTooSlow
from relay.consumers.program_actions import COMMANDS
from relay.consumers.program_sessions import ActionRefused, ProgramSessions
from relay.consumers.sockets import DATABASE_AWAY, NOT_SIGNED_IN, POLL_SECONDS, connection_info
from relay.errors import RelayError, Unavailable
from relay.live import groups, sign_outs
from relay.runtime.async_db import in_database
from relay.runtime.locale import reader_of
from relay.runtime.parsing import parse_apart

logger = logging.getLogger(__name__)

PROTOCOL = 1


class ProgramConsumer(ProgramSessions):
    asked_at: float  # when it was last asked whether the open session may still be read

    async def connect(self) -> None:
        scope: dict[str, Any] = dict(self.scope)
        self.user, self.api_key = scope.get("user"), scope.get("api_key")
        if self.user is None or not self.user.is_authenticated:
            return await self.close(NOT_SIGNED_IN)
        self.rate, self.client = MessageRate(), connection_info(self.scope)
        self.reader = reader_of(self.user, self.scope)
        self.fresh, self.asked_at = uuid4(), 0.0
        await self.accept()
        known = {"protocol": PROTOCOL, "user": self.user.get_username(), "session_id": str(self.fresh)}
        await self.send_event("welcome", **known, is_degraded=groups.is_degraded(), **self.client)
        return None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        asked = ""
        try:
            with self.reader.reading():
                intent = await parse_apart(len(text_data or ""), self._read, text_data)
                asked = str(intent.fields.get("id", ""))[:100]
                if not self.rate.allows_one_more():
                    raise ActionRefused("too_fast", _("That was too fast. Wait a few seconds and try again."))
                await self._check_who()
                answer = await COMMANDS[intent.type](self, intent)
            await self.send_event(intent.type, id=asked, **answer)
        except InvalidRequest as error:
            await self.send_event("error", id=asked, code="bad_command", message=str(error))
        except ActionRefused as error:
            await self.send_event("error", id=asked, code=error.code, message=str(error))
        except Unavailable:
            await self._tell_unavailable(asked)
        except (RelayError, HistoryError) as error:
            with self.reader.reading():
                text = error_texts.of_error(error)
            await self.send_event("error", id=asked, code=_code(error), message=text)
        except DATABASE_AWAY:
            await self._tell_unavailable(asked)
        except ReaderTooSlow:
            raise
        except Exception:
            logger.exception("A command failed.")
            with self.reader.reading():
                text = _("Something went wrong here. It is in the log.")
            await self.send_event("error", id=asked, code="internal", message=text)

    async def _tell_unavailable(self, asked: str) -> None:
        with self.reader.reading():
            text = error_texts.of_error(Unavailable())
        code, seconds = _code(Unavailable()), Unavailable.retry_after
        await self.send_event("error", id=asked, code=code, message=text, retry_after=seconds)

    def _read(self, text_data: str | None) -> ActionRequest:
        if text_data is None:
            raise InvalidRequest(_("Send text frames with JSON."))
        if len(text_data) > MAX_MESSAGE_CHARS:
            raise InvalidRequest(_("A frame may have %(most)d characters.") % {"most": MAX_MESSAGE_CHARS})
        return ActionRequest.read(text_data, verbs=COMMANDS.keys())

    async def _check_who(self) -> None:
        """A key that was revoked, or somebody who signed out, is done here."""
        if self.api_key is not None:
            try:
                self.api_key = await in_database(keys.authenticate, read_api_key(self.scope), scope="read")
            except ApiKeyError as error:
                if error.retry_helps:
                    raise Unavailable from error
                await self.close(NOT_SIGNED_IN)
                raise ActionRefused("not_signed_in", str(error)) from error
            return
        self.user = await sign_outs.read_current_user(self.scope)  # with the rights that they have now
        if not self.user.is_authenticated:
            await self.close(NOT_SIGNED_IN)
            raise ActionRefused("not_signed_in", _("You are signed out."))

    async def can_read_session(self) -> bool:
        """Asked about once a second: a key is revoked, a right is taken away, the hour of a reason is over."""
        if self.current is None or time.monotonic() - self.asked_at < POLL_SECONDS:
            return self.current is not None
        self.asked_at = time.monotonic()
        try:
            await self._check_who()
            if await in_database(find_opened, self.api_key or self.user, self.current) is not None:
                return True
            problem = {"code": "no_such_session", "message": _("There is no such session.")}
        except ActionRefused as error:
            problem = {"code": error.code, "message": str(error)}
        except HistoryError as error:
            problem = {"code": _code(error), "message": error_texts.of_error(error)}
        except (*DATABASE_AWAY, Unavailable) as error:
            logger.warning("Whether a program may still be told could not be asked: %s", type(error).__name__)
            return True
        await self.let_go()
        await self.send_event("error", id="", **problem)
        return False


def _code(error: Exception) -> str:
    """NotPossible → not_possible."""
    name = type(error).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
