"""Replies of more than 64 KB are never parsed on the event loop: other callers would wait."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from history.access import keys
from history.dialects import json_access, reply_decoder
from project.accounts.models import User
from relay.gateway.references import issued_ids, ownership
from relay.gateway.upstream.upstream_request import UpstreamRequest
from relay.models import IssuedId
from relay.providers import registry
from relay.providers.connections import RawRequest
from relay.runtime.event_loop import LARGE
from tests.clients import SMALLEST_CALLS, RunningRelay, open_reply, send_request
from tests.relay.digest.relayed import half_bytes, model_answer
from tests.servers.processes import wait_for
from tests.vendors import Vendors
from tests.vendors.raw_upstream import RawUpstream, complete_reply, streamed_reply, use_raw_provider
from tests.vendors.setup import use_one_provider

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic-messages", "openai-chat", "openai-responses", "gemini-generate"
LONG = "One two three. " * 20_000


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, ANTHROPIC)


class Threads:
    """Where texts were parsed: the relay's event loop runs in the thread called "relay"."""

    def __init__(self) -> None:
        self.on_the_loop: list[int] = []
        self.elsewhere: list[int] = []

    def note(self, size: int) -> None:
        here = self.on_the_loop if threading.current_thread().name == "relay" else self.elsewhere
        here.append(size)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    noted, parsed, decode = Threads(), json_access.parse_json, issued_ids.IssuedIdScanner._read

    def note_event(text: str) -> object:
        noted.note(len(text))
        return parsed(text)

    def note_line(names: issued_ids.IssuedIdScanner, line: bytes) -> None:
        noted.note(len(line))
        decode(names, line)

    monkeypatch.setattr(reply_decoder, "parse_json", note_event)
    monkeypatch.setattr(issued_ids.IssuedIdScanner, "_read", note_line)
    return noted


def call_relay(relay: RunningRelay, dialect: str, secret: str) -> None:
    path, body = SMALLEST_CALLS[dialect]
    with open_reply(relay, path, json.dumps(body).encode(), headers={"x-api-key": secret}) as answered:
        answered.read()
    relay.ended()


@pytest.mark.parametrize("dialect", [ANTHROPIC, CHAT, RESPONSES, GEMINI])
def test_a_reply_that_breaks_off_is_counted_beside_the_loop(
    relay: RunningRelay, ada: User, bare: RawUpstream, threads: Threads, dialect: str
) -> None:
    use_raw_provider(bare, dialect)
    limited = keys.create(name="limited", owner=ada, recording="full", tokens_per_day=10**9)
    bare.says.append(streamed_reply(half_bytes(dialect, model_answer(LONG, usage=None)), ends=False))
    call_relay(relay, dialect, limited.secret)
    [ended] = relay.ended()
    assert ended.usage_hint["output_tokens"] > 10_000
    assert (max(threads.on_the_loop, default=0) <= LARGE, max(threads.elsewhere) > LARGE) == (True, True)


@pytest.mark.parametrize("is_stream", [True, False])
def test_the_names_in_a_long_line_are_read_beside_the_loop(
    relay: RunningRelay, key: str, bare: RawUpstream, threads: Threads, is_stream: bool
) -> None:
    use_raw_provider(bare, RESPONSES)
    item: dict[str, Any] = {"id": "ig_1", "type": "image_generation_call", "result": "x" * 300_000}
    done = {"type": "response.output_item.done", "item": item}
    reply = {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
    events = [{"type": "response.created", "response": {"id": "resp_1"}}, done]
    events += [{"type": "response.completed", "response": reply | {"output": []}}]
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    bare.says.append(streamed_reply(*lines) if is_stream else complete_reply(json.dumps(reply).encode()))
    call_relay(relay, RESPONSES, key)
    wait_for(lambda: issued() == {"resp_1", "ig_1"}, seconds=5, what="both names")
    assert (max(threads.on_the_loop, default=0) <= LARGE, max(threads.elsewhere) > LARGE) == (True, True)


@pytest.mark.parametrize("dialect", [CHAT, GEMINI])
def test_a_long_event_is_translated_beside_the_loop(
    relay: RunningRelay, key: str, bare: RawUpstream, threads: Threads, dialect: str
) -> None:
    use_raw_provider(bare, dialect)
    bare.says.append(streamed_reply(half_bytes(dialect, model_answer(LONG, usage=None)), ends=False))
    call_relay(relay, ANTHROPIC, key)
    assert (max(threads.on_the_loop, default=0) <= LARGE, max(threads.elsewhere) > LARGE) == (True, True)


@pytest.mark.parametrize("second", [CHAT, RESPONSES])
def test_a_long_conversation_that_a_short_call_continues_is_encoded_beside_the_loop(
    relay: RunningRelay, key: str, vendors: Vendors, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    encoders, make = [], UpstreamRequest.make

    def note_thread(request: UpstreamRequest, *arguments: Any) -> RawRequest:
        encoders.append(threading.current_thread().name)
        return make(request, *arguments)

    use_one_provider(vendors, CHAT)
    first = send_request(relay, "/v1/responses", {"model": "model", "input": LONG}, authorization=f"Bearer {key}")
    monkeypatch.setattr(UpstreamRequest, "make", note_thread)
    use_one_provider(vendors, second)
    then = {"model": "model", "input": "Go on.", "previous_response_id": first.json["id"]}
    assert send_request(relay, "/v1/responses", then, authorization=f"Bearer {key}").status == 200
    assert len(json.dumps(vendors.requests[-1].body)) > LARGE
    assert encoders
    assert "relay" not in encoders


def issued() -> set[str]:
    ownership.flush_issued_ids()
    return set(IssuedId.objects.values_list("name", flat=True))
