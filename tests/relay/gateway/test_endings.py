"""A reply whose final event was delivered is complete, whichever side closes the connection and when."""

import gzip
import json
import tracemalloc
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from bench.growth import assert_linear
from history.dialects import DIALECTS
from history.dialects.sse import Finality
from history.models import ApiKey
from relay.gateway.upstream.forwarding import ReplyEnd
from relay.providers import registry
from tests.clients import SMALLEST_CALLS, RunningRelay, open_reply
from tests.vendors.raw_upstream import RawUpstream, streamed_reply, use_raw_provider

# What passes through on the wire is the same on every database.
pytestmark = pytest.mark.any_database

# Of every dialect: what comes first, and the final event.
STREAMS: dict[str, tuple[bytes, bytes]] = {
    "openai-responses": (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","output_index":0,'
        b'"delta":"say \\"response.completed\\""}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1",'
        b'"status":"completed","output":[]}}\n\n',
    ),
    "openai-chat": (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"[DONE]"},"finish_reason":null}]}\n\n',
        b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    ),
    "anthropic-messages": (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","model":"model"}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"hi"}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
    "gemini-generate": (
        b'data: {"candidates":[{"content":{"parts":[{"text":"hi"}]}}]}\r\n\r\n',
        b'data: {"candidates":[{"content":{"parts":[{"text":"."}]},"finishReason":"STOP"}]}\r\n\r\n',
    ),
}
ADDRESSES = {name: path for name, (path, _) in SMALLEST_CALLS.items()} | {
    "gemini-generate": "/v1beta/models/model:streamGenerateContent?alt=sse"
}
EVERY = pytest.mark.parametrize("dialect", STREAMS)


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, "anthropic-messages")


def body_of(dialect: str) -> bytes:
    return json.dumps(SMALLEST_CALLS[dialect][1] | ({} if dialect == "gemini-generate" else {"stream": True})).encode()


@EVERY
def test_client_that_hangs_up_after_the_final_event_has_a_complete_reply(
    relay: RunningRelay, key: str, bare: RawUpstream, dialect: str
) -> None:
    use_raw_provider(bare, dialect)
    first, final = STREAMS[dialect]
    bare.says.append(streamed_reply(first, final[:9], 0.05, final[9:], 20.0))
    with open_reply(relay, ADDRESSES[dialect], body_of(dialect), headers={"x-api-key": key}) as answered:
        assert answered.response.read(len(first + final)) == first + final
    assert bare.heard[0].left.wait(5)
    (ended,) = relay.ended()
    assert (ended.reason, ended.status, relay.replied()) == ("done", 200, first + final)


@EVERY
def test_client_that_hangs_up_before_the_final_event_is_recorded_as_gone(
    relay: RunningRelay, key: str, bare: RawUpstream, dialect: str
) -> None:
    use_raw_provider(bare, dialect)
    first, final = STREAMS[dialect]
    begun = first + final[:-2]
    bare.says.append(streamed_reply(begun, 20.0))
    with open_reply(relay, ADDRESSES[dialect], body_of(dialect), headers={"x-api-key": key}) as answered:
        answered.response.read(len(begun))
    assert relay.ended()[0].reason == "client_gone"


@EVERY
def test_upstream_that_breaks_off_after_the_final_event_has_ended(
    relay: RunningRelay, key: str, bare: RawUpstream, dialect: str
) -> None:
    use_raw_provider(bare, dialect)
    bare.says.append(streamed_reply(*STREAMS[dialect], ends=False))
    with open_reply(relay, ADDRESSES[dialect], body_of(dialect), headers={"x-api-key": key}) as answered:
        assert answered.read() == b"".join(STREAMS[dialect])
    assert not answered.is_cut
    assert relay.ended()[0].reason == "done"


@pytest.mark.parametrize("dialect", ["openai-responses", "openai-chat", "anthropic-messages"])
@pytest.mark.parametrize("caller", ["same", "openai-chat", "anthropic-messages"])
def test_upstream_that_never_closes_does_not_hold_up_its_client(
    relay: RunningRelay, key: str, bare: RawUpstream, monkeypatch: pytest.MonkeyPatch, dialect: str, caller: str
) -> None:
    monkeypatch.setattr("relay.providers.event_stream.LINGER_SECONDS", 60)
    caller = dialect if caller == "same" else caller
    use_raw_provider(bare, dialect)
    first, final = STREAMS[dialect]
    final += b"data: [DONE]\n\n" if dialect == "openai-chat" else b""
    bare.says.append(streamed_reply(first, final, 20.0))
    with open_reply(relay, ADDRESSES[caller], body_of(caller), headers={"x-api-key": key}) as answered:
        assert answered.read()
    assert not answered.is_cut
    assert bare.heard[0].left.is_set() or bare.heard[0].left.wait(5)  # it was the relay that hung up
    assert relay.ended()[0].reason == "done"


def test_client_gone_after_the_final_event_is_counted_as_usual(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    ApiKey.objects.update(tokens_per_day=1_000)
    use_raw_provider(bare, "openai-responses")
    final = (
        b'data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[],'
        b'"usage":{"input_tokens":7,"output_tokens":5}}}\n\n'
    )
    bare.says.append(streamed_reply(final, 20.0))
    with open_reply(relay, "/v1/responses", body_of("openai-responses"), headers={"x-api-key": key}) as answered:
        answered.response.read(len(final))
    assert relay.ended()[0].usage_hint["output_tokens"] == 5


# The scanner.


@EVERY
@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
def test_final_event_is_found_in_pieces_of_any_size(dialect: str, size: int) -> None:
    first, final = STREAMS[dialect]
    scanner = DIALECTS[dialect].final_event_scanner()
    for said, expected in ((first, False), (final, True)):
        for start in range(0, len(said), size):
            scanner.feed(said[start : start + size])
        assert (scanner.state > Finality.OPEN) == expected


def test_final_event_of_any_length_is_found_without_holding_it() -> None:
    dialect = DIALECTS["openai-responses"]
    scanner = dialect.final_event_scanner()
    scanner.feed(b'data: {"type":"response.completed","response":{"output":[{"result":"')
    for _ in range(100):
        scanner.feed(b"A" * 10_000)
    assert scanner.state is Finality.OPEN
    assert sum(map(len, scanner._held)) < 200_000
    assert scanner.feed(b'"}]}}\n\n') is Finality.OVER


@pytest.mark.parametrize("piece", [b"data: x\n\n", b"\n", b'"finish_reason":"', b"data: [DONE]", b"x"])
@pytest.mark.parametrize("chunk", [1_000, 100_000])
def test_final_events_are_sought_in_time_in_proportion_to_the_stream(piece: bytes, chunk: int) -> None:
    dialect = DIALECTS["openai-chat"]

    def scan(stream: bytes) -> None:
        scanner = dialect.final_event_scanner()
        for start in range(0, len(stream), chunk):
            scanner.feed(stream[start : start + chunk])
        scanner.close()

    assert_linear(scan, lambda size: piece * (size // len(piece)), size=200_000)


def test_answer_that_goes_on_after_a_reason_to_stop_is_open_again() -> None:
    dialect = DIALECTS["openai-chat"]
    scanner = dialect.final_event_scanner()
    goes_on = b'data: {"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}],"error": {}}\n\n'
    assert scanner.feed(STREAMS["openai-chat"][1]) is Finality.COMPLETE
    assert scanner.feed(goes_on) is Finality.OPEN


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip"])
def test_small_reply_that_unpacks_to_a_very_large_one_is_not_held(encoding: str) -> None:
    """The relay looks for its final event, and gives up in bounded memory."""
    event = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "' + b"x" * 1_000_000 + b'"}}]}\n\n'
    packing = zlib.compressobj(wbits=31)
    packed = b"".join([*(packing.compress(event) for _ in range(200)), packing.flush()])
    packed = gzip.compress(packed) if "," in encoding else packed
    call: Any = SimpleNamespace(address=SimpleNamespace(kind="chat"), wants_stream=True)
    reply: Any = SimpleNamespace(is_stream=True, status=200)
    end = ReplyEnd(call, reply, "openai-chat", encoding)
    tracemalloc.start()
    try:
        end.read(packed)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8_000_000
    assert not end.is_complete
