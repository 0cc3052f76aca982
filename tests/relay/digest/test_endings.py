"""However a call ends, the record says so: what there was of the answer, why there is no more, and what it used."""

from __future__ import annotations

import gzip
import json

import pytest
from django.test import Client

from history.access import keys
from history.db.process_state import process_state
from history.formats.base import Notes
from history.formats.writers import html, markdown
from history.models import ApiKey, Exchange, Message
from relay.digest import digester
from relay.gateway.journal.records import Attempt
from relay.providers import registry
from relay.providers.endpoints import Endpoint
from relay.providers.http import HttpProvider
from tests.relay.digest.programs import Chat, ClaudeCode
from tests.relay.digest.relayed import (
    Relay,
    call,
    exchange_of,
    half_bytes,
    model_answer,
    path_of,
    reply_bytes,
    sessions,
)

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
TOO_MANY = b'{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}'


def half(text: str = "Half an answer, and then") -> bytes:
    return half_bytes(CHAT, model_answer(text, usage=None))


@pytest.mark.parametrize("reason", ["client_gone", "stopped", "timeout", "upstream_cut", "server_lost"])
def test_half_an_answer_is_kept_as_interrupted_with_its_reason(relay: Relay, reason: str) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.journal.reply(exchange, half())
    relay.end(exchange, reason)
    relay.digest()
    row = exchange_of(exchange)
    assert row.end_reason == reason
    assert row.message is not None
    assert (row.message.content, row.message.status) == ("Half an answer, and then", "interrupted")
    assert row.message.usage_source == "estimated"
    assert row.message.output_tokens > 3


def test_a_stream_without_its_last_event_was_cut(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.journal.reply(exchange, half())
    relay.end(exchange, "done")
    relay.digest()
    assert exchange_of(exchange).end_reason == "upstream_cut"


def test_a_placeholder_of_one_token_is_not_taken_for_the_count(relay: Relay) -> None:
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hello"}], "stream": True}
    exchange = relay.send("anthropic-messages", body)
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": [], "model": "m",
                                              "usage": {"input_tokens": 30, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One two three four five"}},
    ]  # fmt: skip
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    relay.journal.reply(exchange, stream.encode())
    relay.end(exchange, "client_gone")
    relay.digest()
    message = Message.objects.get(kind="model_output")
    assert (message.input_tokens, message.usage_source) == (30, "partial")
    assert message.output_tokens >= 5


def test_nor_is_it_after_an_error_in_the_middle_of_the_stream(relay: Relay) -> None:
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hello"}], "stream": True}
    exchange = relay.send("anthropic-messages", body)
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": [], "model": "m",
                                              "usage": {"input_tokens": 30, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "many words " * 200}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ]  # fmt: skip
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    relay.journal.reply(exchange, stream.encode())
    relay.end(exchange, is_counted=False, reply_size=len(stream))
    relay.digest()
    row = exchange_of(exchange)
    assert (row.end_reason, row.usage["input_tokens"], row.usage["source"]) == ("upstream_error", 30, "partial")
    assert row.usage["output_tokens"] >= 200


def test_an_answer_that_is_made_in_the_background_was_not_cut_off(relay: Relay) -> None:
    exchange = relay.send("openai-responses", {"model": "m", "input": "hello", "background": True})
    relay.journal.reply(exchange, b'{"id": "resp_1", "object": "response", "status": "queued", "output": []}')
    relay.end(exchange)
    relay.digest()
    assert exchange_of(exchange).end_reason == "done"
    assert Message.objects.get(kind="model_output").end_reason == "pause"


def test_nothing_is_made_up_where_the_client_left_before_the_first_word(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.end(exchange, "client_gone", status=0)
    relay.digest()
    assert path_of(sessions()[0]) == ["u:hello"]
    assert exchange_of(exchange).end_reason == "client_gone"


def test_an_error_is_kept_with_its_mark_its_status_and_its_body(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.fail(exchange, 429, TOO_MANY, attempts=[Attempt("one", 500, 0.2, "broken"), Attempt("two", 429, 0.1)])
    relay.digest()
    (session,) = sessions()
    assert path_of(session) == ["u:hello", "a:【错误】Rate limit reached"]
    assert session.error_count == 1
    row = exchange_of(exchange)
    assert (row.end_reason, row.status_code, row.error) == ("upstream_error", 429, "Rate limit reached")
    assert row.attempts == 2
    assert row.metadata["error_body"] == TOO_MANY.decode()
    assert [one["status"] for one in row.metadata["upstream"]] == [500, 429]


def test_the_operators_key_is_not_kept_when_the_vendor_repeats_it(relay: Relay) -> None:
    secret = "made-up-key-of-the-operator"
    endpoint = Endpoint(name="vendor", dialect=CHAT, base_url="http://127.0.0.1:1/v1", api_key=secret)
    process_state.set(registry.Router([HttpProvider(endpoint)]))
    exchange = relay.send(CHAT, HELLO)
    relay.fail(exchange, 401, json.dumps({"error": {"message": f"Incorrect API key provided: {secret}"}}).encode())
    relay.digest()
    row, (session,) = exchange_of(exchange), sessions()
    assert path_of(session)[1] == "a:【错误】Incorrect API key provided: •••"
    assert secret not in f"{row.error}{row.metadata}"


def test_pages_are_told_that_a_call_has_ended_also_where_nothing_was_said(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    exchange = relay.send(CHAT, HELLO)
    relay.digest()
    monkeypatch.setattr(digester, "_notify_pages", lambda sessions: told.append(len(sessions)))
    relay.end(exchange, "client_gone", status=0)
    relay.digest()
    assert (sum(told), exchange_of(exchange).end_reason) == (1, "client_gone")


def test_an_error_in_the_middle_of_a_stream_is_an_error_with_what_was_said_before_it(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.journal.reply(exchange, half("It is") + b'data: {"error": {"message": "overloaded"}}\n\n')
    relay.end(exchange, "done")
    relay.digest()
    row = exchange_of(exchange)
    assert row.end_reason == "upstream_error"
    assert row.message is not None
    assert row.message.content == "It is\n\n【错误】overloaded"


def test_a_vendor_that_cannot_be_reached_is_an_error_too(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.end(exchange, "upstream_error", status=0, error="connection refused")
    relay.digest()
    assert path_of(sessions()[0]) == ["u:hello", "a:【错误】connection refused"]


def test_the_conversation_goes_on_after_an_error_and_the_question_stands_once(relay: Relay) -> None:
    talk = ClaudeCode(relay)
    failed = talk.send("Fix the parser.")
    relay.fail(failed, 529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')
    relay.digest()
    talk.relay_call("", model_answer("Done."))
    (session,) = sessions()
    assert path_of(session) == ["u:Fix the parser.", "a:【错误】Overloaded", "a:Done."]


def test_an_empty_shell_of_a_tool_call_is_not_stored(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    shell = {"index": 0, "id": "c0", "type": "function", "function": {"name": "", "arguments": ""}}
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": "Hi"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [shell]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    relay.journal.reply(exchange, b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks))
    relay.end(exchange)
    relay.digest()
    (session,) = sessions()
    assert session.tool_call_count == 0
    assert path_of(session) == ["u:hello", "a:Hi"]


def test_tool_calls_so_far_are_kept_and_marked_interrupted(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.journal.reply(exchange, half_bytes(CHAT, model_answer("", call("search", "c1", words="fjord"), usage=None)))
    relay.end(exchange, "client_gone")
    relay.digest()
    message = Message.objects.get(kind="model_output")
    assert message.status == "interrupted"
    assert message.tool_calls.get().status == "interrupted"


def test_what_a_vendor_compressed_all_the_same_is_read(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.journal.reply(exchange, gzip.compress(reply_bytes(CHAT, model_answer("Packed."), stream=True)))
    relay.end(exchange, response_headers=[("content-encoding", "gzip"), ("x-request-id", "req-9")])
    relay.digest()
    message = Message.objects.get(kind="model_output")
    assert (message.content, message.request_id) == ("Packed.", "req-9")


def test_an_answer_that_was_translated_is_read_in_the_language_of_the_upstream(relay: Relay) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    exchange = relay.send("anthropic-messages", body, upstream=CHAT)
    relay.answer(exchange, model_answer("Hello."))
    relay.digest()
    assert path_of(sessions()[0]) == ["u:hi", "a:Hello."]
    assert exchange_of(exchange).metadata["translated_to"] == CHAT


def test_a_request_that_cannot_be_read_is_an_exchange(relay: Relay) -> None:
    exchange = relay.send(CHAT, b"no JSON at all")
    relay.fail(exchange, 400, b'{"error": {"message": "bad JSON"}}')
    relay.digest()
    row = exchange_of(exchange)
    assert (row.session, row.status_code, row.error) == (None, 400, "bad JSON")
    assert row.metadata["problem"]


def test_what_the_journal_lost_of_a_reply_the_exchange_says(relay: Relay) -> None:
    exchange = relay.send(CHAT, HELLO)
    relay.journal.reply(exchange, half())
    relay.end(exchange, "done", lost_bytes=77)
    relay.digest()
    row = exchange_of(exchange)
    assert (row.end_reason, row.metadata["lost_bytes"]) == ("not_kept", 77), (
        "the stream was whole, the journal was full"
    )
    assert row.message is not None
    assert (row.message.content, row.message.status) == ("Half an answer, and then", "interrupted")


class TestRecordingModes:
    def in_mode(self, relay: Relay, mode: str) -> ApiKey:
        return keys.create(name=mode, owner=relay.key.owner, recording=mode).api_key

    def test_metadata_keeps_times_and_counts_and_not_a_word(self, relay: Relay) -> None:
        key = self.in_mode(relay, "metadata")
        exchange = relay.send(CHAT, HELLO, key=key)
        relay.answer(exchange, model_answer("Secret words."), usage_hint={"input_tokens": 7, "output_tokens": 3})
        relay.digest()
        row = exchange_of(exchange)
        assert (row.session, row.end_reason, row.usage["output_tokens"]) == (None, "done", 3)
        assert Message.objects.count() == 0
        assert row.metadata["reply_bytes"] > 50

    def test_no_replies_keeps_the_questions_in_one_session(self, relay: Relay) -> None:
        key = self.in_mode(relay, "no_replies")
        relay.key = key
        talk = Chat(relay)
        for turn in range(3):
            talk.relay_call(f"Question {turn}", model_answer(f"Unheard {turn}"))
        (session,) = sessions()
        assert [line for line in path_of(session) if line[0] == "u"] == [f"u:Question {turn}" for turn in range(3)]
        assert not Message.objects.filter(content__contains="Unheard").exists()
        assert "Unheard" not in json.dumps([row.metadata for row in Exchange.objects.all()])

    def test_redacted_mode_removes_credentials_and_keeps_recognition(self, relay: Relay) -> None:
        secret = "sk-" + "proj-" + "a1B2c3D4" * 6
        relay.key = self.in_mode(relay, "redacted")
        talk = Chat(relay)
        talk.relay_call(f"My key is {secret}", model_answer(f"Never say {secret}"))
        failed = talk.send("And?")
        relay.fail(failed, 401, json.dumps({"error": {"message": f"Incorrect API key {secret}"}}).encode())
        relay.digest()
        assert len(sessions()) == 1
        stored = [row.body or "" for row in Message.objects.all()] + [row.content for row in Message.objects.all()]
        stored += [json.dumps(row.metadata) + row.error for row in Exchange.objects.all()]
        assert not any(secret in text for text in stored)
        assert any("[redacted:" in text for text in stored)

    def test_a_key_that_was_told_to_keep_nothing_meanwhile_is_obeyed(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, HELLO)
        ApiKey.objects.filter(pk=relay.key.pk).update(recording="metadata")
        relay.answer(exchange, model_answer("Too late."))
        relay.digest()
        assert exchange_of(exchange).end_reason == "done"
        assert Message.objects.count() == 0

    def test_with_history_switched_off_nothing_is_stored(self, relay: Relay, settings: pytest.FixtureRequest) -> None:
        settings.CHAT_HISTORY_ENABLED = False  # type: ignore[attr-defined]
        relay.relay_call(CHAT, HELLO, model_answer("Hi."))
        assert Exchange.objects.count() == 0


class TestResults:
    def test_a_resent_result_that_differs_is_noted_on_the_exchange(self, relay: Relay) -> None:
        talk = Chat(relay)
        talk.relay_call("Which day?", model_answer("", call("clock", "c1")))
        talk.find(c1="Monday")
        talk.relay_call("", model_answer("Monday."))
        same = talk.relay_call("Sure?", model_answer("Yes."))
        talk.body["messages"][2]["content"] = "Tuesday"
        changed = talk.relay_call("Really?", model_answer("Yes!"))
        assert "changed_results" not in exchange_of(same).metadata
        assert exchange_of(changed).metadata["changed_results"] == ["c1"]
        assert len(sessions()) == 1

    def test_also_by_a_digester_that_has_to_look_it_up(self, relay: Relay) -> None:
        talk = Chat(relay)
        talk.relay_call("Which day?", model_answer("", call("clock", "c1")))
        talk.find(c1="Monday")
        talk.relay_call("", model_answer("Monday."))
        relay.digester.cache.forget_all()
        talk.body["messages"][2]["content"] = "Tuesday"
        changed = talk.relay_call("Really?", model_answer("Yes!"))
        assert exchange_of(changed).metadata["changed_results"] == ["c1"]


class TestAnswersThatWereNotKept:
    """A reader can tell a question that was answered from one that was not."""

    NOT_KEPT = "The reply was not stored. This key records requests only."

    @pytest.fixture
    def talk(self, relay: Relay) -> Chat:
        relay.key = keys.create(name="requests only", owner=relay.key.owner, recording="no_replies").api_key
        return Chat(relay)

    def read(self, client: Client) -> str:
        (session,) = sessions()
        client.force_login(session.owner)
        return client.get(session.get_absolute_url()).content.decode()

    def exported(self) -> list[str]:
        (session,) = sessions()
        return [b"".join(write(session, Notes())).decode() for write in (markdown.write, html.write)]

    def test_the_last_question_says_that_it_was_answered(self, talk: Chat, relay: Relay, client: Client) -> None:
        exchange = talk.send("Only question")
        relay.digest()
        assert self.NOT_KEPT not in self.read(client)
        assert not any(self.NOT_KEPT in text for text in self.exported())
        relay.answer(exchange, model_answer("Unheard."))
        relay.digest()
        assert self.read(client).count(f'<p class="aside">{self.NOT_KEPT}</p>') == 1
        assert [text.count(self.NOT_KEPT) for text in self.exported()] == [1, 1]

    def test_each_answer_says_so_once(self, talk: Chat, relay: Relay, client: Client) -> None:
        for turn in range(3):
            talk.relay_call(f"Question {turn}", model_answer(f"Unheard {turn}"))
        assert self.read(client).count(f'<p class="aside">{self.NOT_KEPT}</p>') == 3
        assert [text.count(self.NOT_KEPT) for text in self.exported()] == [3, 3]
