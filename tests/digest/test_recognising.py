"""Which session a request continues, and where in it: what clients name, what vendors keep, what was said before."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from history.models import Message, ToolCall
from tests.digest.relayed import Relay, call, exchange_of, path_of, said, sessions

pytestmark = pytest.mark.django_db

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"


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
