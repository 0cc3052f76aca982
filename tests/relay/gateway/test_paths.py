"""Addresses as they are written: what is listed is all that can be reached, and what may pass goes on unchanged."""

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from history.db.process_state import process_state
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from tests.clients import RunningRelay, send_request
from tests.vendors.raw_upstream import RawUpstream, raw_endpoint, use_raw_provider

# What passes through on the wire is the same on every database.
pytestmark = pytest.mark.any_database

CONTENTS = b'{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}'


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, "anthropic-messages")


def serve(bare: RawUpstream, **changes: Any) -> None:
    process_state.set(registry.Router([HttpProvider(raw_endpoint(bare, **changes))]))


def sent(relay: RunningRelay, method: str, path: str, key: str, body: bytes = b"") -> int:
    """The status. Written to the socket itself: a client would tidy the path up first."""
    at = urlsplit(relay.url)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {key}\r\n"
    with socket.create_connection((at.hostname or "", at.port or 0), timeout=10) as connection:
        connection.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/../batches",
        "/v1/files/%2e%2e/batches",
        "/v1/files/a%2F..%2F..%2Fbatches",
        "/v1/files/%252e%252e/batches",
        "/v1/files/..%5cbatches",
        "/v1/files/./x",
        "/v1/files/..",
    ],
)
def test_nothing_beside_what_is_listed_can_be_reached(
    relay: RunningRelay, key: str, bare: RawUpstream, path: str
) -> None:
    serve(bare, paths=("GET /v1/files/*",))
    assert sent(relay, "GET", path, key) == 404
    assert bare.heard == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/gemini-x%2F..%2F..%2FcachedContents%3F:generateContent",
        "/v1beta/models/gemini-x/../../files:generateContent",
        "/v1beta/models/gemini%3Fx=:generateContent",
        "/v1beta/models/gemini%23:generateContent",
        "/v1beta/models/gemini%0D%0Ax:generateContent",
    ],
)
def test_the_name_of_a_model_is_no_way_to_another_address(
    relay: RunningRelay, key: str, bare: RawUpstream, path: str
) -> None:
    serve(bare, dialect="gemini-generate", key_header="x-goog-api-key", models=(), lists_models=True)
    assert sent(relay, "POST", path, key, CONTENTS) == 404
    assert bare.heard == []


@pytest.mark.parametrize("path", ["/v1/files/a%20b", "/v1/files/a%2Fb", "/v1/files/a%3Fb", "/v1/files/caf%C3%A9;x=1"])
def test_a_path_goes_on_as_it_was_written(relay: RunningRelay, key: str, bare: RawUpstream, path: str) -> None:
    serve(bare, paths=("GET /v1/files/*",))
    assert sent(relay, "GET", f"{path}?limit=2", key) == 200
    assert bare.heard[0].line == f"GET {path}?limit=2 HTTP/1.1"


def test_a_listed_path_has_no_deployment_at_azure(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    serve(bare, dialect="openai-chat", azure_api_version="2024-10-21", paths=("GET /v1/files/*",))
    assert sent(relay, "GET", "/v1/files/a?limit=2", key) == 200
    assert bare.heard[0].line == "GET /openai/files/a?api-version=2024-10-21&limit=2 HTTP/1.1"


@pytest.mark.parametrize(("written", "name"), [("qwen3:8b", "qwen3:8b"), ("team%2Fmodel", "team/model")])
def test_a_models_name_may_have_a_colon_or_a_slash(
    relay: RunningRelay, key: str, bare: RawUpstream, written: str, name: str
) -> None:
    serve(bare, dialect="gemini-generate", key_header="x-goog-api-key", models=(Model(name=name),))
    assert sent(relay, "POST", f"/v1beta/models/{written}:generateContent", key, CONTENTS) == 200
    assert bare.heard[0].line == f"POST /v1beta/models/{written}:generateContent HTTP/1.1"
    assert relay.accepted()[0].model == name


def test_what_belongs_to_anthropics_messages_is_refused_in_its_envelope(relay: RunningRelay, key: str) -> None:
    told = send_request(relay, "/v1/messages/batches", b"{}", x_api_key=key)
    assert (told.status, told.json["type"]) == (404, "error")
