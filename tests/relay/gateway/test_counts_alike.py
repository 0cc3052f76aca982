"""What counts for a limit is what the exchange shows: the same number in every place and for every kind of reply.

The tokens of a key without limits are counted when a call is digested; those of a key with limits, or of one that does
not record, as soon as the reply has ended. Both must come to the same.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from history.access import keys
from history.dialects import DIALECTS
from history.models import Exchange
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.models import KeyUse
from relay.providers import registry
from relay.usage import counters
from tests.clients import SMALLEST_CALLS, RunningRelay, open_reply
from tests.relay.digest.relayed import call, half_bytes, model_answer, reply_bytes
from tests.servers.processes import wait_for
from tests.vendors.raw_upstream import RawReply, RawUpstream, complete_reply, streamed_reply, use_raw_provider

pytestmark = pytest.mark.any_database

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic-messages", "openai-chat", "openai-responses", "gemini-generate"
# Longer than what a glance at the two ends of a reply shows, and not alike everywhere.
TEXT = "One two three. " * 1_500 + "世界 " * 2_000
ANSWER = model_answer(TEXT, call("read", "call_1", path="/tmp/notes"))
UNCOUNTED = model_answer(TEXT, usage=None)

ERRORS = {
    ANTHROPIC: b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    CHAT: b'data: {"error":{"message":"Overloaded","type":"server_error","code":null}}\n\ndata: [DONE]\n\n',
    RESPONSES: b'event: error\ndata: {"type":"error","code":"server_error","message":"Overloaded"}\n\n',
    GEMINI: b'data: {"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}\n\n',
}
BEFORE = {  # what the vendors say of tokens while they are still talking
    ANTHROPIC: b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","role":"assistant",'
    b'"content":[],"model":"m","usage":{"input_tokens":30,"output_tokens":1}}}\n\n',
    CHAT: b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Well"}}],'
    b'"usage":{"prompt_tokens":30,"completion_tokens":1}}\n\n',
    RESPONSES: b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1"}}\n\n',
    GEMINI: b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Well"}]}}],'
    b'"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":1}}\n\n',
}
SHAPES: dict[str, Callable[[str], bytes]] = {
    "whole": lambda dialect: reply_bytes(dialect, ANSWER, stream=False),
    "whole, uncounted": lambda dialect: reply_bytes(dialect, UNCOUNTED, stream=False),
    "streamed": lambda dialect: reply_bytes(dialect, ANSWER, stream=True),
    "streamed, uncounted": lambda dialect: reply_bytes(dialect, UNCOUNTED, stream=True),
    "cut": lambda dialect: half_bytes(dialect, UNCOUNTED),
    "cut, counted so far": lambda dialect: BEFORE[dialect] + half_bytes(dialect, UNCOUNTED),
    "cut, whole": lambda dialect: reply_bytes(dialect, ANSWER, stream=False)[:-400],
    "error": lambda dialect: half_bytes(dialect, UNCOUNTED) + ERRORS[dialect],
    "error, counted so far": lambda dialect: BEFORE[dialect] + half_bytes(dialect, UNCOUNTED) + ERRORS[dialect],
    "error at once": lambda dialect: ERRORS[dialect],
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "br": lambda plain: b"\x8b" + zlib.compress(plain),  # an encoding that is not read
}


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, ANTHROPIC)


def played(reply: bytes, *, encoding: str = "", is_cut: bool = False) -> RawReply:
    """In pieces of any size; without its proper end if the connection breaks off."""
    is_whole = reply[:1] == b"{"
    headers = [f"content-encoding: {encoding}"] if encoding else []
    body = PACKED[encoding](reply) if encoding else reply
    if is_whole and not is_cut:
        return complete_reply(body, headers=("content-type: application/json", *headers))
    pieces = [body[start : start + 5_000] for start in range(0, len(body), 5_000)]
    return streamed_reply(*pieces, ends=not is_cut, headers=headers)


class Counting:
    """The same reply for three keys: one that is counted when it is digested, one with limits, one unrecorded."""

    def __init__(self, relay: RunningRelay, owner: User, bare: RawUpstream) -> None:
        self.relay, self.bare = relay, bare
        self.keys = {
            "digested": keys.create(name="digested", owner=owner, recording="full"),
            "limited": keys.create(name="limited", owner=owner, recording="full", tokens_per_day=10**9),
            "unrecorded": keys.create(name="unrecorded", owner=owner, recording="metadata"),
        }

    def ask(self, dialect: str, reply: RawReply, *, leaves_after: int = 0) -> None:
        path, body = SMALLEST_CALLS[dialect]
        for created in self.keys.values():
            self.bare.says.append(reply)
            with open_reply(
                self.relay, path, json.dumps(body).encode(), headers={"x-api-key": created.secret}
            ) as answered:
                answered.response.read(leaves_after) if leaves_after else answered.read()
        self.relay.ended(3)

    def shown(self) -> dict[str, tuple[int, int, str]]:
        """On each exchange: tokens, and where they come from."""
        digester = Digester(self.relay.journal.folder, name="test", end_wait=0)
        wait_for(lambda: digester.step() or Exchange.objects.filter(ended_at=None).count() == 0, seconds=5, what="it")
        wait_for(lambda: Exchange.objects.exclude(ended_at=None).count() == 3, seconds=5, what="three exchanges")
        rows = Exchange.objects.select_related("api_key")
        return {str(row.api_key and row.api_key.name): _usage_of(row.usage) for row in rows}

    def counted(self) -> dict[str, int]:
        """For each key: what it has used today."""
        wait_for(lambda: counters.count_running() == 0, seconds=5, what="the end of all calls")
        counters.sync()
        return {name: _tokens(created.api_key.pk) for name, created in self.keys.items()}

    def agree(self) -> tuple[int, int, str]:
        shown, counted = self.shown(), self.counted()
        assert len(set(shown.values())) == 1, shown
        (usage,) = set(shown.values())
        assert counted == dict.fromkeys(self.keys, usage[0] + usage[1])
        return usage


def _usage_of(usage: dict[str, Any]) -> tuple[int, int, str]:
    return usage.get("input_tokens", 0), usage.get("output_tokens", 0), usage.get("source", "")


def _tokens(key: int) -> int:
    return sum(KeyUse.objects.filter(key_id=key).values_list("tokens", flat=True))


@pytest.fixture
def counting(relay: RunningRelay, ada: User, bare: RawUpstream) -> Counting:
    return Counting(relay, ada, bare)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_same_reply_counts_the_same(counting: Counting, bare: RawUpstream, dialect: str, shape: str) -> None:
    use_raw_provider(bare, dialect)
    counting.ask(dialect, played(SHAPES[shape](dialect), is_cut=shape.startswith("cut")))
    read, written, source = counting.agree()
    if shape in ("whole", "streamed"):
        assert (read, written, source) == (20, 5, "provider")
    elif shape == "error at once":
        assert (read, written, source) == (0, 0, "")
    elif "so far" in shape and dialect != RESPONSES:  # which counts at the end alone
        assert (read, source, written > 3_000) == (30, "partial", True)
    else:  # by its text, or where it is whole all the same, by its size
        assert (source, written > 300) == ("estimated", True)


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("shape", ["whole", "streamed", "streamed, uncounted", "cut, counted so far", "error"])
def test_so_does_a_compressed_one(counting: Counting, bare: RawUpstream, shape: str, encoding: str) -> None:
    counting.ask(ANTHROPIC, played(SHAPES[shape](ANTHROPIC), encoding=encoding, is_cut=shape.startswith("cut")))
    read, written, source = counting.agree()
    if encoding == "br":
        assert source == "estimated"
    elif shape in ("whole", "streamed"):
        assert (read, written, source) == (20, 5, "provider")
    else:
        assert (source, written > 300) == ("partial" if "so far" in shape else "estimated", True)


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, GEMINI])
@pytest.mark.parametrize("shape", ["whole", "streamed", "error"])
def test_in_every_language(counting: Counting, bare: RawUpstream, dialect: str, shape: str) -> None:
    use_raw_provider(bare, dialect)
    counting.ask(dialect, played(SHAPES[shape](dialect), encoding="gzip"))
    _, written, source = counting.agree()
    assert (written, source) == (5, "provider") if shape != "error" else (source == "estimated", written > 3_000)


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_so_does_one_whose_caller_leaves(counting: Counting, bare: RawUpstream, encoding: str) -> None:
    reply = BEFORE[ANTHROPIC] + half_bytes(ANTHROPIC, UNCOUNTED)
    body = gzip.compress(reply) if encoding else reply
    headers = [f"content-encoding: {encoding}"] if encoding else []
    counting.ask(ANTHROPIC, streamed_reply(body, 20.0, headers=headers), leaves_after=len(body))
    read, written, source = counting.agree()
    assert (read, source, written > 3_000) == (30, "partial", True)


def test_so_does_a_translated_one(counting: Counting, bare: RawUpstream) -> None:
    use_raw_provider(bare, CHAT)
    counting.ask(ANTHROPIC, played(SHAPES["error, counted so far"](CHAT), encoding="gzip"))
    read, written, source = counting.agree()
    assert (read, source, written > 3_000) == (30, "partial", True)


def test_a_very_long_one_that_breaks_off_is_counted_by_its_beginning(counting: Counting, bare: RawUpstream) -> None:
    """It would take too long to read all of it while others wait; then that number stands on the exchange, too."""
    begun, _, piece = half_bytes(ANTHROPIC, model_answer("One two three four five. ", usage=None)).rpartition(
        b"event: "
    )
    words = begun + (b"event: " + piece) * 8_000
    counting.ask(ANTHROPIC, played(BEFORE[ANTHROPIC] + words, is_cut=True))
    shown, counted = counting.shown(), counting.counted()
    assert shown["limited"] == shown["unrecorded"]
    assert counted["limited"] == sum(shown["limited"][:2])
    assert 0.8 < counted["limited"] / counted["digested"] < 1.25
    assert {source for *_, source in shown.values()} == {"partial"}
