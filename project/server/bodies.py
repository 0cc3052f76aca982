"""ASGI middleware for request bodies: size by path and sender, speed, charset, and bodies that are left unread.

Anyone may send 64 KB; a signed-in user or a valid API key, looked up before the first byte is read, up to the limit
that the view declares (`history.http`). The relay and the MCP server check key and size themselves. A body that is
refused, too slow or unread is dropped for a moment before the connection closes: else the client would see a reset.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, parse_cookie
from django.utils.translation import gettext as _

from history.access import keys
from history.access.key_cache import ApiKeyError
from history.api.errors import failure, refusal
from history.http import body_limit_of
from project.server.limits import ANYONE_BYTES, BODY_BYTES_PER_SECOND, BODY_SECONDS, KNOWN_BYTES, LINGER_SECONDS
from relay.consumers.authentication import read_api_key
from relay.gateway import application as gateway
from relay.gateway.call.calls import guess_dialect
from relay.gateway.call.errors import Refusal
from relay.mcp_server import application as mcp
from relay.runtime.asgi import Application, Message, Receive, Scope, Send
from relay.runtime.async_db import in_database

# Django decodes forms and query strings with any codec that is named, and many codecs fail on foreign bytes (`idna`,
# `hex`, `zip`). ASCII is a part of UTF-8. Some clients name Latin-1 and send ASCII.
_CHARSET = re.compile(rb'charset\s*=\s*"?(?:utf-?8|us-ascii|ascii|iso-8859-1|latin-?1)"?\s*(?:;|$)', re.IGNORECASE)
# Django fails on a parameter with an unknown charset of its own (RFC 2231), which no client sends in this header.
_EXTENDED = re.compile(rb"\*\s*=")

DISCONNECT = {"type": "http.disconnect"}


def limit_bodies(application: Application) -> Application:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        body = RequestBody(scope, receive, send)
        if refusal := await body.admit():
            await body.refuse(refusal)
        elif body.length == 0:
            await application(scope, receive, send)
        else:
            await application(scope, body.receive, body)

    return answer


def announced_length(scope: Scope, headers: Mapping[bytes, bytes]) -> int | None:
    """The length of the body; None means that it is not known in advance."""
    if b"transfer-encoding" in headers:
        return None
    length = headers.get(b"content-length", b"")
    if length.isdigit():
        return int(length)
    is_framed_otherwise = str(scope.get("http_version", "1.1")).startswith(("2", "3"))
    return None if is_framed_otherwise and scope.get("method") not in ("GET", "HEAD") else 0


def has_known_charset(headers: Mapping[bytes, bytes]) -> bool:
    kind = headers.get(b"content-type", b"")
    if b"\0" in kind or _EXTENDED.search(kind):
        return False
    return kind.lower().count(b"charset") == len(_CHARSET.findall(kind))


class RequestBody:
    """The body of one request on its way to the application. As a callable it is the `send` of this request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.headers = scope, dict[bytes, bytes](scope.get("headers", ()))
        self.length = announced_length(scope, self.headers)
        self._receive, self._send = receive, send
        is_checked_later = gateway.serves(scope["path"]) or mcp.serves(scope["path"])
        self.limit: int | None = None if is_checked_later else ANYONE_BYTES
        self.size, self.seconds = 0, 0.0
        self.is_complete = self.is_refused = self.is_waiting = False
        self.has_begun = self.must_linger = False
        # `project.server.flow_control` can end a connection; the relay looks for it here.
        if cut := getattr(send, "cut", None):
            self.cut = cut

    async def admit(self) -> int:
        """Check charset and length; look the sender of a large body up. Returns the status of a refusal, or 0."""
        if self.limit is None:
            return 0
        if not has_known_charset(self.headers):
            return 415
        if self.length is not None and self.length <= ANYONE_BYTES:
            return 0
        most = body_limit_of(self.scope["path"]) or KNOWN_BYTES
        if self.length is not None and self.length > most:
            return 413
        try:
            is_known = await in_database(is_known_sender, self.scope)
        except (DatabaseError, InterfaceError):
            return 503
        if is_known:
            self.limit = most
        return 0 if is_known or self.length is None else 401

    async def receive(self) -> Message:
        if self.is_refused:
            return DISCONNECT
        if self.is_complete:
            return await self._receive()
        self.is_waiting = True
        try:
            message = await self._next(BODY_SECONDS + self.size / BODY_BYTES_PER_SECOND - self.seconds)
        except TimeoutError:
            await self.refuse(408)
            return DISCONNECT
        finally:
            self.is_waiting = False
        if self.limit is not None and self.size > self.limit:
            await self.refuse(413)
            return DISCONNECT
        return message

    async def _next(self, seconds: float) -> Message:
        """The next piece. Only the time that is spent waiting for the client counts."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            async with asyncio.timeout(seconds):
                message = await self._receive()
        finally:
            self.seconds += loop.time() - start
        self.size += len(message.get("body", b""))
        self.is_complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def __call__(self, message: Message) -> None:
        if self.is_refused:
            return
        if message["type"] == "http.response.start":
            self.has_begun = True
            if not self.is_complete:
                message = await self._begin_early(message)
        elif self.must_linger and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drop_rest()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _begin_early(self, message: Message) -> Message:
        """An answer before the body was read. A short body is taken first, so that the connection can be kept."""
        if self.length is not None and self.length <= ANYONE_BYTES and message["status"] != 408:
            await self._drop_rest()
        if self.is_complete:
            return message
        self.must_linger = True
        others = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"connection"]
        return {**message, "headers": [*others, (b"connection", b"close")]}

    async def _drop_rest(self) -> None:
        """Read on for a moment, unless a task of the application waits for the body, or the client for `Expect`."""
        if self.is_waiting or (b"expect" in self.headers and not self.size):
            return
        end = asyncio.get_running_loop().time() + LINGER_SECONDS
        with suppress(TimeoutError):
            while not self.is_complete:
                await self._next(end - asyncio.get_running_loop().time())

    async def refuse(self, status: int) -> None:
        """Answer in place of the application. What it sends later is dropped."""
        self.is_waiting = False
        if not self.has_begun:
            kind, body = refusal_of(self.scope, status)
            headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
            await self({"type": "http.response.start", "status": status, "headers": headers})
            await self({"type": "http.response.body", "body": body})
        self.is_refused = True


def is_known_sender(scope: Scope) -> bool:
    """A valid API key or the cookie of a signed-in user. Asks the database."""
    if raw := read_api_key(scope):
        try:
            keys.authenticate(raw)
        except ApiKeyError:
            return False
        return True
    cookies = "; ".join(value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"cookie")
    if session := parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, ""):
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(session)
        return get_user(request).is_authenticated
    return False


def refusal_of(scope: Scope, status: int) -> tuple[bytes, bytes]:
    """Content type and body, in the form that callers of each path expect."""
    path, message = scope["path"], refusal(status)[1]
    if status == 401:
        message = _("Sign in to send more than %(size)d KB.") % {"size": ANYONE_BYTES // 1024}
    elif status == 413:
        message = _("The request is too large for this address.")
    if gateway.serves(path):
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        _status, body = Refusal(message, status=status).encode(guess_dialect(path, headers))
        return b"application/json", body
    if mcp.serves(path):
        return b"application/json", mcp.refusal_body(message)
    if path.startswith("/api/"):
        return b"application/json", failure(status).content
    return b"text/plain; charset=utf-8", f"{message}\n".encode()
