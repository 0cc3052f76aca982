"""Which session a request continues, and where in it: what clients name, what vendors keep, what was said before."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest

from history.entries import ToolRequest
from history.models import Exchange, Message, Session, ToolCall
from history.retention import erase
from history.verification import verify
from relay.digest.digester import Digester
from tests.relay.digest.programs import Chat, ClaudeCode, Codex, GeminiCli, OpenCode, Program
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, sessions

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

    def relay_call(self, said_now: Any, answer: Any, **fields: Any) -> UUID:
        self.turns += 1
        exchange = self.send(said_now, **fields)
        self.relay.answer(
            exchange, model_answer(answer) if isinstance(answer, str) else answer, reply_id=f"resp_{self.turns}"
        )
        self.relay.digest()
        return exchange


class TestWhatTheVendorKeeps:
    @pytest.mark.parametrize("second", ["two", "one"])
    def test_a_conversation_goes_on_where_it_ended_even_in_the_same_words(self, relay: Relay, second: str) -> None:
        talk = Vendor(relay, conversation={"id": "conv_1"})
        talk.relay_call("one", "1")
        talk.relay_call(second, "2")
        last = talk.relay_call("three", "3")
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
        relay.answer(first, model_answer("1"))
        relay.answer(second, model_answer("2"))
        relay.digest()
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2"]

    @pytest.mark.parametrize("header", ["X-Parley-Session-Id", "x-session-id"])
    def test_an_answer_is_continued_under_any_session_name(self, relay: Relay, header: str) -> None:
        talk = Vendor(relay, {header: "my-talk-12345"})
        talk.relay_call("one", model_answer("", call("f", "c1", a=1)))
        found = [{"type": "function_call_output", "call_id": "c1", "output": "42"}]
        talk.relay_call(found, "2", previous_response_id="resp_1")
        assert ToolCall.objects.get().status == "success"
        talk.relay_call("again", "2b", previous_response_id="resp_1")
        (session,) = sessions()
        assert [row.kind for row in Message.objects.filter(session=session).order_by("seq")] == [
            *("model_input", "model_output", "tool_results", "model_output"),
            *("head_moved", "model_input", "model_output"),
        ]
        assert path_of(session)[-2:] == ["u:again", "a:2b"]

    def test_an_unknown_answer_is_continued_at_the_end_of_the_named_session(self, relay: Relay) -> None:
        talk = Vendor(relay, {"x-session-id": "my-talk-12345"})
        talk.relay_call("one", "1")
        talk.relay_call("two", "2", previous_response_id="resp_of_another_day")
        assert path_of(sessions()[0]) == ["u:one", "a:1", "u:two", "a:2"]

    def test_replies_that_are_not_recorded_are_gone_on_from_all_the_same(self, relay: Relay) -> None:
        relay.key.recording = "no_replies"
        relay.key.save()
        relay.answer(Vendor(relay).send("one"), model_answer("1"), metadata={"reply_id": "resp_1"})
        relay.digest()
        relay.answer(Vendor(relay).send("two", previous_response_id="resp_1"), model_answer("2"))
        relay.digest()
        assert path_of(sessions()[0]) == ["u:one", "u:two"]


class TestWhatClientsName:
    @pytest.mark.parametrize("field", ["litellm_session_id", "session_id", "conversation_id"])
    def test_a_body_names_its_session_where_no_header_does(self, relay: Relay, field: str) -> None:
        for text in ("one", "two"):
            body = {"model": "m", "messages": [{"role": "user", "content": text}], field: "task-123456"}
            last = relay.relay_call(CHAT, body, model_answer("Yes."))
        assert len(sessions()) == 1
        assert exchange_of(last).metadata["recognised_by"] == "client id"
        relay.relay_call(CHAT, body, model_answer("Yes."), {"x-session-id": "another-one"})
        assert len(sessions()) == 2

    def test_an_agent_is_no_part_of_the_conversation_whose_session_only_the_body_names(self, relay: Relay) -> None:
        user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": "abc-123"})
        for text, headers in (("main", {}), ("sub", {"x-claude-code-agent-id": "a1"})):
            messages = [{"role": "user", "content": text}]
            body = {"model": "m", "max_tokens": 9, "metadata": {"user_id": user}, "messages": messages}
            relay.relay_call(MESSAGES, body, model_answer("Yes."), headers)
        main, sub = sessions()
        assert (main.parent, sub.parent) == (None, main)

    def test_a_thread_of_codex_without_a_parent_belongs_to_the_session_that_it_shares(self, relay: Relay) -> None:
        ids = {"session-id": "root", "thread-id": "root"}
        Codex(relay, **ids).relay_call("hi", model_answer("Yes."))
        Codex(relay, **{**ids, "thread-id": "child", "x-openai-subagent": "review"}).relay_call(
            "review", model_answer("Fine.")
        )
        main, sub = sessions()
        assert (main.parent, sub.parent) == (None, main)

    @pytest.mark.parametrize("program", [ClaudeCode, Codex])
    def test_a_session_that_was_removed_begins_again_with_its_instruction_and_tools(
        self, program: type[Program], relay: Relay
    ) -> None:
        """A purge removes sessions over a cap while their programs go on, and their ids lead to the same name."""
        states = Message.objects.filter(kind__in=("system_instruction_set", "tools_offered")).values_list("kind")
        talk = program(relay)
        talk.relay_call("Fix the parser.", model_answer("Done."))
        erase(sessions()[0], actor=relay.key.owner, reason="over the cap")
        talk.relay_call("And the tests?", model_answer("They pass."))
        (session,) = sessions()
        assert [kind for (kind,) in states.order_by("seq")] == ["system_instruction_set", "tools_offered"]
        assert path_of(session)[-1] == "a:They pass."
        talk.relay_call("Thanks.", model_answer("Gladly."))
        assert states.count() == 2


class TestBranches:
    @pytest.mark.parametrize("taken_back", [1, 3])
    def test_of_two_that_are_filed_together_the_later_is_the_path(self, relay: Relay, taken_back: int) -> None:
        """The user stops an answer and asks something else; the digester reads both at once."""
        talk = Chat(relay)
        talk.relay_call("One", model_answer("1"))
        talk.relay_call("Two", model_answer("2"))
        relay.answer(talk.send("Three"), model_answer("3"))
        del talk.body["messages"][-taken_back:]
        relay.answer(talk.send("Four"), model_answer("4"))
        relay.digest()
        (session,) = sessions()
        assert path_of(session)[-2:] == ["u:Four", "a:4"]
        talk.add_answer(model_answer("4"))
        talk.relay_call("Five", model_answer("5"))
        assert path_of(session)[-4:] == ["u:Four", "a:4", "u:Five", "a:5"]
        assert Message.objects.filter(kind="head_moved").count() == 1
        assert list(verify()) == []

    @pytest.mark.parametrize("status", [500, 200])
    def test_a_question_without_an_answer_is_stored_once_though_the_next_is_filed_with_it(
        self, relay: Relay, status: int
    ) -> None:
        talk = Chat(relay)
        talk.relay_call("One", model_answer("1"))
        failed = talk.send("Two")
        relay.end(failed, "upstream_error" if status == 500 else "client_gone", status=status)
        relay.answer(talk.send("Are you there?"), model_answer("Yes."))
        relay.digest()
        (session,) = sessions()
        spoken = [line for line in path_of(session) if "【错误】" not in line]
        assert spoken == ["u:One", "a:1", "u:Two", "u:Are you there?", "a:Yes."]
        assert Message.objects.filter(content="Two").count() == 1

    def test_each_branch_has_the_instruction_that_it_was_said_under(self, relay: Relay) -> None:
        def ask(instruction: str, *turns: str, answer: str) -> str:
            roles = ("user", "assistant")
            messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)]
            body = {"model": "m", "messages": [{"role": "system", "content": instruction}, *messages]}
            relay.relay_call(CHAT, body, model_answer(answer), {"x-session-id": "abcdefgh1"})
            relay.digest_later()
            return Message.objects.filter(is_state=True, on_path=True).order_by("seq").reverse()[0].content

        assert ask("S1", "u1", answer="a1") == "S1"
        assert ask("S1", "u1", "a1", "u2", answer="a2") == "S1"
        assert ask("S2", "u1", "a1", "u2", "a2", "u3", answer="a3") == "S2"
        assert ask("S2", "u1", "a1", "u2 edited", answer="a2b") == "S2"
        assert ask("S1", "u1", "a1", "u2", "a2", "u3", "a3", "u4", answer="a4") == "S1"

    def test_the_path_has_no_instruction_of_a_branch_that_was_left(self, relay: Relay) -> None:
        """Qwen Code 0.15.10 asks an agent of its own what to remember, after each turn and with all that was said."""
        instruction = {"role": "system", "content": "You are Qwen Code."}
        tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("edit", "agent")]
        talk = Chat(relay)
        talk.body |= {"messages": [instruction], "tools": tools}
        for turn in range(3):
            talk.relay_call(f"Question {turn}", model_answer(f"Answer {turn}."))
            memory = [{"role": "system", "content": "Extract memories."}, *talk.body["messages"][1:]]
            memory.append({"role": "user", "content": "What is worth remembering?"})
            relay.relay_call(CHAT, {**talk.body, "messages": memory, "tools": tools[:1]}, model_answer("Nothing."))
        talk.relay_call("Last question", model_answer("Last answer."))
        (session,) = sessions()
        kinds = Message.objects.filter(on_path=True, kind__in=("system_instruction_set", "tools_offered"))
        assert [row.content for row in kinds.order_by("seq")] == ["You are Qwen Code.", "edit, agent"]
        assert path_of(session)[-2:] == ["u:Last question", "a:Last answer."]
        assert list(verify()) == []

    def test_results_under_an_id_that_is_used_again_have_not_changed(self, relay: Relay) -> None:
        talk = Chat(relay)
        for turn in range(3):
            talk.relay_call(f"q{turn}", model_answer("", call("f", "call_1", n=turn)))
            talk.find(call_1=f"result {turn}")
            talk.relay_call("", model_answer(f"done {turn}"))
            relay.digester = Digester(relay.folder, name="test", end_wait=0)
        assert not Exchange.objects.filter(metadata__has_key="changed_results").exists()

    def test_what_opencode_makes_of_a_long_conversation_is_a_marked_branch(self, relay: Relay) -> None:
        talk = OpenCode(relay, session="ses_12345678")
        talk.relay_call("one", model_answer("1"))
        talk.body["messages"] = [
            talk.body["messages"][0],
            {"role": "user", "content": "What did we do so far?"},
            {"role": "assistant", "content": "## Objective"},
            {"role": "user", "content": "Continue if you have next steps"},
        ]
        talk.relay_call("", model_answer("2"))
        assert '"compacted"' in (Message.objects.get(kind="head_moved").body or "")

    def test_a_conversation_compressed_by_gemini_cli_is_a_marked_branch(self, relay: Relay) -> None:
        others, talk = GeminiCli(relay), GeminiCli(relay)
        others.relay_call("Count the lakes", model_answer("There are many of them."))
        for number in range(3):
            talk.relay_call(f"Question {number}", model_answer(f"Answer {number}"))
        snapshot = {
            "role": "user",
            "parts": [{"text": "<state_snapshot><overall_goal>x</overall_goal></state_snapshot>"}],
        }
        heard = {"role": "model", "parts": [{"text": "Got it. Thanks for the additional context!"}]}
        talk.body["contents"] = [snapshot, heard, *talk.body["contents"][-2:]]
        talk.relay_call("And now?", model_answer("We go on."))
        assert len(sessions()) == 2
        session = Session.objects.get(messages__content="We go on.")
        assert path_of(session)[-2:] == ["u:And now?", "a:We go on."]
        moved = Message.objects.get(session=session, kind="head_moved")
        assert '"compacted"' in (moved.body or "")


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
            relay.relay_call(MESSAGES, {"model": "m", "max_tokens": 9, "messages": [hello]}, model_answer(""))
        thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
        messages = [hello, thought, {"role": "user", "content": "and?"}]
        last = relay.relay_call(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, model_answer("Yes."))
        assert exchange_of(last).metadata["recognised_by"] == "new"

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "file", "file": {"file_id": "file-abc"}},
            {"type": "video_url", "video_url": {"url": "https://example.org/film.mp4"}},
        ],
    )
    def test_a_question_without_words_is_not_folded_away(self, relay: Relay, block: dict[str, Any]) -> None:
        relay.relay_call(
            CHAT, {"model": "m", "messages": [{"role": "user", "content": [block]}]}, model_answer("I see.")
        )
        assert len(path_of(sessions()[0])) == 2

    @pytest.mark.parametrize(
        ("asked", "sent_back"), [("30.0", 30), ("1e3", 1000), ("12345678901234567890", 12345678901234567000)]
    )
    def test_numbers_come_back_from_javascript_in_its_own_hand(self, relay: Relay, asked: str, sent_back: int) -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
        request = ToolRequest(call_id="c1", name="wait", arguments=f'{{"t": {asked}}}')
        relay.relay_call(
            MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, model_answer("I wait.", request)
        )
        used = {"type": "tool_use", "id": "c1", "name": "wait", "input": {"t": sent_back}}
        messages += [
            {"role": "assistant", "content": [{"type": "text", "text": "I wait."}, used]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]},
        ]
        relay.relay_call(MESSAGES, {"model": "m", "max_tokens": 9, "messages": messages}, model_answer("Done."))
        assert Message.objects.filter(kind="model_output").count() == 2
        assert ToolCall.objects.get().status == "success"

    def test_thoughts_aloud_may_be_left_out_of_what_is_sent_back(self, relay: Relay) -> None:
        messages = [{"role": "user", "content": "go"}]
        relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("<think>hm</think>\n\nYes."))
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "more"}]
        relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("Good."))
        assert Message.objects.filter(kind="model_output").count() == 2
