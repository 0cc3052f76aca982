"""A client that sends exactly what it is given, and keeps exactly what it gets."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.relay.gateway.relayed import Relay

HI: dict[str, Any] = {"model": "model", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
# Of every language: an address, and the smallest request.
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic-messages": ("/v1/messages", HI),
    "openai-chat": ("/v1/chat/completions", HI),
    "openai-responses": ("/v1/responses", {"model": "model", "input": "hi", "max_output_tokens": 9}),
    "gemini-generate": ("/v1beta/models/model:generateContent", CONTENTS),
}


class Answered:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.response = response
        self.is_cut = False

    def read(self) -> bytes:
        """All of it, or as much as came before the connection broke."""
        try:
            return self.response.read()
        except http.client.IncompleteRead as error:
            self.is_cut = True
            return error.partial


@contextmanager
def asking(
    relay: Relay, path: str, body: bytes = b"", *, method: str = "POST", headers: Mapping[str, str] | None = None
) -> Iterator[Answered]:
    """Inside it, the reply is still on its way."""
    connection = http.client.HTTPConnection(urlsplit(relay.url).netloc, timeout=60)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
        yield Answered(connection.getresponse())
    finally:
        connection.close()


class Asked:
    """A reply that has been read."""

    def __init__(self, answered: Answered) -> None:
        self.status, self.headers = answered.status, answered.headers
        self.body = answered.read()
        self.is_cut = answered.is_cut

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    relay: Relay, path: str, body: bytes | Mapping[str, Any] = b"", *, method: str = "POST", **headers: str
) -> Asked:
    """`x_api_key="…"` is the header x-api-key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    with asking(relay, path, sent, method=method, headers=named) as answered:
        return Asked(answered)
