"""Same language on both ends: bytes pass unmodified, both ways, and the journal has the same bytes."""

import gzip
import hashlib
import json
import socket
import threading
import time
import zlib
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import zstandard

from history.db.process_state import process_state
from history.dialects import DIALECTS, Switches
from history.models import ApiKey
from relay.gateway.call import bodies, decompression, json_scanner
from relay.gateway.call.client import Client
from relay.gateway.call.headers import headers_for_upstream
from relay.gateway.recording import Recording
from relay.providers import registry
from relay.providers.base import Rule, Target
from relay.providers.endpoints import Timeouts
from relay.providers.http import HttpProvider
from tests.clients import SMALLEST_CALLS, RunningRelay, open_reply, send_request
from tests.vendors.raw_upstream import (
    UPSTREAM_KEY,
    RawUpstream,
    complete_reply,
    raw_endpoint,
    streamed_reply,
    use_raw_provider,
)

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = [pytest.mark.any_database, pytest.mark.runs_first]

# No JSON encoder of ours would write it like this.
BODY = b'{ "model":"model","messages" : [{"role":"user","content":"\xe5\x97\xa8\\u00e9"}],\n\t"max_tokens":1e2,"n":[ ]}'
EVENTS = (b'event: ping\ndata: {"type":"ping"}\n\n', b"data: half of ", b"an event\r\n\r\n", b": their comment\n\n")


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, "anthropic-messages")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Requests.


def test_a_request_arrives_to_the_byte_and_is_in_the_journal_before_it_is_sent(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    send_request(relay, "/v1/messages?beta=true", BODY, x_api_key=key)
    assert digest(bare.heard[0].body) == digest(BODY) == digest(relay.accepted()[0].body)
    assert bare.heard[0].line == "POST /v1/messages?beta=true HTTP/1.1"
    assert relay.accepted()[0].at <= relay.ended()[0].at


def test_headers_pass_unless_they_are_credentials_between_hops_or_ours(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    passing = {"anthropic-beta": "a-2026,b-2026", "x-codex-turn-state": "s", "X-Brand-New": "1", "user-agent": "cli/1"}
    stopping = {
        "authorization": f"Bearer {key}",
        "cookie": "a=b",
        "x-forwarded-for": "10.0.0.1",
        "cf-ray": "x",
        "x-parley-new-session": "1",
        "x-crs-session-id": "abc",
        "accept-encoding": "gzip, br",
        "connection": "x-hop",
        "x-hop": "1",
    }
    send_request(relay, "/v1/messages?key=other&beta=true", BODY, **{**passing, **stopping})
    heard = bare.heard[0]
    assert {name.lower(): value for name, value in passing.items()}.items() <= heard.headers.items()
    assert not (stopping.keys() - {"accept-encoding", "connection"}) & heard.headers.keys()
    assert heard.headers["x-api-key"] == UPSTREAM_KEY
    assert heard.headers["accept-encoding"] == "identity"
    assert heard.line == "POST /v1/messages?beta=true HTTP/1.1"
    assert key not in heard.head


@pytest.mark.any_database
def test_headers_of_a_provider_that_differ_in_case_only_are_sent_once() -> None:
    own = {"anthropic-version": "2023-06-01", "Anthropic-Version": "2023-01-01"}
    sent = headers_for_upstream([("anthropic-version", "2022-01-01")], own)
    assert sent.getall("anthropic-version") == ["2023-01-01"]


def test_a_request_gets_no_header_that_its_caller_did_not_send(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    at = urlsplit(relay.url)
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: {len(BODY)}\r\n\r\n"
    with socket.create_connection((at.hostname, at.port), timeout=10) as caller:
        caller.sendall(head.encode() + BODY)
        assert b" 200 " in caller.recv(65_536)
    ours = {"host", "content-length", "accept-encoding", "x-api-key", "anthropic-version"}
    assert bare.heard[0].headers.keys() == ours


@pytest.mark.parametrize("title", [b"caf\xc3\xa9", b"caf\xe9"])
def test_headers_beyond_ascii_arrive_as_they_were_sent(
    relay: RunningRelay, key: str, bare: RawUpstream, title: bytes
) -> None:
    """In UTF-8, or as browsers and Node write them."""
    at = urlsplit(relay.url)
    head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\nconnection: x-hop\r\nx-hop: 1\r\n"
    head += b"x-api-key: %s\r\nx-title: %s\r\ncontent-length: %d\r\n\r\n" % (key.encode(), title, len(BODY))
    with socket.create_connection((at.hostname or "", at.port or 0), timeout=10) as connection:
        connection.sendall(head + BODY)
        assert b" 200 " in connection.makefile("rb").readline()
    heard = bare.heard[0]
    assert heard.headers["x-title"].encode("latin-1") == title
    assert ("x-title", "café") in relay.accepted()[0].headers
    assert "x-hop" not in heard.headers


def test_betas_that_the_caller_asks_for_are_not_replaced_by_ours(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    endpoint = raw_endpoint(bare, switches=Switches(inline_system=True))
    process_state.set(registry.Router([HttpProvider(endpoint)]))
    send_request(relay, "/v1/messages", BODY, x_api_key=key, anthropic_beta="context-1m")
    assert bare.heard[0].headers["anthropic-beta"] == "context-1m"


def test_no_credential_is_written_to_the_journal(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    send_request(relay, f"/v1/messages?key={key}", BODY, x_api_key=key, authorization=f"Bearer {key}")
    relay.ended()
    written = b"".join(path.read_bytes() for path in relay.journal.folder.iterdir())
    assert b"max_tokens" in written
    assert key.encode() not in written
    assert UPSTREAM_KEY.encode() not in written


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_request_passes_as_it_is_and_is_recorded_unpacked(
    relay: RunningRelay, key: str, bare: RawUpstream, encoding: str
) -> None:
    packed = gzip.compress(BODY) if encoding == "gzip" else zstandard.compress(BODY)
    assert send_request(relay, "/v1/messages", packed, x_api_key=key, content_encoding=encoding).status == 200
    assert digest(bare.heard[0].body) == digest(packed)
    assert bare.heard[0].headers["content-encoding"] == encoding
    assert relay.accepted()[0].body == BODY


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_a_request_may_be_compressed_in_several_pieces(
    relay: RunningRelay, key: str, bare: RawUpstream, coding: str, pack: Any
) -> None:
    packed = pack(BODY[:40]) + pack(BODY[40:])
    assert send_request(relay, "/v1/messages", packed, x_api_key=key, content_encoding=coding).status == 200
    assert (bare.heard[0].body, relay.accepted()[0].body) == (packed, BODY)


def test_thousands_of_pieces_are_not_copied_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a body of some megabytes, each byte compressed by itself, keeps a worker busy for hours."""
    read = 0

    class Counting:
        def __init__(self, wbits: int) -> None:
            self.inflating = zlib.decompressobj(wbits)

        def decompress(self, body: bytes, most: int = 0) -> bytes:
            nonlocal read
            read += len(body)
            return self.inflating.decompress(body, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inflating, name)

    monkeypatch.setattr(decompression, "zlib", SimpleNamespace(decompressobj=Counting, error=zlib.error))
    packed = b"\0".join([gzip.compress(b"a")] * 3_000)
    assert decompression.decompress(packed, "gzip", limit=3_000) == b"a" * 3_000
    assert read < 3_000 * json_scanner.SLICE
    with pytest.raises(bodies.TooLarge):
        decompression.decompress(packed, "gzip", limit=2_999)
    with pytest.raises(json_scanner.Unreadable):
        decompression.decompress(packed[:-1], "gzip", limit=3_000)


def test_a_form_names_the_model_that_a_route_leads_to(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any
) -> None:
    settings.PARLEY_ROUTES = (Rule(model="alias", targets=(Target(provider="bare", model="whisper-1"),)),)
    process_state.set(
        registry.Router([HttpProvider(raw_endpoint(bare, dialect="openai-chat", base_url=f"{bare.url}/v1"))])
    )
    form = '--b\r\ncontent-disposition: form-data; name="model"\r\n\r\n%s\r\n--b--\r\n'
    kind = "multipart/form-data; boundary=b"
    sent = (form % "alias").encode()
    assert send_request(relay, "/v1/audio/transcriptions", sent, x_api_key=key, content_type=kind).status == 200
    assert bare.heard[0].body == (form % "whisper-1").encode()


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        (
            "batchEmbedContents",
            b'{"requests":[{"model" : "models/%s","content":{"parts":[{"text":"a"}]}}, {"model":"x"}]}',
        ),
        ("embedContent", b'{"content":{"parts":[{"text":"\\"model\\":\\"models/alias\\""}]},"model":"models\\/%s"}'),
        ("countTokens", b'{"generateContentRequest":{"model":"%s","contents":[]}}'),
        ("generateContent", b'{"contents":[{"parts":[{"functionCall":{"args":{"model":"alias"}}}]}]}'),
    ],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_model_that_is_named_in_geminis_address_and_in_its_body_is_replaced_in_both(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any, verb: str, body: bytes, is_packed: bool
) -> None:
    settings.PARLEY_ROUTES = (Rule(model="alias", targets=(Target(provider="bare", model="real"),)),)
    use_raw_provider(bare, "gemini-generate")
    sent, wanted = body.replace(b"%s", b"alias"), body.replace(b"%s", b"real").replace(b"\\/real", b"/real")
    packed, encoding = (gzip.compress(sent), "gzip") if is_packed else (sent, "identity")
    path = f"/v1beta/models/alias:{verb}"
    assert send_request(relay, path, packed, x_api_key=key, content_encoding=encoding).status == 200
    heard = bare.heard[0]
    assert heard.line == f"POST /v1beta/models/real:{verb} HTTP/1.1"
    assert (heard.body, heard.headers.get("content-encoding")) == (
        (wanted, None) if wanted != sent else (packed, encoding)
    )


def test_a_number_of_thousands_of_digits_is_passed_over(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    body = b'{"model":"model","sessionId":"a","seed":%s}' % (b"9" * 5_000)
    assert send_request(relay, "/v1/messages", body, x_api_key=key).status == 200
    assert bare.heard[0].body == body.replace(b'"sessionId":"a",', b"")


def test_what_cannot_be_unpacked_is_refused_in_words(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    for body, encoding in ((BODY, "gzip"), (BODY, "zstd"), (gzip.compress(BODY)[:-9], "gzip")):
        answered = send_request(relay, "/v1/messages", body, x_api_key=key, content_encoding=encoding)
        assert answered.status == 400
        assert answered.json["error"]["type"] == "invalid_request_error"
    assert bare.heard == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_compression_that_is_not_read_here_is_a_415_that_says_what_is(
    relay: RunningRelay, key: str, bare: RawUpstream, dialect: str
) -> None:
    path, body = SMALLEST_CALLS[dialect]
    answered = send_request(relay, path, body, x_api_key=key, content_encoding="br", anthropic_version="2023-06-01")
    failed = DIALECTS[dialect].decode_error(answered.status, answered.body)
    assert (answered.status, failed.kind) == (415, "invalid_request")
    assert "Content encoding br" in failed.message
    assert answered.headers["accept-encoding"] == "gzip, deflate, zstd"
    assert bare.heard == []


def test_a_body_over_the_limit_is_refused_packed_or_not(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any
) -> None:
    settings.PARLEY_RELAY_BODY_MB = 1
    large = json.dumps({"model": "model", "messages": "x" * 1_100_000}).encode()
    assert send_request(relay, "/v1/messages", large, x_api_key=key).status == 413
    packed = gzip.compress(large)
    answered = send_request(relay, "/v1/messages", packed, x_api_key=key, content_encoding="gzip")
    assert (answered.status, answered.json["error"]["type"]) == (413, "request_too_large")
    assert bare.heard == []


def test_a_body_of_many_megabytes_passes(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    large = json.dumps({"model": "model", "messages": "嗨" * 3_000_000}, ensure_ascii=False).encode()
    assert send_request(relay, "/v1/messages", large, x_api_key=key).status == 200
    assert digest(bare.heard[0].body) == digest(large)
    named = large.replace(b"{", b'{"sessionId":"mine",', 1)
    assert send_request(relay, "/v1/messages", named, x_api_key=key).status == 200
    assert json.loads(bare.heard[1].body) == json.loads(large)


def test_the_field_session_id_is_cut_out_and_nothing_else(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    bodies = {
        b'{ "sessionId" : "mine", "model":"model" , "a":"\xe5\x97\xa8" }': b'{ "model":"model" , "a":"\xe5\x97\xa8" }',
        b'{"model":"model","m":{"sessionId":"x"},"sessionId":"mine"}': b'{"model":"model","m":{"sessionId":"x"}}',
    }
    for given, wanted in bodies.items():
        send_request(relay, "/v1/messages", given, x_api_key=key)
        assert bare.heard[-1].body == wanted
    assert [accepted.removed_session_field for accepted in relay.accepted()] == [True, True]
    assert len({accepted.session for accepted in relay.accepted()}) == 1


# Replies.


def test_a_reply_comes_back_to_the_byte(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    body = '{ "type":"message",\n "text" : "嗨" }'.encode()
    bare.says.append(complete_reply(body))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    relay.ended()
    assert digest(answered.body) == digest(body) == digest(relay.replied())


def test_a_stream_comes_back_to_the_byte(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    bare.says.append(streamed_reply(*EVENTS))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert relay.ended()[0].reason == "done"
    assert digest(answered.body) == digest(b"".join(EVENTS)) == digest(relay.replied())
    assert answered.headers["x-accel-buffering"] == "no"


def test_headers_of_a_reply_pass_and_ours_are_added(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    passing = {
        "request-id": "req_1",
        "anthropic-ratelimit-tokens-remaining": "7",
        "x-ratelimit-limit-requests": "9",
        "openai-processing-ms": "5",
        "x-codex-turn-state": "echo",
        "retry-after": "3",
    }
    lines = [f"{name}: {value}" for name, value in passing.items()]
    bare.says.append(complete_reply(b"{}", headers=["content-type: application/json", "set-cookie: a=b", *lines]))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert passing.items() <= answered.headers.items()
    assert "set-cookie" not in answered.headers
    assert answered.headers["x-parley-exchange-id"] == str(relay.ended()[0].exchange)
    assert answered.headers["x-parley-recording"] == "full"
    assert ("request-id", "req_1") in relay.ended()[0].response_headers


def test_what_an_upstream_says_of_its_own_connection_and_record_stays_there(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    lines = ["connection: x-hop", "x-hop: 1", "x-stays: 2", "x-parley-exchange-id: theirs"]
    bare.says.append(complete_reply(b"{}", headers=["content-type: application/json", *lines]))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        names = [name.lower() for name, _ in answered.response.getheaders()]
    assert "x-hop" not in names
    assert (names.count("x-stays"), names.count("x-parley-exchange-id")) == (1, 1)


def test_a_very_long_header_of_a_reply_passes(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    bare.says.append(complete_reply(b"{}", headers=["content-type: application/json", "x-policy: " + "p" * 20_000]))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert (answered.status, len(answered.headers["x-policy"])) == (200, 20_000)


def test_an_error_passes_untouched(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    body = b'{"type":"error", "error":{"type":"overloaded_error","message":"Overloaded"}}'
    bare.says.append(
        complete_reply(body, status="529 Site is overloaded", headers=["retry-after: 7", "x-should-retry: true"])
    )
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert (answered.status, answered.body) == (529, body)
    assert (answered.headers["retry-after"], answered.headers["x-should-retry"]) == ("7", "true")
    ended = relay.ended()[0]
    assert (ended.reason, ended.status, relay.replied()) == ("upstream_error", 529, body)


def test_a_reply_that_is_compressed_all_the_same_passes_as_it_is(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    packed = gzip.compress(b'{"type":"message"}')
    bare.says.append(complete_reply(packed, headers=["content-type: application/json", "content-encoding: gzip"]))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert (answered.body, answered.headers["content-encoding"]) == (packed, "gzip")


def test_redirect_is_not_followed(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    bare.says.append(complete_reply(b"", status="307 Temporary Redirect", headers=[f"location: {bare.url}/elsewhere"]))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert answered.status == 502
    assert "location" not in answered.headers
    assert len(bare.heard) == 1


def test_each_piece_is_passed_on_as_soon_as_it_is_there(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    go_on = threading.Event()
    bare.says.append(streamed_reply(EVENTS[0], go_on, EVENTS[1]))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        assert answered.response.read(len(EVENTS[0])) == EVENTS[0]
        go_on.set()
        assert answered.read() == EVENTS[1]


def test_comments_keep_a_silent_stream_alive_only_between_events_and_are_recorded_nowhere(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any
) -> None:
    settings.PARLEY_RELAY_KEEPALIVE_SECONDS = 0.1
    whole_event, first_half, second_half = EVENTS[0], EVENTS[1], EVENTS[2]
    bare.says.append(streamed_reply(0.25, whole_event, 0.25, first_half, 0.25, second_half))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    comment = b": keepalive\n\n"
    assert answered.body.replace(comment, b"") == whole_event + first_half + second_half
    assert first_half + second_half in answered.body
    assert answered.body.startswith(comment)
    assert comment in answered.body.partition(whole_event)[2]
    relay.ended()
    assert relay.replied() == whole_event + first_half + second_half


# Ends.


def test_a_stream_that_the_upstream_cuts_is_cut_for_the_caller_and_kept_as_far_as_it_came(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    bare.says.append(streamed_reply(*EVENTS[:2], ends=False))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        got = answered.read()
    assert got == b"".join(EVENTS[:2])
    assert answered.is_cut
    assert relay.ended()[0].reason == "upstream_cut"
    assert relay.replied() == got


def test_a_failure_of_ours_in_the_middle_of_a_reply_cuts_it(
    relay: RunningRelay, key: str, bare: RawUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Recording, chunk: bytes) -> None:
        raise RuntimeError("a fault of ours")

    cuts: list[Client] = []
    monkeypatch.setattr(Recording, "add", fail)
    monkeypatch.setattr(Client, "cut", lambda client: cuts.append(client))
    bare.says.append(streamed_reply(*EVENTS))
    assert send_request(relay, "/v1/messages", BODY, x_api_key=key).is_cut
    assert len(cuts) == 1


@pytest.mark.parametrize("mode", ["no_replies", "metadata"])
def test_words_of_a_reply_that_is_not_kept_are_no_error_either(
    relay: RunningRelay, key: str, bare: RawUpstream, mode: str
) -> None:
    ApiKey.objects.update(recording=mode)
    process_state.set(registry.Router([HttpProvider(raw_endpoint(bare, dialect="anthropic-messages"))]))
    overloaded = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"secret"}}\n\n'
    bare.says.append(streamed_reply(overloaded))
    asked = b'{"model":"model","messages":[{"role":"user","content":"hi"}]}'
    assert send_request(relay, "/v1/chat/completions", asked, x_api_key=key).status >= 500
    (ended,) = relay.ended()
    assert (ended.reason, ended.error) == ("upstream_error", "")


def test_an_upstream_that_says_nothing_for_too_long_is_a_timeout(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    process_state.set(registry.Router([HttpProvider(raw_endpoint(bare, timeouts=Timeouts(connect=2, idle=0.3)))]))
    bare.says.append(streamed_reply(EVENTS[0], 5.0))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        assert answered.read() == EVENTS[0]
    assert relay.ended()[0].reason == "timeout"
    bare.says.append(streamed_reply(EVENTS[0]))
    bare.says[0].pieces = (5.0, *bare.says[0].pieces)
    answered_in_time = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert (answered_in_time.status, answered_in_time.json["type"]) == (504, "error")


def test_an_upstream_that_is_not_there_is_told_in_the_callers_envelope(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    process_state.set(registry.Router([HttpProvider(raw_endpoint(bare, base_url="http://127.0.0.1:1"))]))
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert answered.status >= 500
    assert answered.json["error"]["type"] == "api_error"
    ended = relay.ended()[0]
    assert (ended.reason, ended.attempts[0].status) == ("upstream_error", 0)


def test_a_caller_who_leaves_ends_the_call_upstream(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    bare.says.append(streamed_reply(EVENTS[0], 10.0))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(len(EVENTS[0]))
    assert bare.heard[0].left.wait(5)
    assert relay.ended()[0].reason == "client_gone"
    assert relay.replied() == EVENTS[0]


def test_a_caller_who_leaves_before_any_answer_ends_the_call_too(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    bare.says.append(complete_reply(b"{}"))
    bare.says[0].pieces = (10.0, *bare.says[0].pieces)
    _ask_and_leave(relay, key, bare)
    assert bare.heard[0].left.wait(5)
    assert relay.ended()[0].reason == "client_gone"


def _ask_and_leave(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    """Once the vendor has heard of it."""
    address = urlsplit(relay.url)
    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: {len(BODY)}\r\n\r\n"
        connection.sendall(head.encode() + BODY)
        bare.wait_for(1)


def test_a_call_may_be_drained_when_the_caller_has_left(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any
) -> None:
    settings.PARLEY_RELAY_ON_DISCONNECT = "drain"
    go_on = threading.Event()
    bare.says.append(streamed_reply(EVENTS[0], go_on, *EVENTS[1:]))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(len(EVENTS[0]))
    time.sleep(1)  # a busy server takes a moment to notice that the caller has left
    go_on.set()
    assert relay.ended()[0].reason == "client_gone"
    assert relay.replied() == b"".join(EVENTS)


def test_draining_has_an_end(relay: RunningRelay, key: str, bare: RawUpstream, settings: Any) -> None:
    settings.PARLEY_RELAY_ON_DISCONNECT, settings.PARLEY_RELAY_DRAIN_SECONDS = "drain", 0.3
    bare.says.append(streamed_reply(EVENTS[0], 10.0))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(len(EVENTS[0]))
    assert bare.heard[0].left.wait(5)
    assert relay.ended()[0].reason == "client_gone"


# What is recorded.


@pytest.mark.parametrize(
    ("mode", "has_request", "has_reply"), [("metadata", False, False), ("no_replies", True, False)]
)
def test_what_a_key_does_not_want_kept_is_not_written(
    relay: RunningRelay, key: str, bare: RawUpstream, mode: str, has_request: bool, has_reply: bool
) -> None:
    ApiKey.objects.update(recording=mode)
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert answered.headers["x-parley-recording"] == mode
    relay.ended()
    assert (bool(relay.accepted()[0].body), bool(relay.replied())) == (has_request, has_reply)


def test_of_a_call_that_is_only_counted_nothing_of_its_address_and_headers_is_written(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    ApiKey.objects.update(recording="metadata")
    send_request(relay, "/v1/messages?word=secret", BODY, x_api_key=key, x_title="secret", user_agent="claude-cli/2")
    accepted = relay.accepted()[0]
    assert (accepted.query, accepted.headers) == ("", [("user-agent", "claude-cli/2")])


@pytest.mark.parametrize("by", ["key", "server"])
def test_nothing_at_all_is_written_where_recording_is_off(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any, by: str
) -> None:
    if by == "key":
        ApiKey.objects.update(recording="off")
    else:
        settings.CHAT_HISTORY_ENABLED = False
    answered = send_request(relay, "/v1/messages", BODY, x_api_key=key)
    assert (answered.status, answered.headers["x-parley-recording"]) == (200, "off")
    assert "x-parley-exchange-id" in answered.headers
    assert relay.accepted() == []
