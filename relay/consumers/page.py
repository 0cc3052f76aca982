"""The socket of a chat page. The page sends intents, the server owns the conversation and sends back HTML.

Here is who may come in, how an intent is read, and what is said when it fails; the intents are in `page_verbs`, what
the page is shown in `page_events`. Nothing here waits for a model: an intent is carried out and the consumer is free.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from django.utils.translation import gettext as _

from history.access.permissions import Purpose, find
from history.errors import HistoryError
from history.models import Session
from history.text.numbers import whole_number
from relay.chat import error_texts
from relay.consumers.intents import ActionRequest, InvalidRequest
from relay.consumers.limits import MAX_MESSAGE_CHARS, MessageRate
from relay.consumers.outbox import ReaderTooSlow
from relay.consumers.page_actions import VERBS
from relay.consumers.page_events import PageEvents
from relay.consumers.sockets import DATABASE_AWAY, NOT_FOUND, NOT_SIGNED_IN, connection_info
from relay.conversation import SendResult
from relay.errors import RelayError, Unavailable
from relay.live import groups, sign_outs
from relay.pages.chat import fragments
from relay.pages.chat.fragments import View
from relay.runtime.async_db import in_database
from relay.runtime.locale import reader_of
from relay.runtime.parsing import parse_apart

logger = logging.getLogger(__name__)


class ChatConsumer(PageEvents):
    async def connect_page(self, user: Any) -> None:
        session_id = self.scope["url_route"]["kwargs"]["session_id"]
        if not user.is_authenticated:
            await self.end(NOT_SIGNED_IN)
        session = await in_database(find, user, session_id, Purpose.WRITE)
        if session is None:
            await self.end(NOT_FOUND)
        self.session, self.rate = session, MessageRate()
        self.view = View(session_id=session.pk, user=user, reader=reader_of(user, self.scope), **self._asked())
        self.client = connection_info(self.scope)
        await self.open_group(session.pk, version=session.version)
        await self.join_as(user)
        await self.accept()
        if groups.is_degraded():
            await self.degraded_changed({"is_degraded": True})
        await self.catch_up()

    def _asked(self) -> dict[str, Any]:
        asked = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        shown, leaf = (asked.get(name, [""])[0] for name in ("shown", "leaf"))
        return {"shown": whole_number(shown) or 0, "leaf": whole_number(leaf)}

    # What the page wants.

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            intent = await parse_apart(len(text_data or ""), self._read, text_data)
            if intent is None:
                return
            await self._check_who()
            with self.view.reader.reading():
                sent = await VERBS[intent.type](self, intent)
            await self._show(sent)
        except InvalidRequest as error:
            await self.complain(str(error))
        except (RelayError, HistoryError) as error:
            with self.view.reader.reading():
                await self.complain(error_texts.of_error(error))
        except Session.DoesNotExist:
            pass  # told by the code that it was closed with
        except DATABASE_AWAY:
            with self.view.reader.reading():
                await self.complain(error_texts.of_error(Unavailable()))
        except ReaderTooSlow:
            raise
        except Exception:
            logger.exception("An intent failed.")
            with self.view.reader.reading():
                await self.complain(_("Something went wrong here. It is in the log."))

    def _read(self, text_data: str | None) -> ActionRequest | None:
        with self.view.reader.reading():
            if text_data is None or len(text_data) > MAX_MESSAGE_CHARS:
                raise InvalidRequest(_("This is more than one message can hold. Attach it as a file instead."))
            intent = ActionRequest.read(text_data, verbs=VERBS.keys())
            if intent.type != "ping" and not self.rate.allows_one_more():
                raise InvalidRequest(_("That was too fast. Wait a few seconds and try again."))
            return intent

    async def _check_who(self) -> None:
        """Whoever has signed out or was shut out meanwhile has no say any more."""
        user = await sign_outs.read_current_user(self.scope)
        session = await in_database(find, user, self.view.session_id, Purpose.WRITE)
        if session is None:
            await self.close(NOT_SIGNED_IN if not user.is_authenticated else NOT_FOUND)
            raise Session.DoesNotExist
        self.session = session

    async def _show(self, sent: SendResult | None) -> None:
        if sent is None:
            return
        if sent.go_to:
            await self.show(fragments.way_to(sent.go_to))
        if sent.is_branch:
            self.view = replace(self.view, leaf=sent.seq)
        if sent.words or sent.is_branch:
            with self.view.reader.reading():
                told = sent.words or _(
                    "The conversation continued before your message arrived. Your message is on its own branch."
                )
            await self.show(fragments.notices([told], self.view.reader))
        elif sent.seq or sent.is_queued:
            await self.show(fragments.notices([], self.view.reader))

    async def complain(self, text: str) -> None:
        await self.show(fragments.notices([text], self.view.reader, level="error"))
