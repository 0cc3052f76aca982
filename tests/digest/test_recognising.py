"""Which session a request continues, and where in it: what clients name, what vendors keep, what was said before."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest

from history.entries import ToolRequest
from history.models import Message, ToolCall
from tests.digest.relayed import Relay, call, exchange_of, path_of, said, sessions

pytestmark = pytest.mark.django_db

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"
GEMINI = "gemini-generate"


class Vendor:
    """A client of the Responses API whose vendor keeps the conversation: it sends what is new alone."""

    def __init__(self, relay: Relay, headers: dict[str, str] | None = None, **fields: Any) -> None:
        self.relay, self.headers, self.fields, self.turns = relay, headers or {}, fields, 0

    def send(self, said_now: Any, **fields: Any) -> UUID:
        body = {"model": "m", "input": said_now, **self.fields, **fields}
        return self.relay.send(RESPONSES, body, self.headers, path="/v1/responses")

    def ask(self, said_now: Any, answer: Any, **fields: Any) -> UUID:
        self.turns += 1
        exchange = self.send(said_now, **fields)
        self.relay.answer(exchange, said(answer) if isinstance(answer, str) else answer, reply_id=f"resp_{self.turns}")
        self.relay.digest()
        return exchange


class TestWhatTheVendorKeeps:
    @pytest.mark.parametrize("second", ["two", "one"])
    def test_a_conversation_goes_on_where_it_ended_even_in_the_same_words(self, relay: Relay, second: str) -> None:
        talk = Vendor(relay, conversation={"id": "conv_1"})
        talk.ask("one", "1")
        talk.ask(second, "2")
        last = talk.ask("three", "3")
        (session,) = sessions()
        assert path_of(session) == ["u:one", "a:1", f"u:{second}", "a:2", "u:three", "a:3"]
        assert exchange_of(last).metadata["recognised_by"] == "client id"

    @pytest.mark.parametrize("is_filed", [True, False])
    def test_the_next_turn_of_a_conversation_waits_for_the_answer_before_it(self, relay: Relay, is_filed: bool) -> None:
        talk = Vendor(relay, conversation="conv_1")
        first = talk.send("one")
        if is_filed:
            relay.digest()
        second = talk.send("two")
        relay.digest()
        relay.answer(first, said("1"))
        relay.answer(second, said("2"))
        relay.digest()
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2"]

    @pytest.mark.parametrize("header", ["X-Parley-Session-Id", "x-session-id"])
    def test_an_answer_is_gone_on_from_whatever_names_the_session(self, relay: Relay, header: str) -> None:
        talk = Vendor(relay, {header: "my-talk-12345"})
        talk.ask("one", said("", call("f", "c1", a=1)))
        found = [{"type": "function_call_output", "call_id": "c1", "output": "42"}]
        talk.ask(found, "2", previous_response_id="resp_1")
        assert ToolCall.objects.get().status == "success"
        talk.ask("again", "2b", previous_response_id="resp_1")
        (session,) = sessions()
        assert [row.kind for row in Message.objects.filter(session=session).order_by("seq")] == [
            *("model_input", "model_output", "tool_results", "model_output"),
            *("head_moved", "model_input", "model_output"),
        ]
        assert path_of(session)[-2:] == ["u:again", "a:2b"]

    def test_an_answer_that_nobody_knows_is_gone_on_from_at_the_end_of_the_session_that_is_named(
        self, relay: Relay
    ) -> None:
        talk = Vendor(relay, {"x-session-id": "my-talk-12345"})
        talk.ask("one", "1")
        talk.ask("two", "2", previous_response_id="resp_of_another_day")
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2"]


class TestWhatWasSaidBefore:
    def test_pictures_tell_two_conversations_apart(self, relay: Relay) -> None:
        def picture(of: bytes) -> dict[str, Any]:
            return {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(of).decode()}}

        def ask(contents: list[dict[str, Any]], part: dict[str, Any]) -> UUID:
            exchange = relay.send(GEMINI, {"contents": contents}, path="/v1beta/models/m:generateContent")
            drawn = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
            relay.journal.reply(exchange, json.dumps({"candidates": [drawn]}).encode())
            relay.end(exchange)
            relay.digest()
            return exchange

        asked = {"role": "user", "parts": [{"text": "Draw a cat"}]}
        first, _second = ask([asked], picture(b"cat A")), ask([asked], picture(b"cat B"))
        more = {"role": "user", "parts": [{"text": "make it blue"}]}
        last = ask([asked, {"role": "model", "parts": [picture(b"cat A")]}, more], {"text": "blue"})
        assert exchange_of(last).session_id == exchange_of(first).session_id
        assert exchange_of(last).metadata["recognised_by"] == "fingerprint"

    def test_an_answer_that_says_nothing_is_nothing_to_know_a_session_by(self, relay: Relay) -> None:
        hello = {"role": "user", "content": "hello"}
        for _ in range(2):
            relay.ask(MESSAGES, {"model": "m", "max_tokens": 9, "messages": [hello]}, said(""))
        thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
        messages = [hello, thought, {"role": "user", "content": "and?"}]
        last = relay.ask(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, said("Yes."))
        assert exchange_of(last).metadata["recognised_by"] == "new"

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "file", "file": {"file_id": "file-abc"}},
            {"type": "video_url", "video_url": {"url": "https://example.org/film.mp4"}},
        ],
    )
    def test_a_question_without_words_is_not_folded_away(self, relay: Relay, block: dict[str, Any]) -> None:
        relay.ask(CHAT, {"model": "m", "messages": [{"role": "user", "content": [block]}]}, said("I see."))
        assert len(path_of(sessions()[0])) == 2

    @pytest.mark.parametrize(
        ("asked", "sent_back"),
        [("30.0", 30), ("1e3", 1000), ("12345678901234567890", 12345678901234567000)],
    )
    def test_numbers_come_back_from_javascript_in_its_own_hand(self, relay: Relay, asked: str, sent_back: int) -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        request = ToolRequest(call_id="c1", name="wait", arguments=f'{{"t": {asked}}}')
        relay.ask(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, said("I wait.", request))
        used = {"type": "tool_use", "id": "c1", "name": "wait", "input": {"t": sent_back}}
        messages += [
            {"role": "assistant", "content": [{"type": "text", "text": "I wait."}, used]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]},
        ]
        relay.ask(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, said("Done."))
        assert Message.objects.filter(kind="model_output").count() == 2
        assert ToolCall.objects.get().status == "success"

    def test_thoughts_aloud_may_be_left_out_of_what_is_sent_back(self, relay: Relay) -> None:
        messages = [{"role": "user", "content": "go"}]
        relay.ask(CHAT, {"model": "m", "messages": messages}, said("<think>hm</think>\n\nYes."))
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "more"}]
        relay.ask(CHAT, {"model": "m", "messages": messages}, said("Good."))
        assert Message.objects.filter(kind="model_output").count() == 2
