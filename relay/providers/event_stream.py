"""Event stream of an answer: decoding, and errors for every incomplete end."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import aiohttp
from django.utils.translation import gettext_noop

from history.answers.events import AnswerEnded, AnswerFailed, Event
from history.dialects import DIALECTS
from relay.errors import Cut, ProviderError, Unreachable, VendorFault, error_of
from relay.providers.connections import read_available
from relay.providers.endpoints import Endpoint, host_of
from relay.runtime.event_loop import StreamParser

LINGER_SECONDS = 5.0  # counts may follow the end of an answer, but not for long


class EventStream:
    """An answer whose first byte has come. Call `events` until it returns None, and `check` for each event."""

    def __init__(self, response: aiohttp.ClientResponse, first: bytes, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._response, self._first = response, first
        self._decoder = DIALECTS[endpoint.dialect].stream_decoder(endpoint.name)
        self._parser = StreamParser(self._decoder.feed)
        self._is_over = self._is_read = False

    async def events(self) -> list[Event] | None:
        """The next events, None at the end. Raises Cut if that was not the vendor's."""
        if self._is_read and not self._is_over:
            raise _cut(self.endpoint, host_of(self.endpoint.base_url))
        if self._is_read:
            return None
        if chunk := await self._chunk():
            return await self._parser.feed(chunk)
        self._is_read = True
        return await self._parser.close(self._decoder.close)

    def check(self, event: Event) -> None:
        if isinstance(event, AnswerFailed):
            raise error_of(mask_secrets(event, self.endpoint), provider=self.endpoint.name)
        self._is_over = self._is_over or isinstance(event, AnswerEnded)

    def close(self) -> None:
        """At once: a vendor whose connection is closed stops, and stops charging."""
        self._response.close()

    async def _chunk(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._is_over:  # errors of the connection do not matter any more
            with suppress(TimeoutError, aiohttp.ClientError, OSError):
                async with asyncio.timeout(LINGER_SECONDS):
                    return await read_available(self._response.content)
            return b""
        with network_errors(self.endpoint, has_begun=True):
            return await read_available(self._response.content)


class network_errors:  # noqa: N801 - reads as a clause: with network_errors(endpoint, has_begun=True)
    """Raises errors of the network as ProviderErrors. A class, because a generator is slower around every chunk."""

    __slots__ = ("endpoint", "has_begun", "subject")

    def __init__(self, endpoint: Endpoint, *, has_begun: bool, subject: str = "") -> None:
        self.endpoint, self.has_begun, self.subject = endpoint, has_begun, subject

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (aiohttp.ClientError, OSError)):
            raise self._provider_error(error) from None

    def _provider_error(self, error: Exception) -> ProviderError:
        """Without the texts of the library, which may have whole URLs."""
        endpoint, subject = self.endpoint, self.subject or host_of(self.endpoint.base_url)
        if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError):
            unreached = Unreachable(f"{subject} cannot be reached ({_reason(error)})", provider=endpoint.name)
            unreached.host, unreached.reason = host_of(endpoint.base_url), _reason(error)
            return unreached
        if isinstance(error, TimeoutError):
            silent = f"{subject} sent nothing for {endpoint.timeouts.idle:g} seconds"
            fault = Cut if self.has_begun else VendorFault
            return fault(silent, provider=endpoint.name, kind="timeout")
        if self.has_begun:
            return _cut(endpoint, subject)
        return Unreachable(f"{subject} closed the connection without an answer", provider=endpoint.name)


def _cut(endpoint: Endpoint, subject: str) -> Cut:
    return Cut(f"{subject} stopped before the end of its answer", provider=endpoint.name)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return gettext_noop("it does not answer")
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return gettext_noop("its certificate is not trusted")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return gettext_noop("no such host")
    return gettext_noop("no server is listening there")


def mask_secrets(failed: AnswerFailed, endpoint: Endpoint) -> AnswerFailed:
    """Some vendors repeat the rejected key."""
    raw = failed.raw if endpoint.masked(str(failed.raw)) == str(failed.raw) else {}
    return replace(failed, message=endpoint.masked(failed.message), raw=raw)
