"""What counts for a key with limits: what a reply says, wherever it says it, and what came where it does not."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from history.models import Message
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.models import KeyUse
from relay.providers import registry
from relay.usage import counters
from relay.usage.prices import Price
from tests.clients import HI_BODY, RunningRelay, open_reply, send_request
from tests.relay.gateway.test_limits import key_with
from tests.servers.processes import wait_for
from tests.vendors.raw_upstream import RawUpstream, complete_reply, streamed_reply, use_raw_provider

pytestmark = pytest.mark.any_database

ANTHROPIC, CHAT, GEMINI = "anthropic-messages", "openai-chat", "gemini-generate"
A_DOLLAR_EACH = Price(model="mod*", input=Decimal(1_000_000), output=Decimal(1_000_000))
STREAMED_HI = json.dumps({**HI_BODY, "stream": True}).encode()


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, ANTHROPIC)


def used(relay: RunningRelay, key: str) -> tuple[int, int]:
    """Tokens and dollars of today."""
    day = send_request(relay, "/v1/me", method="GET", x_api_key=key).json["use"]["day"]
    return day["tokens"], day["cost"]


# Calls that are only passed on.

PASSED: list[tuple[str, str, Any, int]] = [
    (CHAT, "/v1/embeddings", {"data": [], "usage": {"prompt_tokens": 7, "total_tokens": 7}}, 7),
    (CHAT, "/v1/embeddings", {"usage": {"total_tokens": 7}, "data": [{"embedding": [0.1] * 9_000}]}, 7),
    (CHAT, "/v1/images/generations", {"data": [], "usage": {"input_tokens": 5, "output_tokens": 20}}, 25),
    (CHAT, "/v1/audio/transcriptions", {"text": "", "usage": {"input_tokens": 14, "output_tokens": 4}}, 18),
    (CHAT, "/v1/audio/transcriptions", {"text": "hi", "usage": {"type": "duration", "seconds": 9}}, 0),
    (CHAT, "/v1/moderations", {"results": []}, 0),
    (GEMINI, "/v1beta/models/model:embedContent", {"embedding": {}, "usageMetadata": {"promptTokenCount": 6}}, 6),
]


@pytest.mark.parametrize(("dialect", "path", "reply", "tokens"), PASSED)
def test_what_is_only_passed_on_counts_as_its_reply_says(
    relay: RunningRelay, ada: User, bare: RawUpstream, settings: Any, dialect: str, path: str, reply: Any, tokens: int
) -> None:
    settings.PARLEY_PRICES = (A_DOLLAR_EACH,)
    use_raw_provider(bare, dialect)
    key = key_with(ada, tokens_per_day=1_000)
    bare.says.append(complete_reply(json.dumps(reply).encode()))
    assert send_request(relay, path, {"model": "model", "input": "x"}, x_api_key=key).json == reply
    wait_for(lambda: used(relay, key) == (tokens, tokens), seconds=5, what="the count")
    assert relay.accepted() == []


def test_a_key_is_over_its_limit_by_embeddings_alone(relay: RunningRelay, ada: User, bare: RawUpstream) -> None:
    use_raw_provider(bare, CHAT)
    key = key_with(ada, tokens_per_day=10)
    bare.says.append(complete_reply(b'{"data":[],"usage":{"prompt_tokens":10,"total_tokens":10}}'))
    assert send_request(relay, "/v1/embeddings", {"model": "model", "input": "x"}, x_api_key=key).status == 200
    wait_for(lambda: used(relay, key)[0] == 10, seconds=5, what="the count")
    assert send_request(relay, "/v1/embeddings", {"model": "model", "input": "x"}, x_api_key=key).status == 429


def test_what_is_fetched_again_is_not_counted_again(relay: RunningRelay, ada: User, bare: RawUpstream) -> None:
    use_raw_provider(bare, CHAT, paths=("GET /v1/responses/*",))
    key = key_with(ada, tokens_per_day=10)
    bare.says.append(complete_reply(b'{"id":"resp_1","usage":{"input_tokens":9,"output_tokens":9}}'))
    assert send_request(relay, "/v1/responses/resp_1", method="GET", x_api_key=key).status == 200
    counters.sync()
    assert used(relay, key) == (0, 0)


# Streams that break off.


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def text(words: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": words})


BEGUN = event("message_start", message={"id": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}) + event(
    "content_block_start", index=0, content_block={"type": "text", "text": ""}
)


@pytest.mark.parametrize("pieces", [[text("word " * 2_000)] * 5, [text("word ")] * 10_000, [text("word " * 10_000)]])
def test_a_stream_that_is_left_counts_the_text_that_came(
    relay: RunningRelay, ada: User, bare: RawUpstream, pieces: list[bytes]
) -> None:
    key = key_with(ada, tokens_per_day=1_000_000)
    said = b"".join((BEGUN, *pieces))
    bare.says.append(streamed_reply(said, 20.0))
    with open_reply(relay, "/v1/messages", STREAMED_HI, headers={"x-api-key": key}) as left:
        left.response.read(len(said))
    hint = relay.ended()[0].usage_hint
    assert (hint["source"], hint["input_tokens"]) == ("partial", 10)
    # In one piece that is larger than what is kept of a reply, only its size is known.
    assert (8_000 if len(pieces) > 1 else 1_000) < hint["output_tokens"] < 13_000
    wait_for(lambda: used(relay, key)[0] == 10 + hint["output_tokens"], seconds=5, what="the count")


def test_a_stream_that_says_how_much_it_was_counts_that(relay: RunningRelay, ada: User, bare: RawUpstream) -> None:
    key = key_with(ada, tokens_per_day=1_000_000)
    end = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
    bare.says.append(streamed_reply(BEGUN, text('"message_delta" ' * 500), end, event("message_stop")))
    send_request(relay, "/v1/messages", STREAMED_HI, x_api_key=key)
    hint = relay.ended()[0].usage_hint
    assert (hint["source"], hint["output_tokens"]) == ("provider", 3)


# Replies that say nothing.

PIECE = {"id": "c", "object": "chat.completion.chunk", "model": "model"}
UNCOUNTED = streamed_reply(
    *[b"data: %s\n\n" % json.dumps({**PIECE, "choices": [{"index": 0, "delta": {"content": "a "}}]}).encode()] * 100,
    b"data: %s\n\n" % json.dumps({**PIECE, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).encode(),
    b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("wants_stream", [True, False])
def test_a_translated_reply_is_estimated_by_what_the_upstream_sent(
    relay: RunningRelay, ada: User, bare: RawUpstream, wants_stream: bool
) -> None:
    use_raw_provider(bare, CHAT)
    key = key_with(ada, tokens_per_day=1_000_000)
    bare.says.append(UNCOUNTED)
    assert send_request(relay, "/v1/messages", {**HI_BODY, "stream": wants_stream}, x_api_key=key).status == 200
    hint = relay.ended()[0].usage_hint
    assert hint["source"] == "estimated"
    assert 100 < hint["output_tokens"] < 400


def test_digester_and_limits_estimate_alike(relay: RunningRelay, ada: User, bare: RawUpstream) -> None:
    use_raw_provider(bare, CHAT)
    bare.says.append(UNCOUNTED)
    assert send_request(relay, "/v1/messages", HI_BODY, x_api_key=key_with(ada)).status == 200
    relay.ended()
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    assert Message.objects.get(kind="model_output").usage_source == "estimated"
    assert 100 < KeyUse.objects.get().tokens < 400


# Counts that fail.


def test_a_count_that_fails_costs_neither_the_reply_nor_its_end(
    relay: RunningRelay, ada: User, bare: RawUpstream, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PARLEY_PRICES = (Price(model="model", input=Decimal("Infinity")),)
    key = key_with(ada, tokens_per_day=1_000_000)
    reply = b'{"usage":{"input_tokens":3,"output_tokens":2}}'
    bare.says.append(complete_reply(reply))
    answered = send_request(relay, "/v1/messages", HI_BODY, x_api_key=key)
    assert (answered.status, answered.body, answered.is_cut) == (200, reply, False)
    (ended,) = relay.ended()
    assert (ended.reason, ended.usage_hint["input_tokens"]) == ("done", 3)
    assert "cannot be counted" in caplog.text
