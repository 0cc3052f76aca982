"""HTTP provider: calls a model at an `Endpoint` in its dialect, with retries.

An attempt is repeated until the first byte of the answer; from then on every end is final. So no text is shown twice,
and no answer is paid for and thrown away.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import aiohttp

from history.answers.events import AnswerFailed, Event
from history.context.values import Context
from history.dialects import DIALECTS, CallOptions
from history.dialects.json_access import as_bytes, parse_json
from history.entries import JsonObject
from relay.errors import ProviderError, RequestRefused, Unreachable, detached, error_of
from relay.providers import connections
from relay.providers.base import CallNotes, Model
from relay.providers.endpoints import Endpoint, Timeouts, host_of
from relay.providers.event_stream import EventStream, mask_secrets, network_errors

logger = logging.getLogger(__name__)

ERROR_BYTES, ERROR_SECONDS = 64 * 1024, 10.0
DOCUMENT_SECONDS, DOCUMENT_BYTES = 5.0, 8 * 1024 * 1024
FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0


class LastError(NamedTuple):
    """The latest error of a provider, if no call has succeeded since."""

    error: ProviderError
    at: datetime


class ProviderRequest(NamedTuple):
    path: str
    body: bytes
    options: CallOptions


class HttpProvider:
    """`name` is stored with every answer and says whose signed reasoning may go back.

    The default of `models` comes first; they are replaced when the vendor's own list has been fetched.
    """

    is_demo = False
    keeps_alive = True

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name, self.label, self.dialect = endpoint.name, endpoint.label or endpoint.name, endpoint.dialect
        self.models: tuple[Model, ...] = endpoint.models
        self.last_error: LastError | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may have models that are not listed."""
        return self.endpoint.lists_models or not self.endpoint.models

    async def call(
        self, context: Context, options: CallOptions, *, notes: CallNotes | None = None
    ) -> AsyncGenerator[Event, None]:
        """Call a model and yield the events of its answer. Closing the generator ends the call.

        Raises a ProviderError: before the first event after retries, or in the middle of an answer. An answer whose
        generator ends without an error was ended by the vendor.
        """
        notes = notes or CallNotes()
        request = self.request_for(context, options, notes)
        try:
            answer = await self._open(request, notes)
            try:
                while (events := await answer.events()) is not None:
                    for event in events:
                        answer.check(event)
                        yield event
            finally:
                answer.close()
        except ProviderError as error:
            self.last_error = LastError(detached(error), datetime.now(UTC))
            raise
        self.last_error = None

    async def reach(self) -> Endpoint:
        """The endpoint of the next attempt. A provider that starts its own server does so here."""
        return self.endpoint

    def request_for(self, context: Context, options: CallOptions, notes: CallNotes) -> ProviderRequest:
        model = next((model for model in self.models if model.name == options.model), None)
        switches = (model and model.switches) or self.endpoint.switches
        options = replace(options, provider=self.name, stream=True, switches=switches)
        encoded = DIALECTS[self.dialect].encode(context, options)
        body = as_bytes(encoded.body)
        notes.losses, notes.supplied = encoded.losses, encoded.supplied
        notes.request_hash = hashlib.sha256(body).hexdigest()
        return ProviderRequest(path=encoded.path, body=body, options=options)

    def explain(self, failed: AnswerFailed) -> AnswerFailed:
        return failed

    async def _open(self, request: ProviderRequest, notes: CallNotes) -> EventStream:
        began = time.monotonic()
        while True:
            notes.attempts += 1
            try:
                return await self._attempt(request, notes)
            except ProviderError as error:
                spent = time.monotonic() - began
                wait = wait_after(error, attempt=notes.attempts, spent=spent, timeouts=self.endpoint.timeouts)
                if wait is None:
                    raise
                logger.info("%s failed (%s), again in %.1f s.", self.name, type(error).__name__, wait)
                if notes.on_retry:
                    notes.on_retry(error, wait)
            await asyncio.sleep(wait)

    async def _attempt(self, request: ProviderRequest, notes: CallNotes) -> EventStream:
        endpoint = await self.reach()
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            **endpoint.request_headers(request.options.switches),
        }
        with network_errors(endpoint, has_begun=False):
            response = await connections.session(keeps_alive=self.keeps_alive).post(
                endpoint.url(request.path, model=request.options.model),
                data=request.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=endpoint.timeouts.connect, sock_read=endpoint.timeouts.idle
                ),
                allow_redirects=False,
            )
        try:
            notes.request_id = response.headers.get("request-id") or response.headers.get("x-request-id") or ""
            if not 200 <= response.status < 300:
                raise await _refusal(endpoint, response)
            return await _begun(endpoint, response)
        except BaseException:
            response.close()
            raise


class Route(NamedTuple):
    provider: HttpProvider
    model: Model

    @property
    def name(self) -> str:
        return f"{self.provider.name}/{self.model.name}"


async def _begun(endpoint: Endpoint, response: aiohttp.ClientResponse) -> EventStream:
    if response.content_type == "text/html":
        raise _wrong_address(endpoint, "answered with a web page")
    with network_errors(endpoint, has_begun=False):
        first = await connections.read_available(response.content)
    if not first:
        raise Unreachable(f"{host_of(endpoint.base_url)} sent an empty response", provider=endpoint.name)
    return EventStream(response, first, endpoint)


async def _refusal(endpoint: Endpoint, response: aiohttp.ClientResponse) -> ProviderError:
    if 300 <= response.status < 400:
        return _wrong_address(endpoint, "redirects to another address")
    failed = DIALECTS[endpoint.dialect].decode_error(response.status, await _beginning(response))
    wait = retry_after(response.headers)
    error = error_of(mask_secrets(failed, endpoint), provider=endpoint.name, retry_after=wait)
    # The vendor's header overrides the class of the error.
    if (value := response.headers.get("x-should-retry", "").lower()) in ("true", "false"):
        error.retry_helps = value == "true"
    return error


def _wrong_address(endpoint: Endpoint, what: str) -> ProviderError:
    problem = f"{host_of(endpoint.base_url)} {what}: check the base URL"
    return RequestRefused(problem, provider=endpoint.name, kind="not_found")


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """As much of an error as came in time: half of it is better than none."""
    read = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(ERROR_SECONDS):
            while len(read) < ERROR_BYTES and (chunk := await connections.read_available(response.content)):
                read += chunk
    return bytes(read[:ERROR_BYTES])


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    value = headers.get("retry-after", "")
    for text, unit in ((headers.get("retry-after-ms", ""), 1000), (value, 1)):
        with suppress(ValueError):
            if 0 <= (seconds := float(text) / unit) < float("inf"):
                return seconds
    with suppress(ValueError, OverflowError):
        at = parsedate_to_datetime(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max((at - (now or datetime.now(UTC))).total_seconds(), 0.0)
    return None


def wait_after(error: ProviderError, *, attempt: int, spent: float, timeouts: Timeouts) -> float | None:
    """Seconds until the next attempt; None if there is none."""
    if not error.retry_helps or attempt >= timeouts.attempts:
        return None
    wait = error.retry_after
    if wait is None:
        # A random part less, so that calls that failed together are not repeated together.
        wait = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) * random.uniform(0.75, 1.0)  # noqa: S311
    return wait if spent + wait <= timeouts.retry_within else None


async def fetch(endpoint: Endpoint, url: str, *, body: JsonObject | None = None) -> JsonObject:
    endpoint = replace(endpoint, timeouts=Timeouts(idle=DOCUMENT_SECONDS))
    with network_errors(endpoint, has_begun=False):
        async with connections.session().request(
            "GET" if body is None else "POST",
            url,
            data=None if body is None else as_bytes(body),
            headers={"Accept": "application/json", **endpoint.request_headers(endpoint.switches)},
            timeout=aiohttp.ClientTimeout(total=DOCUMENT_SECONDS),
            allow_redirects=False,
        ) as response:
            document = await response.content.read(DOCUMENT_BYTES)
            while not response.content.at_eof() and len(document) < DOCUMENT_BYTES:
                document += await response.content.read(DOCUMENT_BYTES - len(document))
    return _read_document(endpoint, response.status, document)


def _read_document(endpoint: Endpoint, status: int, document: bytes) -> JsonObject:
    if status >= 400:
        failed = DIALECTS[endpoint.dialect].decode_error(status, document)
        raise error_of(mask_secrets(failed, endpoint), provider=endpoint.name)
    with suppress(ValueError):
        if status == 200 and isinstance(listed := parse_json(document), Mapping):
            return listed
    problem = f"{host_of(endpoint.base_url)} does not list its models"
    raise RequestRefused(problem, provider=endpoint.name, kind="not_found")
