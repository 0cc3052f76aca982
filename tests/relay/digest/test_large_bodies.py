"""Requests and replies that are too large to be parsed: they are put aside, and the session says so."""

from __future__ import annotations

import gzip
import hashlib
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from history.models import Exchange, Message
from history.record.loading import entries_of
from history.verification import verify
from relay.digest import bodies
from relay.digest.calls import RecordedAnswer
from relay.gateway.call.json_scanner import is_too_heavy
from tests.relay.digest.relayed import Relay, exchange_of, model_answer, path_of, reply_bytes, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"
MB = 1024 * 1024


@pytest.fixture(autouse=True)
def _small(settings: Any) -> None:
    settings.PARLEY_MAX_DIGEST_MB = 1


def body_of(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def reply_of(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


def send_reply(relay: Relay, reply: bytes, headers: dict[str, str] | None = None, **ending: Any) -> Exchange:
    exchange = relay.send(CHAT, body_of("Hello"), headers)
    for start in range(0, len(reply), 64 * 1024):
        relay.journal.reply(exchange, reply[start : start + 64 * 1024])
    relay.end(exchange, is_counted=False, **ending)
    relay.digest()
    return exchange_of(exchange)


def test_a_reply_that_is_too_large_is_put_aside_and_leaves_a_gap(relay: Relay) -> None:
    reply = reply_of("x" * (2 * MB))
    row = send_reply(relay, reply)
    assert (row.end_reason, row.message, row.metadata["unread_reply"]) == ("done", None, "too large")
    assert (row.metadata["reply_bytes"], row.metadata["reply_hash"]) == (len(reply), hashlib.sha256(reply).hexdigest())
    assert (relay.folder / row.metadata["reply_file"]).read_bytes() == reply
    gap = Message.objects.get(kind="gap")
    assert gap.content == f"The reply is too large to be read: {len(reply):,} bytes"
    assert (path_of(sessions()[0]), gap.on_path) == (["u:Hello"], True)
    assert row.usage["source"] == "estimated"
    assert list(verify()) == []


def test_a_conversation_goes_on_after_a_reply_that_was_too_large(relay: Relay) -> None:
    send_reply(relay, reply_of("x" * (2 * MB)), {"X-Parley-Session-Id": "job-1"})
    relay.relay_call(CHAT, body_of("And?"), model_answer("So."), {"X-Parley-Session-Id": "job-1"})
    assert path_of(sessions()[0]) == ["u:Hello", "u:And?", "a:So."]


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip"])
def test_a_small_reply_that_unpacks_to_a_large_one_is_put_aside(relay: Relay, encoding: str) -> None:
    packed = reply_of("x" * (30 * MB))
    for _ in encoding.split(","):
        packed = gzip.compress(packed)
    tracemalloc.start()
    row = send_reply(relay, packed, response_headers=[("content-encoding", encoding)])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (row.metadata["unread_reply"], row.message) == ("too large", None)
    assert (relay.folder / row.metadata["reply_file"]).read_bytes() == packed
    assert most < 16 * MB


def test_a_request_that_is_too_large_leaves_a_gap_before_its_answer(relay: Relay) -> None:
    text = "y" * (2 * MB)
    headers = {"X-Parley-Session-Id": "job-1"}
    relay.relay_call(CHAT, body_of("One"), model_answer("1"), headers)
    row = exchange_of(relay.relay_call(CHAT, body_of(text), model_answer("2"), headers))
    raw = json.dumps(body_of(text)).encode()
    assert (row.request_hash, row.metadata["request_bytes"]) == (hashlib.sha256(raw).hexdigest(), len(raw))
    assert (relay.folder / row.metadata["request_file"]).read_bytes() == raw
    (session,) = sessions()
    kinds = Message.objects.filter(session=session, on_path=True).order_by("seq").values_list("kind", "content")
    assert list(kinds) == [
        ("model_input", "One"),
        ("model_output", "1"),
        ("gap", f"The request is too large to be read: {len(raw):,} bytes"),
        ("model_output", "2"),
    ]
    assert list(verify()) == []


def test_a_large_request_without_a_name_is_a_session_of_its_own(relay: Relay) -> None:
    relay.relay_call(CHAT, body_of("y" * (2 * MB)), model_answer("2"))
    assert path_of(sessions()[0]) == ["a:2"]


@pytest.mark.parametrize("mode", ["redacted", "no_replies", "metadata"])
def test_bytes_that_a_key_does_not_keep_as_they_are_are_not_put_aside(relay: Relay, mode: str) -> None:
    relay.key.recording = mode
    relay.key.save()
    row = send_reply(relay, reply_of("x" * (2 * MB)))
    assert row.metadata["reply_bytes"] > 2 * MB
    assert not (relay.folder / "large").exists()


def test_memory_does_not_grow_with_what_is_too_large(relay: Relay) -> None:
    relay.relay_call(CHAT, body_of("Hello"), model_answer("Hi."))
    exchanges = [relay.send(CHAT, body_of("y" * (20 * MB)))]
    exchanges.append(relay.send(CHAT, body_of("Long")))
    relay.journal.reply(exchanges[0], reply_bytes(CHAT, model_answer("Hi."), stream=False))
    piece = b"z" * (64 * 1024)
    for _ in range(40 * MB // len(piece)):
        relay.journal.reply(exchanges[1], piece)
    relay.answer(exchanges[0], model_answer("Long, too"))
    relay.end(exchanges[1])
    del piece
    tracemalloc.start()
    relay.digest()
    while relay.digester.has_more:
        relay.digest()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 24 * MB
    assert [exchange_of(one).end_reason for one in exchanges] == ["done", "done"]
    assert Message.objects.filter(kind="gap").count() == 2


def test_a_reply_that_comes_slowly_is_not_held_in_memory(relay: Relay) -> None:
    """Many long answers may be under way at once: what came of them is read from the journal again."""
    answer = model_answer("long " * 100_000)
    exchange = relay.send(CHAT, body_of("Hello") | {"stream": True})
    relay.journal.reply(exchange, reply_bytes(CHAT, answer, stream=True))
    relay.journal.flush()
    relay.digest()
    (call,) = relay.digester.pending.values()
    assert (call.size, call.received) == (0, len(reply_bytes(CHAT, answer, stream=True)))
    relay.end(exchange)
    relay.digest()
    (stored,) = entries_of(list(Message.objects.filter(kind="model_output")))
    assert (stored.text, exchange_of(exchange).end_reason) == (answer.text, "done")


def test_replies_are_parsed_before_the_transaction_begins(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_values: Any, **_named: Any) -> RecordedAnswer:
        writes = [query["sql"] for query in queries if query["sql"].split()[0] in ("BEGIN", "INSERT", "UPDATE")]
        written.append(len(writes))
        return RecordedAnswer(reason="done")

    written: list[int] = []
    monkeypatch.setattr(bodies, "read_answer", read)
    relay.answer(relay.send(CHAT, body_of("Hello")), model_answer("Hi."))
    relay.digester.step()
    with CaptureQueriesContext(connection) as queries:
        relay.answer(relay.send(CHAT, body_of("Again")), model_answer("Hi."))
        relay.digester.step()
    assert written[-1] == 0


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_body_is_read_up_to_the_limit_and_not_beyond(relay: Relay, more: int) -> None:
    """Its own bytes count: not the head of its record, not how it was packed."""
    size = MB + more
    request = json.dumps(body_of("")).encode()
    request = json.dumps(body_of("y" * (size - len(request)))).encode()
    reply = reply_of("x" * (size - len(reply_of(""))))
    packed = gzip.compress(reply)
    asked = relay.send(CHAT, request)
    relay.answer(asked, model_answer("short"))
    relay.digest()
    plain = send_reply(relay, reply)
    unpacked = send_reply(relay, packed, response_headers=[("content-encoding", "gzip")])
    is_read = more <= 0
    assert [len(request), len(reply)] == [size, size]
    assert ("request_file" not in exchange_of(asked).metadata) == is_read
    assert [row.message is not None for row in (plain, unpacked)] == [is_read, is_read]
    assert Message.objects.filter(kind="gap").count() == (0 if is_read else 3)


def test_a_stream_that_is_one_line_without_an_end_is_no_answer(relay: Relay) -> None:
    line = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "' + b"x" * (MB - 1_000)
    row = send_reply(relay, line)
    assert (row.end_reason, row.metadata["reply_bytes"]) == ("upstream_unreadable", len(line))
    row = send_reply(relay, line + b"x" * MB)
    assert (row.metadata["unread_reply"], row.message) == ("too large", None)


START, IN_A_MESSAGE = '{"model":"m","messages":[', '{"model":"m","messages":[{"role":"user","content":['
BESIDE = START + '{"role":"user","content":"Hi."}],"x":['


def tiny(piece: str, *, start: str = BESIDE, end: str = "]}") -> str:
    """Nearly a megabyte of small values."""
    return start + ",".join([piece] * ((MB - 200) // (len(piece) + 1))) + end


HEAVY = {
    "messages": tiny('{"role":"user","content":"x"}', start=START),
    "lists": tiny("[]", start=IN_A_MESSAGE, end="]}]}"),
    "empty messages": tiny("{}", start=START),
    "objects": tiny('{"a":1}'),
    "strings": tiny('"ab"'),
    "numbers": tiny("1.5"),
    "fields": '{"model":"m","messages":[],' + ",".join(f'"k{i}":1' for i in range(90_000)) + "}",
    "parts": tiny('{"type":"text","text":"x"}', start=IN_A_MESSAGE, end="]}]}"),
}


@pytest.mark.parametrize("shape", HEAVY)
def test_a_request_of_very_many_small_values_is_put_aside(relay: Relay, shape: str) -> None:
    body = HEAVY[shape].encode()
    assert len(body) < MB
    exchange = relay.send(CHAT, body)
    relay.end(exchange, is_counted=False)
    most = traced_peak(relay.digest)
    row = exchange_of(exchange)
    assert (row.metadata["request_bytes"], row.request_hash) == (len(body), hashlib.sha256(body).hexdigest())
    assert most < 8 * MB, f"{most / MB:.1f} MB"


def test_as_many_messages_as_are_read_stay_within_the_memory(relay: Relay) -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(1_700)]
    assert is_too_heavy(json.dumps({"messages": messages * 2}).encode(), most=MB)
    most = traced_peak(lambda: relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("Hello.")))
    assert len(path_of(sessions()[0])) == 1_701
    assert most < 8 * MB, f"{most / MB:.1f} MB"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_reply_of_very_many_small_values_is_put_aside(relay: Relay, is_stream: bool) -> None:
    reply = tiny('{"index":0}', start='{"id":"c","model":"m","choices":[').encode()
    reply = b"data: " + reply + b"\n\ndata: [DONE]\n\n" if is_stream else reply
    most = traced_peak(lambda: send_reply(relay, reply))
    assert Exchange.objects.get().metadata["unread_reply"] == "too large"
    assert most < 8 * MB, f"{most / MB:.1f} MB"


def test_texts_with_many_brackets_and_a_stream_of_many_events_are_read(relay: Relay) -> None:
    code = 'if (a[0] == "{") { f([1, 2, 3]); }\n' * 20_000
    relay.relay_call(CHAT, body_of(code), model_answer("Yes."))
    piece = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    end = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = [json.dumps(piece)] * 6_000 + [json.dumps(end), "[DONE]"]
    row = send_reply(relay, "".join(f"data: {event}\n\n" for event in events).encode())
    assert row.message is not None
    assert row.message.content_chars == 30_000
    assert not Message.objects.filter(kind="gap").exists()


def traced_peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
