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
from tests.relay.digest.relayed import Relay, call, exchange_of, path_of, reply_bytes, said, sessions

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
        relay.ask(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, said("Black."))
        (session,) = sessions()
        assert (session.version, session.message_count) == (4, 4)

    def test_claude_code_sends_a_call_back_with_other_arguments_than_it_was_given(self, relay: Relay) -> None:
        name = "toolu_01A09q90qw90lq917835lq9"
        talk = ClaudeCode(relay)
        talk.ask("Build it", said("", call("Bash", name, command="cd /repo && make")))
        talk.body["messages"][-1]["content"][-1]["input"] = {"command": "make"}
        talk.find(**{name: "done"})
        talk.ask("", said("Built."))
        talk.ask("Thanks", said("Welcome."))
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
        last = relay.ask(GEMINI, {"contents": contents}, said("Yes."), path=path)
        assert path_of(sessions()[0]) == ["u:Hi", "a:Hello world.", "u:More", "a:Yes."]
        assert exchange_of(last).metadata["recognised_by"] == "fingerprint"

    @pytest.mark.parametrize("is_named", [True, False])
    def test_one_that_was_asked_for_again_in_vain_is_gone_on_from(self, relay: Relay, is_named: bool) -> None:
        talk = Chat(relay, **({"x-session-id": "abcdefgh1"} if is_named else {}))
        talk.ask("one", said("1"))
        talk.ask("two", said("2"))
        answer = talk.body["messages"].pop()
        relay.end(talk.send(), "client_gone", status=0)
        relay.digest()
        talk.body["messages"].append(answer)
        talk.ask("three", said("3"))
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
            relay.answer(talk.send(question, upstream=upstream), replace(said(), parts=self.PARTS))
            relay.digest()
            talk.hear(said(self.TOLD))
        (session,) = sessions()
        assert (session.version, session.message_count) == (6, 6)

    def test_also_with_a_call_and_before_they_are_filed(self, relay: Relay) -> None:
        asking = call("look", "c1")
        talk = Chat(relay)
        first = talk.send("Is it?", upstream=MESSAGES)
        relay.digest()
        talk.hear(said(self.TOLD, asking))
        talk.find(c1="Yes.")
        second = talk.send("", upstream=MESSAGES)
        relay.digest()
        relay.answer(first, replace(said(), parts=(*self.PARTS, asking)))
        relay.answer(second, said("It is."))
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
        told = replace(said(), parts=(Text(text="I look."), Text(text="It rains.")))
        relay.answer(talk.send("Weather?", upstream=RESPONSES), told)
        relay.digest()
        for text in ("I look.\n\nIt rains.",) if client == CHAT else ("I look.", "It rains."):
            talk.hear(said(text))
        talk.ask("Sure?", said("Yes."), upstream=RESPONSES)
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
        relay.answer(first, said("I do.", call("apply_patch", "c1", **arguments)))
        relay.digest()
        talk.hear(said("I do."))
        made = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": told}
        talk.body["input"] += [made, {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."}]
        talk.ask("", said("Patched."), upstream=CHAT)
        talk.ask("Thanks", said("Welcome."), upstream=CHAT)
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
        relay.answer(talk.send("Patch it", upstream=GEMINI), replace(said(), parts=parts))
        relay.digest()
        talk.hear(said("Let me see.\n\nI do."))
        talk.body["messages"][-1]["tool_calls"] = [{"id": "c1", "type": "custom", "custom": custom}]
        talk.find(c1="Done.")
        talk.ask("", said("Patched."), upstream=GEMINI)
        assert path_of(sessions()[0]) == ["u:Patch it", "a:Let me see.\n\nI do.", "t:Done.", "a:Patched."]
        assert Message.objects.filter(kind="model_output").count() == 2


class TestReferences:
    """The Vercel AI SDK names what OpenAI keeps instead of sending it."""

    def ask(self, relay: Relay, said_so_far: list[Any], text: str, output: ModelOutput, **fields: Any) -> UUID:
        said_so_far.append({"role": "user", "content": [{"type": "input_text", "text": text}]})
        body = {"model": "m", "input": said_so_far, "stream": True, **fields}
        turn = len(said_so_far)
        exchange = relay.ask(RESPONSES, body, output, path="/v1/responses", reply_id=f"resp_{turn}")
        said_so_far += [{"type": "item_reference", "id": f"msg_resp_{turn}_0"}] if output.text else []
        for place, one in enumerate(output.tool_requests, 1):
            made = {"call_id": one.call_id, "name": one.name, "arguments": one.arguments}
            said_so_far.append({"type": "function_call", "id": f"fc_resp_{turn}_{place}", **made})
        return exchange

    def test_an_answer_that_is_only_named_is_gone_on_from(self, relay: Relay) -> None:
        talk: list[Any] = []
        self.ask(relay, talk, "one", said("1"))
        self.ask(relay, talk, "two", said("2"))
        last = self.ask(relay, talk, "three", said("3"))
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2", "u:three", "a:3"]
        assert sessions()[0].version == 6
        assert exchange_of(last).metadata["recognised_by"] == "fingerprint"

    def test_also_one_that_came_compressed(self, relay: Relay) -> None:
        talk: list[Any] = [{"role": "user", "content": "one"}]
        exchange = relay.send(RESPONSES, {"model": "m", "input": talk, "stream": True}, path="/v1/responses")
        relay.journal.reply(exchange, gzip.compress(reply_bytes(RESPONSES, said("1"), stream=True, reply_id="resp_1")))
        relay.end(exchange, response_headers=[("content-encoding", "gzip")])
        relay.digest()
        talk.append({"type": "item_reference", "id": "msg_resp_1_0"})
        self.ask(relay, talk, "two", said("2"))
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2"]

    def test_with_calls_beside_it_and_a_branch_later(self, relay: Relay) -> None:
        talk: list[Any] = []
        self.ask(relay, talk, "one", said("I look.", call("f", "call_1", a=1)))
        talk.append({"type": "function_call_output", "call_id": "call_1", "output": "42"})
        begun = list(talk)
        self.ask(relay, talk, "and?", said("It is 42."))
        self.ask(relay, begun, "well?", said("42."))
        (session,) = sessions()
        assert path_of(session) == ["u:one", "a:I look.", "t:42", "u:well?", "a:42."]
        assert (ToolCall.objects.get().status, Message.objects.filter(content="I look.").count()) == ("success", 1)

    def test_names_that_another_key_was_given_lead_nowhere(self, relay: Relay, ada: User) -> None:
        talk: list[Any] = []
        self.ask(relay, talk, "one", said("1"))
        other = keys.create(name="other", owner=ada, recording="full").api_key
        body = {"model": "m", "input": [*talk, {"role": "user", "content": "two"}]}
        last = relay.ask(RESPONSES, body, said("2"), key=other, path="/v1/responses", reply_id="resp_x")
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
        talk.ask("", said("Read."))
        talk.ask("Thanks", said("Gladly."))
        calls = ToolCall.objects.order_by("index")
        assert [(one.status, one.result) for one in calls] == [("success", "text of a"), ("success", "text of b")]
        assert not Message.objects.filter(kind="head_moved").exists()


class TestQuestions:
    def test_an_unanswered_instruction_in_mid_conversation_is_stored_once(self, relay: Relay) -> None:
        talk = ClaudeCode(relay)
        talk.say("Fix the parser")
        for _ in range(3):
            relay.end(talk.send(), "client_gone", status=0)
            relay.digest()
        talk.ask("", said("Fixed."))
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
        relay.ask(MESSAGES, body, said("Yes."), {"x-session-id": "abcdefgh1"})
        rows = Message.objects.filter(is_internal=True, on_path=True).order_by("seq")
        assert [row.content for row in rows] == ["Be brief.", "Be kind.", "Be quick."]

    def test_two_conversations_that_begin_alike_go_on_each_in_its_own_session(self, relay: Relay) -> None:
        talks = {"Ada": Chat(relay), "Bob": Chat(relay)}
        for talk in talks.values():
            talk.ask("hello", said("Hi!"))
        for number in range(3):
            for name, talk in talks.items():
                talk.ask(f"{name} asks {number}", said(f"{name} hears {number}"))
        found = sorted(path_of(session)[2:] for session in sessions())
        assert [lines[0] for lines in found] == ["u:Ada asks 0", "u:Bob asks 0"]
        assert [len(lines) for lines in found] == [6, 6]
        assert not Message.objects.filter(kind="head_moved").exists()


class TestCompaction:
    @pytest.mark.parametrize("answer", ["Half \ud800 a character", "A \x00 byte", "x" * 120_000])
    def test_the_answer_that_was_kept_may_be_one_that_a_row_holds_differently(self, relay: Relay, answer: str) -> None:
        talk = GeminiCli(relay)
        talk.ask("one", said("1"))
        talk.ask("two", said(answer))
        talk.body["contents"] = [SNAPSHOT, HEARD, *talk.body["contents"][-2:]]
        last = talk.ask("three", said("3"))
        assert len(sessions()) == 1
        assert (exchange_of(last).metadata.get("problem"), exchange_of(last).end_reason) == (None, "done")

    def test_a_quoted_summary_element_is_not_a_compaction(self, relay: Relay) -> None:
        Chat(relay).ask("Is it so?", said("Yes."))
        talk = Chat(relay)
        talk.say("What is wrong with <details><summary>More</summary></details>?")
        talk.hear(said("Yes."))
        talk.ask("And now?", said("Nothing."))
        assert sorted(session.message_count for session in sessions()) == [2, 4]

    def test_an_answer_that_others_were_given_too_does_not_lead_to_them(self, relay: Relay) -> None:
        mine, other = GeminiCli(relay), GeminiCli(relay)
        mine.ask("Count the lakes", said("There are many."))
        mine.ask("Is that so?", said("Yes."))
        other.ask("Count the hills", said("There are few."))
        other.ask("Really?", said("Yes."))
        mine.body["contents"] = [SNAPSHOT, HEARD, *mine.body["contents"][-2:]]
        last = mine.ask("Go on", said("We go on."))
        session = exchange_of(last).session
        assert session is not None
        assert session.title == "Count the lakes"
