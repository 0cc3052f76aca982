"""Requests that end with an answer: what the client began and the model went on with is one answer, and is known again.

An answer of ours that was only paused, or cut at its limit, stays as it is: what comes then follows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from history import verification
from history.access import keys
from history.context.rendering import render_context
from history.context.values import ContextOptions
from history.entries import OtherPart, Text, thaw
from history.linting import lint_session
from history.models import Message
from history.record.selectors import snapshot
from project.accounts.models import User
from relay.digest.requests import read_request
from relay.gateway.journal.records import CallAccepted
from tests.relay.digest.programs import AnthropicSdk, Chat, GenAiSdk, Program, ResponsesSdk
from tests.relay.digest.relayed import Relay, exchange_of, half_bytes, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

WHOLE = ["u:How much?", "a:The answer is (42)"]
ON = [*WHOLE, "u:Sure?", "a:Yes."]
PROGRAMS = [AnthropicSdk, Chat, GenAiSdk, ResponsesSdk]


def begin(talk: Program, text: str = "The answer is (") -> Any:
    """The client begins the answer itself; returns what takes that beginning out of the conversation again."""
    before = json.loads(json.dumps(talk.body))
    talk.add_answer(model_answer(text))
    return before


def ask_with_prefill(talk: Program, question: str = "How much?", rest: str = "42)", **ending: Any) -> Any:
    talk.add_user_text(question)
    before = begin(talk)
    exchange = talk.send()
    talk.relay.answer(exchange, model_answer(rest), **ending)
    talk.relay.digest()
    talk.body = before
    return exchange


class TestAPrefill:
    @pytest.mark.parametrize("program", PROGRAMS)
    def test_and_its_reply_are_one_answer_that_is_known_when_it_comes_back(
        self, relay: Relay, program: Callable[[Relay], Program]
    ) -> None:
        talk = program(relay)
        exchange = ask_with_prefill(talk)
        assert path_of(sessions()[0]) == WHOLE
        talk.add_answer(model_answer("The answer is (42)"))
        talk.relay_call("Sure?", model_answer("Yes."))
        (session,) = sessions()
        assert path_of(session) == ON
        assert Message.objects.filter(kind="model_output").count() == 2
        answer = exchange_of(exchange).message
        assert answer is not None
        assert answer.metadata["prefilled"] == exchange_of(exchange).metadata["prefilled"] == len("The answer is (")

    @pytest.mark.parametrize("program", PROGRAMS)
    def test_that_comes_back_as_two_messages_is_known_too(
        self, relay: Relay, program: Callable[[Relay], Program]
    ) -> None:
        talk = program(relay)
        ask_with_prefill(talk)
        talk.add_answer(model_answer("The answer is ("))
        talk.add_answer(model_answer("42)"))
        talk.relay_call("Sure?", model_answer("Yes."))
        talk.relay_call("Really?", model_answer("Really."))
        (session,) = sessions()
        assert path_of(session) == [*ON, "u:Really?", "a:Really."]
        assert Message.objects.filter(kind="model_output").count() == 3

    def test_in_the_middle_of_a_conversation_with_several(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.relay_call("Hello", model_answer("Hi"))
        for number in range(3):
            ask_with_prefill(talk, f"How much? {number}", f"{number})")
            talk.add_answer(model_answer("The answer is ("))
            talk.add_answer(model_answer(f"{number})"))
        talk.relay_call("Thanks", model_answer("Welcome"))
        (session,) = sessions()
        assert path_of(session)[2::2] == ["u:How much? 0", "u:How much? 1", "u:How much? 2", "u:Thanks"]
        assert Message.objects.filter(kind="model_output").count() == 5

    def test_of_the_first_words_is_a_new_conversation_each_time(self, relay: Relay) -> None:
        for _ in range(2):
            ask_with_prefill(AnthropicSdk(relay))
        assert [path_of(session) for session in sessions()] == [WHOLE, WHOLE]

    def test_is_kept_while_the_answer_is_on_its_way_and_the_digester_dies(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        begin(talk)
        exchange = talk.send()
        relay.digest()
        assert path_of(sessions()[0]) == ["u:How much?"]
        relay.reborn()
        relay.answer(exchange, model_answer("42)"))
        relay.digest()
        assert path_of(sessions()[0]) == WHOLE

    def test_whose_reply_repeats_it_is_not_there_twice(self, relay: Relay) -> None:
        """Where the vendor does not go on with it but says all of it."""
        ask_with_prefill(Chat(relay), rest="The answer is (42)")
        assert path_of(sessions()[0]) == WHOLE

    def test_is_gone_on_with_by_an_upstream_of_another_language(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        before = begin(talk)
        relay.answer(talk.send(upstream="openai-chat"), model_answer("42)"))
        relay.digest()
        talk.body = before
        talk.add_answer(model_answer("The answer is (42)"))
        talk.relay_call("Sure?", model_answer("Yes."))
        assert path_of(sessions()[0]) == ON

    def test_and_the_next_request_at_once(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        before = begin(talk)
        first = talk.send()
        relay.digest()
        talk.body = before
        talk.add_answer(model_answer("The answer is (42)"))
        second = talk.send("Sure?")
        relay.digest()
        relay.answer(first, model_answer("42)"))
        relay.answer(second, model_answer("Yes."))
        relay.digest()
        (session,) = sessions()
        assert path_of(session) == ON

    def test_keeps_the_record_sound_and_can_be_gone_on_with(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        ask_with_prefill(talk)
        talk.add_answer(model_answer("The answer is ("))
        talk.add_answer(model_answer("42)"))
        talk.relay_call("Sure?", model_answer("Yes."))
        (session,) = sessions()
        assert list(verification.verify()) == []
        taken = snapshot(session)
        told = render_context(taken, ContextOptions())
        assert [entry.content for entry in told.entries] == ["How much?", "The answer is (42)", "Sure?", "Yes."]
        assert not any(verdict.is_rejected for verdict in lint_session(taken).verdicts)

    def test_of_a_title_is_still_a_title(self, relay: Relay) -> None:
        body = {
            "model": "m",
            "max_tokens": 100,
            "system": "Analyze if this message indicates a new conversation topic.",
            "messages": [{"role": "user", "content": "fix it"}, {"role": "assistant", "content": "{"}],
        }
        exchange = relay.relay_call("anthropic-messages", body, model_answer('"title": null}'))
        assert (exchange_of(exchange).metadata["helper"], sessions()) == ("title", [])


class TestAPrefillWhoseReplyDoesNotCome:
    def test_is_kept_with_the_error(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        begin(talk)
        relay.fail(talk.send(), 529, b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}')
        relay.digest()
        row = Message.objects.get(kind="model_output")
        assert (row.status, row.metadata["prefilled"]) == ("failed", len("The answer is ("))
        assert "The answer is (" in row.content

    def test_is_kept_with_half_of_it_and_without_a_word_of_it(self, relay: Relay) -> None:
        for rest in ("4", ""):
            talk = AnthropicSdk(relay)
            talk.add_user_text(f"How much? {rest}")
            begin(talk)
            exchange = talk.send()
            if rest:
                relay.journal.reply(exchange, half_bytes(talk.dialect, model_answer(rest)))
            relay.end(exchange, "client_gone")
        relay.digest()
        rows = Message.objects.filter(kind="model_output").order_by("content")
        assert [(row.status, row.content) for row in rows] == [
            ("interrupted", "The answer is ("),
            ("interrupted", "The answer is (4"),
        ]

    def test_and_is_asked_for_again(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        before = begin(talk)
        relay.fail(talk.send(), 529, b"{}")
        relay.digest()
        again = talk.send(headers={"x-stainless-retry-count": "1"})
        relay.answer(again, model_answer("42)"))
        relay.digest()
        talk.body = before
        talk.add_answer(model_answer("The answer is (42)"))
        talk.relay_call("Sure?", model_answer("Yes."))
        (session,) = sessions()
        assert path_of(session) == ON
        assert exchange_of(again).attempts == 2

    @pytest.mark.parametrize("half", ["", "4"])
    def test_and_is_begun_anew_with_what_there_was(self, relay: Relay, half: str) -> None:
        """Without saying that it is a retry."""
        talk = AnthropicSdk(relay)
        talk.relay_call("Hello", model_answer("Hi"))
        talk.add_user_text("How much?")
        before = begin(talk)
        exchange = talk.send()
        if half:
            relay.journal.reply(exchange, half_bytes(talk.dialect, model_answer(half)))
        relay.end(exchange, "upstream_cut")
        relay.digest()
        talk.body = json.loads(json.dumps(before))
        begin(talk, f"The answer is ({half}")
        relay.answer(talk.send(), model_answer("42)"[len(half) :]))
        relay.digest()
        talk.body = before
        talk.add_answer(model_answer("The answer is (42)"))
        talk.relay_call("Sure?", model_answer("Yes."))
        (session,) = sessions()
        assert path_of(session) == ["u:Hello", "a:Hi", *ON]


class TestModes:
    def test_without_replies_the_clients_word_is_on_the_exchange(self, relay: Relay, ada: User) -> None:
        relay.key = keys.create(name="quiet", owner=ada, recording="no_replies").api_key
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        begin(talk)
        exchange = talk.send()
        relay.answer(exchange, model_answer("42)"))
        relay.digest()
        assert exchange_of(exchange).metadata["prefill"] == "The answer is ("
        assert path_of(sessions()[0]) == ["u:How much?"]

    def test_of_a_key_that_keeps_no_texts_nothing_is_kept(self, relay: Relay, ada: User) -> None:
        relay.key = keys.create(name="silent", owner=ada, recording="metadata").api_key
        talk = AnthropicSdk(relay)
        talk.add_user_text("How much?")
        begin(talk)
        exchange = talk.send()
        relay.end(exchange)
        relay.digest()
        assert "answer is" not in json.dumps(exchange_of(exchange).metadata)
        assert not Message.objects.exists()


def paused() -> Any:
    search = OtherPart(data={"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}})
    return replace(model_answer("Let me look."), parts=(Text(text="Let me look."), search), end_reason="pause")


class TestAnAnswerOfOurs:
    def blocks(self, output: Any) -> list[dict[str, Any]]:
        return [
            {"type": "text", "text": part.text} if isinstance(part, Text) else thaw(part.data) for part in output.parts
        ]

    def paused_and_resumed(self, relay: Relay) -> AnthropicSdk:
        talk = AnthropicSdk(relay)
        talk.relay_call("Who won?", paused())
        talk.body["messages"][-1]["content"] = self.blocks(paused())
        relay.answer(talk.send(), model_answer("Norway."))
        relay.digest()
        return talk

    def test_that_was_paused_is_followed_by_the_rest(self, relay: Relay) -> None:
        self.paused_and_resumed(relay)
        (session,) = sessions()
        assert path_of(session) == ["u:Who won?", "a:Let me look.", "a:Norway."]

    @pytest.mark.parametrize("as_one", [False, True])
    def test_that_was_paused_is_known_in_both_forms(self, relay: Relay, as_one: bool) -> None:
        talk = self.paused_and_resumed(relay)
        rest = [{"type": "text", "text": "Norway."}]
        if as_one:
            talk.body["messages"][-1]["content"] += rest
        else:
            talk.body["messages"].append({"role": "assistant", "content": rest})
        talk.relay_call("Sure?", model_answer("Yes."))
        talk.relay_call("Really?", model_answer("Really."))
        (session,) = sessions()
        assert path_of(session)[2:] == ["a:Norway.", "u:Sure?", "a:Yes.", "u:Really?", "a:Really."]
        assert Message.objects.filter(kind="model_output").count() == 4

    def test_that_was_cut_at_its_limit_is_known_as_one_text(self, relay: Relay) -> None:
        talk = AnthropicSdk(relay)
        talk.relay_call("How much?", model_answer("The answer is ("))
        relay.answer(talk.send(), model_answer("42)"))
        relay.digest()
        talk.body["messages"][-1]["content"] = "The answer is (42)"
        talk.relay_call("Sure?", model_answer("Yes."))
        (session,) = sessions()
        assert path_of(session) == ["u:How much?", "a:The answer is (", "a:42)", "u:Sure?", "a:Yes."]


def test_a_beginning_that_was_taken_out_stays_known_when_the_rest_is_regrouped() -> None:
    turns = ["user", "assistant", "assistant", "user", "assistant"]
    messages = [{"role": role, "content": f"{role} {place}"} for place, role in enumerate(turns)]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    record = CallAccepted(exchange=uuid4(), at=0.0, key=1, owner=1, recording="full", dialect="openai-chat", body=body)
    asked = read_request(record).prefilled()
    joined = asked.with_adjacent_answers_joined()
    assert joined is not None
    assert (joined.unfinished, len(joined.entries), len(joined.sent_chain)) == (asked.unfinished, 3, 4)
