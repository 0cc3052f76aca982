"""What a client sends back is known again, however it cuts and changes it, and only then: nothing is stored twice."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from history.access import keys
from history.dialects import DIALECTS
from history.entries import ModelOutput, Reasoning, Text
from history.models import Message, ToolCall
from project.accounts.models import User
from relay.digest.answers import item_ids
from tests.relay.digest.programs import Chat, ClaudeCode, GeminiCli, ResponsesSdk
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, reply_bytes, sessions

pytestmark = pytest.mark.django_db

CHAT, MESSAGES, GEMINI, RESPONSES = "openai-chat", "anthropic-messages", "gemini-generate", "openai-responses"
SNAPSHOT = {"role": "user", "parts": [{"text": "<state_snapshot><overall_goal>x</overall_goal></state_snapshot>"}]}
HEARD = {"role": "model", "parts": [{"text": "Got it. Thanks for the additional context!"}]}


class TestAnswers:
    def test_an_answer_in_several_blocks_comes_back_as_it_came(self, relay: Relay) -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Why?"}]
        blocks = [
            {"type": "text", "text": "According to the page, "},
            {"type": "text", "text": "the sky is blue", "citations": [{"type": "page_location"}]},
            {"type": "text", "text": "."},
        ]
        exchange = relay.send(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages})
        reply = {"id": "m1", "type": "message", "model": "m", "content": blocks, "stop_reason": "end_turn"}
        relay.journal.reply(exchange, json.dumps(reply).encode())
        relay.end(exchange)
        relay.digest()
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": "And at night?"}]
        relay.relay_call(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, model_answer("Black."))
        (session,) = sessions()
        assert (session.version, session.message_count) == (4, 4)

    def test_claude_code_sends_a_call_back_with_other_arguments_than_it_was_given(self, relay: Relay) -> None:
        name = "toolu_01A09q90qw90lq917835lq9"
        talk = ClaudeCode(relay)
        talk.relay_call("Build it", model_answer("", call("Bash", name, command="cd /repo && make")))
        talk.body["messages"][-1]["content"][-1]["input"] = {"command": "make"}
        talk.find(**{name: "done"})
        talk.relay_call("", model_answer("Built."))
        talk.relay_call("Thanks", model_answer("Welcome."))
        one = ToolCall.objects.get()
        assert (one.status, json.loads(one.arguments)) == ("success", {"command": "cd /repo && make"})
        assert not Message.objects.filter(kind="head_moved").exists()

    def test_the_chunks_of_a_stream_come_back_as_one_content_each(self, relay: Relay) -> None:
        def chunk(text: str, **end: str) -> dict[str, Any]:
            return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **end}]}

        contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Hi"}]}]
        chunks = [chunk("Hello "), chunk("wor"), chunk("ld.", finishReason="STOP")]
        path = "/v1beta/models/m:streamGenerateContent"
        exchange = relay.send(GEMINI, {"contents": contents}, path=path)
        relay.journal.reply(exchange, b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks))
        relay.end(exchange)
        relay.digest()
        contents += [one["candidates"][0]["content"] for one in chunks]
        contents += [{"role": "user", "parts": [{"text": "More"}]}]
        last = relay.relay_call(GEMINI, {"contents": contents}, model_answer("Yes."), path=path)
        assert path_of(sessions()[0]) == ["u:Hi", "a:Hello world.", "u:More", "a:Yes."]
        assert exchange_of(last).metadata["recognised_by"] == "fingerprint"

    @pytest.mark.parametrize("is_named", [True, False])
    def test_one_that_was_asked_for_again_in_vain_is_gone_on_from(self, relay: Relay, is_named: bool) -> None:
        talk = Chat(relay, **({"x-session-id": "abcdefgh1"} if is_named else {}))
        talk.relay_call("one", model_answer("1"))
        talk.relay_call("two", model_answer("2"))
        answer = talk.body["messages"].pop()
        relay.end(talk.send(), "client_gone", status=0)
        relay.digest()
        talk.body["messages"].append(answer)
        talk.relay_call("three", model_answer("3"))
        (session,) = sessions()
        assert path_of(session) == ["u:one", "a:1", "u:two", "a:2", "u:three", "a:3"]
        assert Message.objects.filter(kind="model_output").count() == 3


class TestTranslatedAnswers:
    """In Chat Completions an answer is one text: what others say around thoughts and calls are paragraphs of it."""

    PARTS = (Text(text="Let me see."), Reasoning(text="Hm.", signature="c2ln"), Text(text="Yes, it is."))
    TOLD = "Let me see.\n\nYes, it is."

    @pytest.mark.parametrize("upstream", [MESSAGES, RESPONSES, GEMINI])
    def test_are_known_by_the_one_text_that_chat_completions_has(self, relay: Relay, upstream: str) -> None:
        talk = Chat(relay)
        for question in ("Is it?", "Really?", "And now?"):
            relay.answer(talk.send(question, upstream=upstream), replace(model_answer(), parts=self.PARTS))
            relay.digest()
            talk.add_answer(model_answer(self.TOLD))
        (session,) = sessions()
        assert (session.version, session.message_count) == (6, 6)

    def test_also_with_a_call_and_before_they_are_filed(self, relay: Relay) -> None:
        asking = call("look", "c1")
        talk = Chat(relay)
        first = talk.send("Is it?", upstream=MESSAGES)
        relay.digest()
        talk.add_answer(model_answer(self.TOLD, asking))
        talk.find(c1="Yes.")
        second = talk.send("", upstream=MESSAGES)
        relay.digest()
        relay.answer(first, replace(model_answer(), parts=(*self.PARTS, asking)))
        relay.answer(second, model_answer("It is."))
        relay.digest()
        assert len(sessions()) == 1
        assert [message.kind for message in Message.objects.order_by("seq")] == [
            *("model_input", "model_output", "tool_results", "model_output")
        ]

    @pytest.mark.parametrize("client", [CHAT, RESPONSES])
    def test_two_messages_in_a_row_are_read_as_two_and_known_as_the_client_has_them(
        self, relay: Relay, client: str
    ) -> None:
        talk = Chat(relay) if client == CHAT else ResponsesSdk(relay)
        told = replace(model_answer(), parts=(Text(text="I look."), Text(text="It rains.")))
        relay.answer(talk.send("Weather?", upstream=RESPONSES), told)
        relay.digest()
        for text in ("I look.\n\nIt rains.",) if client == CHAT else ("I look.", "It rains."):
            talk.add_answer(model_answer(text))
        talk.relay_call("Sure?", model_answer("Yes."), upstream=RESPONSES)
        (session,) = sessions()
        assert path_of(session) == ["u:Weather?", "a:I look.\n\nIt rains.", "u:Sure?", "a:Yes."]
        assert session.version == 4


class TestToolsThatTakePlainText:
    """Other vendors' models call a function in its place, and write the text into what they like."""

    @pytest.mark.parametrize(
        ("arguments", "told"), [({"patch": "+ x"}, "+ x"), ({}, ""), ({"a": "x", "b": 1}, '{"a": "x", "b": 1}')]
    )
    def test_are_known_by_the_text_that_a_client_of_responses_was_given(
        self, relay: Relay, arguments: dict[str, Any], told: str
    ) -> None:
        talk = ResponsesSdk(relay)
        talk.body["tools"] = [{"type": "custom", "name": "apply_patch"}]
        first = talk.send("Patch it", upstream=CHAT)
        relay.digest()
        relay.answer(first, model_answer("I do.", call("apply_patch", "c1", **arguments)))
        relay.digest()
        talk.add_answer(model_answer("I do."))
        made = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": told}
        talk.body["input"] += [made, {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."}]
        talk.relay_call("", model_answer("Patched."), upstream=CHAT)
        talk.relay_call("Thanks", model_answer("Welcome."), upstream=CHAT)
        (session,) = sessions()
        assert path_of(session) == ["u:Patch it", "a:I do.", "t:Done.", "a:Patched.", "u:Thanks", "a:Welcome."]
        assert Message.objects.filter(kind="model_output").count() == 3
        one = ToolCall.objects.get()
        assert (one.status, json.loads(one.arguments)) == ("success", arguments)

    def test_also_in_the_one_text_of_chat_completions(self, relay: Relay) -> None:
        custom = {"name": "apply_patch", "input": "+ x"}
        talk = Chat(relay)
        talk.body["tools"] = [{"type": "custom", "custom": {"name": "apply_patch"}}]
        asking = call("apply_patch", "c1", patch="+ x")
        parts = (Text(text="Let me see."), Reasoning(text="Hm."), Text(text="I do."), asking)
        relay.answer(talk.send("Patch it", upstream=GEMINI), replace(model_answer(), parts=parts))
        relay.digest()
        talk.add_answer(model_answer("Let me see.\n\nI do."))
        talk.body["messages"][-1]["tool_calls"] = [{"id": "c1", "type": "custom", "custom": custom}]
        talk.find(c1="Done.")
        talk.relay_call("", model_answer("Patched."), upstream=GEMINI)
        assert path_of(sessions()[0]) == ["u:Patch it", "a:Let me see.\n\nI do.", "t:Done.", "a:Patched."]
        assert Message.objects.filter(kind="model_output").count() == 2


class TestReferences:
    """The Vercel AI SDK names what OpenAI keeps instead of sending it."""

    def relay_call(self, relay: Relay, said_so_far: list[Any], text: str, output: ModelOutput, **fields: Any) -> UUID:
        said_so_far.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
        body = {"model": "m", "input": said_so_far, "stream": True, **fields}
        turn = len(said_so_far)
        exchange = relay.relay_call(RESPONSES, body, output, path="/v1/responses", reply_id=f"resp_{turn}")
        said_so_far += [{"type": "item_reference", "id": f"msg_resp_{turn}_0"}] if output.text else []
        for place, one in enumerate(output.tool_requests, 1):
            made = {"call_id": one.call_id, "name": one.name, "arguments": one.arguments}
            said_so_far.append({"type": "function_call", "id": f"fc_resp_{turn}_{place}", **made})
        return exchange

    def test_an_answer_that_is_only_named_is_gone_on_from(self, relay: Relay) -> None:
        talk: list[Any] = []
        self.relay_call(relay, talk, "one", model_answer("1"))
        self.relay_call(relay, talk, "two", model_answer("2"))
        last = self.relay_call(relay, talk, "three", model_answer("3"))
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2", "u:three", "a:3"]
        assert sessions()[0].version == 6
        assert exchange_of(last).metadata["recognised_by"] == "fingerprint"

    def test_also_one_that_came_compressed(self, relay: Relay) -> None:
        talk: list[Any] = [{"role": "user", "content": "one"}]
        exchange = relay.send(RESPONSES, {"model": "m", "input": talk, "stream": True}, path="/v1/responses")
        relay.journal.reply(
            exchange, gzip.compress(reply_bytes(RESPONSES, model_answer("1"), stream=True, reply_id="resp_1"))
        )
        relay.end(exchange, response_headers=[("content-encoding", "gzip")])
        relay.digest()
        talk.append({"type": "item_reference", "id": "msg_resp_1_0"})
        self.relay_call(relay, talk, "two", model_answer("2"))
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2"]

    def test_with_calls_beside_it_and_a_branch_later(self, relay: Relay) -> None:
        talk: list[Any] = []
        self.relay_call(relay, talk, "one", model_answer("I look.", call("f", "call_1", a=1)))
        talk.append({"type": "function_call_output", "call_id": "call_1", "output": "42"})
        begun = list(talk)
        self.relay_call(relay, talk, "and?", model_answer("It is 42."))
        self.relay_call(relay, begun, "well?", model_answer("42."))
        (session,) = sessions()
        assert path_of(session) == ["u:one", "a:I look.", "t:42", "u:well?", "a:42."]
        assert (ToolCall.objects.get().status, Message.objects.filter(content="I look.").count()) == ("success", 1)

    def test_names_that_another_key_was_given_lead_nowhere(self, relay: Relay, ada: User) -> None:
        talk: list[Any] = []
        self.relay_call(relay, talk, "one", model_answer("1"))
        other = keys.create(name="other", owner=ada, recording="full").api_key
        body = {"model": "m", "input": [*talk, {"role": "user", "content": "two"}]}
        last = relay.relay_call(RESPONSES, body, model_answer("2"), key=other, path="/v1/responses", reply_id="resp_x")
        assert exchange_of(last).metadata["recognised_by"] == "new"

    def test_of_what_no_vendor_keeps_no_names_are_kept(self) -> None:
        reply = b'{"id": "resp_1", "store": false, "output": [{"id": "msg_12345678"}]}'
        assert item_ids(DIALECTS["openai-responses"].HTTP_API, reply) == ()
        assert item_ids(DIALECTS["openai-responses"].HTTP_API, reply.replace(b"false", b"true")) == ("msg_12345678",)
        assert item_ids(DIALECTS["openai-responses"].HTTP_API, b'{"text": "{\\"id\\": \\"msg_12345678\\"}"}') == ()


class TestCalls:
    @pytest.mark.parametrize("ids", [("", "read_file-17-a1"), ("synth_read_file_a1", "synth_read_file_a1"), ("", "")])
    def test_results_under_ids_that_gemini_cli_made_complete_the_calls(
        self, relay: Relay, ids: tuple[str, str]
    ) -> None:
        def call_of(path: str, given: str) -> dict[str, Any]:
            made = {"name": "read_file", "args": {"path": path}}
            return {"functionCall": {"id": f"{given}{path}", **made} if given else made}

        def result_of(path: str, given: str) -> dict[str, Any]:
            made = {"name": "read_file", "response": {"output": f"text of {path}"}}
            return {"functionResponse": {"id": f"{given}{path}", **made} if given else made}

        talk = GeminiCli(relay)
        exchange = talk.send("Read them")
        parts = [call_of(path, "") for path in ("a", "b")]
        told = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
        relay.journal.reply(exchange, b"data: %s\n\n" % json.dumps(told).encode())
        relay.end(exchange)
        talk.body["contents"].append({"role": "model", "parts": [call_of(path, ids[0]) for path in ("a", "b")]})
        talk.body["contents"].append({"role": "user", "parts": [result_of(path, ids[1]) for path in ("a", "b")]})
        talk.relay_call("", model_answer("Read."))
        talk.relay_call("Thanks", model_answer("Gladly."))
        calls = ToolCall.objects.order_by("index")
        assert [(one.status, one.result) for one in calls] == [("success", "text of a"), ("success", "text of b")]
        assert not Message.objects.filter(kind="head_moved").exists()


class TestQuestions:
    def test_an_unanswered_instruction_in_mid_conversation_is_stored_once(self, relay: Relay) -> None:
        talk = ClaudeCode(relay)
        talk.add_user_text("Fix the parser")
        for _ in range(3):
            relay.end(talk.send(), "client_gone", status=0)
            relay.digest()
        talk.relay_call("", model_answer("Fixed."))
        (session,) = sessions()
        assert session.message_count == 2
        assert Message.objects.filter(kind="model_input", is_internal=True).count() == 1

    def test_but_another_one_after_it_is_stored(self, relay: Relay) -> None:
        messages = [{"role": "user", "content": "Go"}, {"role": "system", "content": "Be brief."}]
        for told in ("Be kind.", "Be quick."):
            body = {"model": "m", "max_tokens": 9, "messages": messages}
            relay.end(relay.send(MESSAGES, body, {"x-session-id": "abcdefgh1"}), "client_gone", status=0)
            relay.digest()
            messages.append({"role": "system", "content": told})
        relay.relay_call(MESSAGES, body, model_answer("Yes."), {"x-session-id": "abcdefgh1"})
        rows = Message.objects.filter(is_internal=True, on_path=True).order_by("seq")
        assert [row.content for row in rows] == ["Be brief.", "Be kind.", "Be quick."]

    def test_two_conversations_that_begin_alike_go_on_each_in_its_own_session(self, relay: Relay) -> None:
        talks = {"Ada": Chat(relay), "Bob": Chat(relay)}
        for talk in talks.values():
            talk.relay_call("hello", model_answer("Hi!"))
        for number in range(3):
            for name, talk in talks.items():
                talk.relay_call(f"{name} asks {number}", model_answer(f"{name} hears {number}"))
        found = sorted(path_of(session)[2:] for session in sessions())
        assert [lines[0] for lines in found] == ["u:Ada asks 0", "u:Bob asks 0"]
        assert [len(lines) for lines in found] == [6, 6]
        assert not Message.objects.filter(kind="head_moved").exists()


class TestCompaction:
    @pytest.mark.parametrize("answer", ["Half \ud800 a character", "A \x00 byte", "x" * 120_000])
    def test_the_answer_that_was_kept_may_be_one_that_a_row_holds_differently(self, relay: Relay, answer: str) -> None:
        talk = GeminiCli(relay)
        talk.relay_call("one", model_answer("1"))
        talk.relay_call("two", model_answer(answer))
        talk.body["contents"] = [SNAPSHOT, HEARD, *talk.body["contents"][-2:]]
        last = talk.relay_call("three", model_answer("3"))
        assert len(sessions()) == 1
        assert (exchange_of(last).metadata.get("problem"), exchange_of(last).end_reason) == (None, "done")

    def test_a_quoted_summary_element_is_not_a_compaction(self, relay: Relay) -> None:
        Chat(relay).relay_call("Is it so?", model_answer("Yes."))
        talk = Chat(relay)
        talk.add_user_text("What is wrong with <details><summary>More</summary></details>?")
        talk.add_answer(model_answer("Yes."))
        talk.relay_call("And now?", model_answer("Nothing."))
        assert sorted(session.message_count for session in sessions()) == [2, 4]

    def test_an_answer_that_others_were_given_too_does_not_lead_to_them(self, relay: Relay) -> None:
        mine, other = GeminiCli(relay), GeminiCli(relay)
        mine.relay_call("Count the lakes", model_answer("There are many."))
        mine.relay_call("Is that so?", model_answer("Yes."))
        other.relay_call("Count the hills", model_answer("There are few."))
        other.relay_call("Really?", model_answer("Yes."))
        mine.body["contents"] = [SNAPSHOT, HEARD, *mine.body["contents"][-2:]]
        last = mine.relay_call("Go on", model_answer("We go on."))
        session = exchange_of(last).session
        assert session is not None
        assert session.title == "Count the lakes"
