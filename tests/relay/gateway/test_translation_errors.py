"""Different languages, and an upstream that misbehaves: an answer that is whole arrives, an error says what it is."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zstandard

from bench.growth import assert_linear
from history.access import keys
from history.db.process_state import process_state
from history.models import Exchange
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.gateway.call import decompression
from relay.gateway.call.errors import hide_addresses
from relay.providers import registry
from relay.providers.base import Model, Rule, Target
from relay.providers.endpoints import Endpoint, Timeouts
from relay.providers.http import HttpProvider
from tests.clients import HI_BODY, RunningRelay, open_reply, send_request
from tests.vendors.raw_upstream import RawReply, RawUpstream, complete_reply, streamed_reply

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = pytest.mark.any_database

ANSWER = (
    b'data: {"id":"c","model":"model","choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":null}]}\n\n',
    b'data: {"id":"c","model":"model","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
)
MESSAGE = {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
WHOLE = json.dumps({"id": "c", "model": "model", "choices": [MESSAGE]}).encode()
REFUSED = b'{"error":{"message":"messages.0 is bad","type":"invalid_request_error","code":null}}'


def chat_at(upstream: RawUpstream, name: str = "chat") -> HttpProvider:
    return HttpProvider(
        Endpoint(
            name=name,
            dialect="openai-chat",
            base_url=upstream.url,
            api_key="sk-upstream",
            key_header="bearer",
            models=(Model(name="model"),),
            lists_models=False,
            timeouts=Timeouts(connect=2, idle=5),
        )
    )


@pytest.fixture
def bare(providers: registry.Router) -> Iterator[RawUpstream]:
    with RawUpstream() as upstream:
        process_state.set(registry.Router([chat_at(upstream)]))
        yield upstream


# After the end.


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("stays_open", [True, False])
def test_trouble_with_the_connection_after_the_end_of_an_answer_is_none(
    relay: RunningRelay,
    key: str,
    bare: RawUpstream,
    monkeypatch: pytest.MonkeyPatch,
    stays_open: bool,
    is_streamed: bool,
) -> None:
    monkeypatch.setattr("relay.providers.event_stream.LINGER_SECONDS", 0.2)
    bare.says.append(streamed_reply(*ANSWER, *([20.0] if stays_open else []), ends=False))
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "stream": is_streamed}, x_api_key=key)
    assert answered.status == 200
    assert b"Hello." in answered.body
    assert b"error" not in answered.body
    assert (b"message_stop" in answered.body) == is_streamed
    assert b'"output_tokens":2' in answered.body
    assert relay.ended()[0].reason == "done"
    assert not stays_open or bare.heard[0].left.wait(5)


def test_upstream_that_never_closes_after_its_end_is_cut(
    relay: RunningRelay, key: str, bare: RawUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.providers.event_stream.LINGER_SECONDS", 0.2)
    comments = [piece for _ in range(100) for piece in (0.1, b": still here\n\n")]
    bare.says.append(streamed_reply(*ANSWER, *comments))
    assert send_request(relay, "/v1/messages", HI_BODY, x_api_key=key).status == 200
    assert bare.heard[0].left.wait(5)


# Errors.


def test_an_error_of_one_of_several_upstreams_is_told_in_its_own_words(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any
) -> None:
    process_state.set(registry.Router([chat_at(bare, "a"), chat_at(bare, "b")]))
    targets = (Target(provider="a", model="model"), Target(provider="b", model="model"))
    settings.PARLEY_ROUTES = (Rule(model="m", targets=targets),)
    bare.says.append(complete_reply(REFUSED, status="400 Bad Request"))
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "model": "m"}, x_api_key=key)
    assert answered.status == 400
    assert answered.json["error"] == {"type": "invalid_request_error", "message": "messages.0 is bad"}
    assert relay.replied() == REFUSED


def test_half_of_an_error_is_still_that_error(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    head = b"HTTP/1.1 429 Busy\r\ncontent-type: application/json\r\ncontent-length: 999\r\nretry-after: 3\r\n\r\n"
    bare.says.append(RawReply(head + REFUSED))
    answered = send_request(relay, "/v1/messages", HI_BODY, x_api_key=key)
    assert (answered.status, answered.headers["retry-after"]) == (429, "3")


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    ("said", "word"),
    [
        (complete_reply(b"", status="302 Found", headers=("location: http://127.0.0.1:1/x",)), "another address"),
        (complete_reply(b"<html>Sign in</html>", headers=("content-type: text/html; charset=utf-8",)), "a web page"),
    ],
)
def test_a_redirect_or_a_web_page_means_that_the_address_is_wrong(
    relay: RunningRelay, key: str, bare: RawUpstream, said: RawReply, word: str, is_streamed: bool
) -> None:
    bare.says.append(said)
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "stream": is_streamed}, x_api_key=key)
    assert answered.status == 502
    assert word in answered.json["error"]["message"]
    ended = relay.ended()[0]
    assert ended.reason == ("upstream_unreadable" if word == "a web page" else "upstream_error")
    assert word in ended.error


RUBBISH = [b"", b"{}", b"<html>Sign in</html>", b"\x00\xff\xfe" * 500, b"upstream connect error"]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("body", RUBBISH)
def test_what_is_no_answer_at_all_is_not_called_half_an_answer(
    relay: RunningRelay, key: str, bare: RawUpstream, body: bytes, is_streamed: bool
) -> None:
    bare.says.append(complete_reply(body))
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "stream": is_streamed}, x_api_key=key)
    assert (answered.status, answered.headers["x-parley-error"]) == (502, "upstream_unreadable")
    assert "Check its base URL" in answered.json["error"]["message"]
    ended = relay.ended()[0]
    assert (ended.reason, ended.error) == ("upstream_unreadable", answered.json["error"]["message"])


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "text/plain", "application/json"])
@pytest.mark.parametrize("body", [b"", b"<html>Sign in</html>", b"\x00\xff\xfe" * 500, b"upstream connect error"])
def test_rubbish_in_the_callers_own_dialect_is_an_error_with_its_own_code(
    relay: RunningRelay, key: str, bare: RawUpstream, body: bytes, kind: str
) -> None:
    bare.says.append(complete_reply(body, headers=(f"content-type: {kind}",)))
    answered = send_request(relay, "/v1/chat/completions", HI_BODY, x_api_key=key)
    assert (answered.status, answered.headers["x-parley-error"]) == (502, "upstream_unreadable")
    message = answered.json["error"]["message"]
    assert ("a web page" in message) == ("html" in kind)
    ended = relay.ended()[0]
    assert (ended.reason, ended.status, ended.error) == ("upstream_unreadable", 200, message)
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    exchange = Exchange.objects.get()
    assert (exchange.end_reason, exchange.error) == ("upstream_unreadable", message)
    assert exchange.message is not None
    assert (exchange.message.status, exchange.message.content) == ("failed", f"【错误】{message}")


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"{}", b"data: <html>\n\n"])
def test_rubbish_in_a_stream_is_recorded_as_what_it_is(
    relay: RunningRelay, key: str, bare: RawUpstream, body: bytes
) -> None:
    """A stream is passed on at once, so its client sees the bytes; the record says that they are no answer."""
    bare.says.append(streamed_reply(body))
    assert send_request(relay, "/v1/chat/completions", {**HI_BODY, "stream": True}, x_api_key=key).body == body
    relay.ended()
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    exchange = Exchange.objects.get()
    assert (exchange.end_reason, "invalid response" in exchange.error) == ("upstream_unreadable", True)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("recording", ["full", "redacted", "no_replies"])
def test_a_stream_that_ends_without_a_byte_is_not_an_answer(
    relay: RunningRelay, ada: User, bare: RawUpstream, path: str, recording: str
) -> None:
    """Codex and Gemini CLI ask again after it, so a complete answer without words would stand before the real one."""
    key = keys.create(name="empty", owner=ada, recording=recording).secret
    bare.says.append(complete_reply(b"", headers=("content-type: text/event-stream",)))
    body = {**HI_BODY, "input": "Hi"} if path.endswith("responses") else HI_BODY
    send_request(relay, path, {**body, "stream": True}, x_api_key=key)
    relay.ended()
    Digester(relay.journal.folder, name="test", end_wait=0).step()
    exchange = Exchange.objects.get()
    assert (exchange.end_reason, bool(exchange.error)) == ("upstream_unreadable", True)
    assert exchange.message is not None
    assert (exchange.message.status, exchange.message.content) == ("failed", f"【错误】{exchange.error}")


# Cuts.


@pytest.mark.parametrize(
    "path", ["/v1/messages", "/v1/responses", "/v1beta/models/model:streamGenerateContent?alt=sse"]
)
def test_a_cut_looks_like_a_cut_in_every_dialect(relay: RunningRelay, key: str, bare: RawUpstream, path: str) -> None:
    """Claude Code tries again after a cut connection, and gives up after an `error` event."""
    bare.says.append(streamed_reply(ANSWER[0], ends=False))
    body = {**HI_BODY, "stream": True, "input": "hi", "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    with open_reply(relay, path, json.dumps(body).encode(), headers={"x-api-key": key}) as answered:
        said = answered.read()
    assert answered.is_cut
    assert b"Hello." in said
    assert b"error" not in said.replace(b'"error":null', b"")
    assert relay.ended()[0].reason == "upstream_cut"


def test_a_cut_before_the_first_word_is_an_error_that_says_to_try_again(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    bare.says.append(streamed_reply(b": thinking\n\n", ends=False))
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "stream": True}, x_api_key=key)
    assert answered.status == 500
    assert relay.ended()[0].reason == "upstream_cut"


# Addresses.


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_an_upstream_that_is_not_reached_is_named_without_its_address(
    relay: RunningRelay, key: str, bare: RawUpstream, path: str
) -> None:
    address = bare.url.removeprefix("http://")
    bare.__exit__(None, None, None)
    answered = send_request(relay, path, HI_BODY, x_api_key=key)
    assert answered.status >= 500
    assert address not in str(answered.json) + str(answered.headers)
    assert "The provider chat cannot be reached" in answered.json["error"]["message"]
    ended = relay.ended()[0]
    assert address not in ended.error + str(ended.attempts)


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("status", ["400 Bad Request", "200 OK"])
def test_a_translated_error_tells_no_address(
    relay: RunningRelay, key: str, bare: RawUpstream, status: str, is_streamed: bool
) -> None:
    own, other = bare.url, "http://gpu-box.internal:8080/v1/chat"
    told = f"Cannot POST {own}/chat/completions: 10.1.2.3:9000 said no, see {other} and https://docs.example.com/errors"
    error = json.dumps({"error": {"message": told, "type": "invalid_request_error"}}).encode()
    bare.says.append(
        complete_reply(error, status=status) if status[0] == "4" else streamed_reply(b"data: %s\n\n" % error)
    )
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "stream": is_streamed}, x_api_key=key)
    said = answered.body.decode()
    assert "the provider chat" in said
    assert "https://docs.example.com/errors" in said
    for address in (own, own.removeprefix("http://"), "127.0.0.1", "10.1.2.3", "gpu-box"):
        assert address not in said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Connection to api.acme.com failed", "Connection to the provider acme failed"),
        ("https://api.acme.com/v1/chat: not found", "the provider acme not found"),
        ("see https://acme.com/docs", "see https://acme.com/docs"),
        ("api.acme.com.example.org", "api.acme.com.example.org"),
        ("at 12:30 the ratio 3:45 was fine", "at 12:30 the ratio 3:45 was fine"),
        ("dial tcp 192.168.1.7:11434: refused", "dial tcp •••: refused"),
        ("http://ollama:11434/api and 8.8.8.8", "••• and 8.8.8.8"),
        ("http://[fd00::7]:8080/v1 or [::1]:8080", "••• or •••"),
        ("unix:///run/model.sock is gone", "••• is gone"),
        ("http://[broken", "•••"),
    ],
)
def test_addresses_are_hidden_and_other_words_stay(text: str, shown: str) -> None:
    endpoint = Endpoint(name="acme", dialect="openai-chat", base_url="https://api.acme.com/v1")
    assert hide_addresses(text, endpoint) == shown


@pytest.mark.parametrize("piece", ["a-", "a.", "api.acme.com", "http://a ", "10.", "[::"])
def test_hiding_addresses_takes_time_in_proportion_to_the_text(piece: str) -> None:
    endpoint = Endpoint(name="acme", dialect="openai-chat", base_url="https://api.acme.com/v1")
    assert_linear(lambda text: hide_addresses(text, endpoint), lambda size: piece * (size // len(piece)), size=60_000)


# Compressed without a request for it.


def packed_by_gzip(body: bytes) -> bytes:
    """In two members, as a proxy may write it."""
    return gzip.compress(body[:40]) + gzip.compress(body[40:])


def packed_without_header(body: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(body) + packing.flush()


def packed_twice(body: bytes) -> bytes:
    return gzip.compress(zstandard.compress(body))


PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", packed_by_gzip),
    ("deflate", zlib.compress),
    ("deflate", packed_without_header),
    ("zstd", zstandard.compress),
    ("zstd, gzip", packed_twice),
]
every_packing = pytest.mark.parametrize(("encoding", "packed"), PACKED)


def test_all_that_is_read_here_is_tried() -> None:
    assert {encoding for encoding, _ in PACKED} >= set(decompression.READ_HERE)


def headers_of(encoding: str) -> tuple[str, str]:
    return "content-type: application/json", f"content-encoding: {encoding}"


@every_packing
def test_a_compressed_reply_is_translated_and_recorded_as_it_came(
    relay: RunningRelay, key: str, bare: RawUpstream, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    sent = packed(WHOLE)
    bare.says.append(complete_reply(sent, headers=headers_of(encoding)))
    answered = send_request(relay, "/v1/messages", HI_BODY, x_api_key=key)
    assert answered.json["content"] == [{"type": "text", "text": "Hello."}]
    assert "content-encoding" not in answered.headers
    assert relay.ended()[0].reason == "done"
    assert relay.replied() == sent


@every_packing
def test_a_compressed_stream_is_translated_in_pieces_of_any_size(
    relay: RunningRelay, key: str, bare: RawUpstream, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    sent = packed(b"".join(ANSWER))
    pieces = [sent[place : place + 7] for place in range(0, len(sent), 7)]
    bare.says.append(streamed_reply(*pieces, headers=(f"content-encoding: {encoding}",)))
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "stream": True}, x_api_key=key)
    assert b"Hello." in answered.body
    assert b"message_stop" in answered.body


def test_a_compressed_stream_is_passed_on_as_it_comes(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    """The upstream never sends the rest."""
    packing = zlib.compressobj(wbits=31)
    first = packing.compress(ANSWER[0]) + packing.flush(zlib.Z_SYNC_FLUSH)
    bare.says.append(streamed_reply(first, 20.0, headers=("content-encoding: gzip",)))
    with open_reply(
        relay, "/v1/messages", json.dumps({**HI_BODY, "stream": True}).encode(), headers={"x-api-key": key}
    ) as asked:
        while b"Hello." not in asked.response.readline():
            pass
    assert bare.heard[0].left.wait(5)


@every_packing
def test_a_compressed_error_is_told_in_its_own_words(
    relay: RunningRelay, key: str, bare: RawUpstream, encoding: str, packed: Callable[[bytes], bytes]
) -> None:
    bare.says.append(complete_reply(packed(REFUSED), status="400 Bad Request", headers=headers_of(encoding)))
    assert send_request(relay, "/v1/messages", HI_BODY, x_api_key=key).json["error"]["message"] == "messages.0 is bad"


@pytest.mark.parametrize(("encoding", "word"), [("br", "content encoding br"), ("gzip", "cannot be decompressed")])
def test_what_cannot_be_unpacked_is_an_error_of_the_upstream_in_words(
    relay: RunningRelay, key: str, bare: RawUpstream, encoding: str, word: str
) -> None:
    bare.says.append(complete_reply(WHOLE, headers=headers_of(encoding)))
    answered = send_request(relay, "/v1/messages", HI_BODY, x_api_key=key)
    assert answered.status == 500
    assert word in answered.json["error"]["message"]
    assert relay.ended()[0].reason == "upstream_error"
