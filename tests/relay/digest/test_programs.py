"""Recorded programs: the right number of sessions and messages with moved entries, retries and side calls."""

from __future__ import annotations

import base64

import pytest
from django.utils import timezone

from history.models import Blob, Exchange, Message, Session, ToolCall
from relay.digest.digester import Digester
from tests.history.dialects.samples import PNG, in_snake_case
from tests.relay.digest.programs import (
    AnthropicSdk,
    ChangingSpelling,
    Chat,
    ClaudeCode,
    Codex,
    GeminiCli,
    GenAiSdk,
    OpenCode,
    Program,
    ResponsesSdk,
    captured,
)
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

EVERY = [ClaudeCode, Codex, GeminiCli, OpenCode, Chat, AnthropicSdk, ResponsesSdk, GenAiSdk, ChangingSpelling]


def started(program: type[Program], relay: Relay) -> Program:
    return OpenCode(relay, session="ses_1") if program is OpenCode else program(relay)


@pytest.mark.parametrize("program", EVERY)
def test_three_turns_with_tools_are_one_session_and_nothing_is_stored_twice(
    program: type[Program], relay: Relay
) -> None:
    client = started(program, relay)
    client.relay_call("Fix the parser.", model_answer("I look first.", call("read_file", "c1", path="p.py")))
    client.find(c1="def parse(): ...")
    client.relay_call("", model_answer("", call("read_file", "c2", path="q.py"), call("read_file", "c3", path="r.py")))
    client.find(c2="import p", c3="import q")
    client.relay_call("", model_answer("It is fixed."))
    client.relay_call("Thanks. And the tests?", model_answer("They pass."))
    (session,) = sessions()
    told = [line for line in path_of(session) if not line.startswith("u:<environment_context>")]
    assert [line.partition(":")[0] for line in told] == list("uatataua")
    assert told[0].endswith("Fix the parser.")
    assert told[-1] == "a:They pass."
    assert session.title == "Fix the parser."
    assert Message.objects.filter(on_path=False).exclude(kind="debug_log").count() == 0
    calls = ToolCall.objects.order_by("pk").values_list("call_id", "status", "result")
    assert list(calls) == [
        ("c1", "success", "def parse(): ..."), ("c2", "success", "import p"), ("c3", "success", "import q"),
    ]  # fmt: skip
    assert Exchange.objects.filter(session=session, end_reason="done").count() == 4


@pytest.mark.parametrize(
    ("program", "client", "recognised"),
    [
        (ClaudeCode, "Claude Code", "client id"),
        (Codex, "Codex", "client id"),
        (GeminiCli, "Gemini CLI", "new"),
        (OpenCode, "opencode", "client id"),
        (Chat, "OpenAI SDK", "new"),
        (AnthropicSdk, "Anthropic SDK", "new"),
        (GenAiSdk, "Google GenAI SDK", "new"),
    ],
)
def test_a_session_says_which_program_it_is_of_and_how_it_was_recognised(
    program: type[Program], client: str, recognised: str, relay: Relay
) -> None:
    talk = started(program, relay)
    talk.relay_call("Fix the parser.", model_answer("Done."))
    last = talk.relay_call("Thanks.", model_answer("You are welcome."))
    (session,) = sessions()
    assert (session.client, session.recognised_by) == (client, recognised)
    expected = "fingerprint" if recognised == "new" else recognised
    assert exchange_of(last).metadata["recognised_by"] == expected


@pytest.mark.parametrize("program", EVERY)
def test_parallel_conversations_under_one_key_do_not_mix(program: type[Program], relay: Relay) -> None:
    names = {"X-Claude-Code-Session-Id": "one", "thread-id": "one", "session-id": "one"}
    one = OpenCode(relay, session="one") if program is OpenCode else program(relay, **names)
    names = dict.fromkeys(names, "two")
    two = OpenCode(relay, session="two") if program is OpenCode else program(relay, **names)
    for turn in range(3):
        one.relay_call(f"Pears {turn}", model_answer(f"Pears are fine {turn}."))
        two.relay_call(f"Plums {turn}", model_answer(f"Plums are better {turn}."))
    assert len(sessions()) == 2
    for session in sessions():
        words = " ".join(path_of(session))
        assert ("Pears" in words) != ("Plums" in words)
        assert session.message_count in (6, 7)


class TestClaudeCode:
    def test_its_compaction_is_a_marked_branch_of_the_same_session(self, relay: Relay) -> None:
        talk = ClaudeCode(relay)
        talk.relay_call("Fix the parser.", model_answer("Done."))
        talk.relay_call("Now the tests.", model_answer("They pass."))
        talk.compact("The parser was fixed.")
        talk.relay_call("And the docs?", model_answer("Written."))
        talk.relay_call("Thanks.", model_answer("Gladly."))
        (session,) = sessions()
        words = path_of(session)
        assert words[0].startswith("u:This session is being continued")
        assert words[-1] == "a:Gladly."
        assert Message.objects.filter(content="They pass.", on_path=False).exists()
        moved = Message.objects.get(kind="head_moved")
        assert '"compacted"' in (moved.body or "")
        assert session.title == "Fix the parser."

    def test_subagents_are_children_of_the_session_that_began_them(self, relay: Relay) -> None:
        main = ClaudeCode(relay)
        main.relay_call("Research fjords.", model_answer("", call("Agent", "c1", prompt="Look up fjords")))
        agent = ClaudeCode(relay, **{"x-claude-code-agent-id": "agent-7"})
        agent.relay_call("Look up fjords", model_answer("Found twelve."))
        nested = ClaudeCode(relay, **{"x-claude-code-agent-id": "agent-8", "x-claude-code-parent-agent-id": "agent-7"})
        nested.relay_call("Count them", model_answer("Twelve."))
        main.find(c1="Found twelve.")
        main.relay_call("", model_answer("There are twelve."))
        above = Session.objects.get(parent=None)
        assert path_of(above)[-1] == "a:There are twelve."
        child = Session.objects.get(parent=above)
        assert path_of(child) == ["u:Look up fjords", "a:Found twelve."]
        asked = Message.objects.get(session=above, tool_calls__call_id="c1")
        assert (child.parent_call, child.metadata["called_at"]) == ("c1", asked.seq)
        assert Session.objects.get(parent=child).title == "Count them"

    @pytest.mark.parametrize("comes_first", ["parent", "child"])
    @pytest.mark.parametrize("at_once", [True, False])
    def test_a_child_finds_its_parent_in_any_order(self, relay: Relay, comes_first: str, at_once: bool) -> None:
        main, agent = ClaudeCode(relay), ClaudeCode(relay, **{"x-claude-code-agent-id": "agent-7"})
        for talk in [main, agent] if comes_first == "parent" else [agent, main]:
            relay.answer(talk.send("Look up fjords" if talk is agent else "Research fjords."), model_answer("Yes."))
            if not at_once:
                relay.digest()
        relay.digest()
        assert Session.objects.get(title="Look up fjords").parent == Session.objects.get(title="Research fjords.")

    def test_a_child_that_another_digester_has_filed_finds_its_parent_with_its_next_call(self, relay: Relay) -> None:
        agent = ClaudeCode(relay, **{"x-claude-code-agent-id": "agent-7"})
        agent.relay_call("Look up fjords", model_answer("Which ones?"))
        relay.digester = Digester(relay.folder, name="test", end_wait=0)
        ClaudeCode(relay).relay_call("Research fjords.", model_answer("Yes."))
        agent.relay_call("All of them", model_answer("Twelve."))
        assert Session.objects.get(title="Look up fjords").parent == Session.objects.get(title="Research fjords.")

    def test_a_child_of_a_deleted_session_belongs_to_the_one_that_goes_on_in_its_place(self, relay: Relay) -> None:
        main = ClaudeCode(relay)
        main.relay_call("Research fjords.", model_answer("Yes."))
        Session.objects.update(state=Session.State.DELETED, hidden_at=timezone.now())
        main.relay_call("Go on.", model_answer("Gladly."))
        ClaudeCode(relay, **{"x-claude-code-agent-id": "agent-7"}).relay_call("Look up fjords", model_answer("Twelve."))
        child = Session.objects.get(title="Look up fjords")
        assert child.parent == Session.objects.exclude(pk=child.pk).get(hidden_at=None)

    def test_no_session_becomes_its_own_ancestor(self, relay: Relay) -> None:
        OpenCode(relay, session="ses_1", **{"x-parent-session-id": "ses_2"}).relay_call("One", model_answer("1"))
        OpenCode(relay, session="ses_2", **{"x-parent-session-id": "ses_1"}).relay_call("Two", model_answer("2"))
        assert [bool(session.parent_id) for session in sessions()] == [False, True]

    def test_which_of_two_calls_began_a_subagent_is_not_guessed(self, relay: Relay) -> None:
        main = ClaudeCode(relay)
        main.relay_call(
            "Research.", model_answer("", call("Agent", "c1", prompt="Fjords"), call("Agent", "c2", prompt="Lakes"))
        )
        ClaudeCode(relay, **{"x-claude-code-agent-id": "agent-7"}).relay_call("Lakes", model_answer("Found twelve."))
        child = Session.objects.get(parent__isnull=False)
        assert (child.parent_call, child.metadata) == ("", {})

    def test_titles_probes_and_counts_are_notes_beside_the_conversation(self, relay: Relay) -> None:
        talk = ClaudeCode(relay)
        probe = {"model": "claude-haiku-4-5", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
        before = relay.relay_call("anthropic-messages", probe, model_answer("#"), talk.headers)
        talk.relay_call("Fix the parser.", model_answer("Done."))
        title = talk.ask_for_title("fix the parser", model_answer("Parser repair"))
        count = relay.send("anthropic-messages", talk.request(), talk.headers, kind="count")
        relay.end(count)
        relay.digest()
        (session,) = sessions()
        assert (session.title, session.message_count) == ("Fix the parser.", 2)
        assert [exchange_of(pk).metadata["helper"] for pk in (before, title, count)] == ["probe", "title", "count"]
        assert exchange_of(title).session == exchange_of(count).session == exchange_of(before).session == session
        notes = Message.objects.filter(kind="debug_log", is_internal=True, on_path=False).order_by("seq")
        assert [note.content for note in notes] == [
            "probe call: quota → #", "title call: fix the parser → Parser repair",
        ]  # fmt: skip
        talk.relay_call("Thanks.", model_answer("Gladly."))
        assert path_of(session)[-1] == "a:Gladly."

    @pytest.mark.parametrize(
        "user_id",
        [
            "user_" + "0" * 64 + "_account__session_1387f1b0-f59f-4a42-b0b9-66fa6658a687",
            '{"device_id":"41d1","account_uuid":"","session_id":"1387f1b0-f59f-4a42-b0b9-66fa6658a687"}',
        ],
    )
    def test_both_grammars_of_its_user_id_name_the_same_session(self, relay: Relay, user_id: str) -> None:
        by_header = ClaudeCode(relay, **{"X-Claude-Code-Session-Id": "1387f1b0-f59f-4a42-b0b9-66fa6658a687"})
        by_header.relay_call("Fix the parser.", model_answer("Done."))
        by_body = ClaudeCode(relay)
        del by_body.headers["X-Claude-Code-Session-Id"]
        by_body.body["metadata"] = {"user_id": user_id}
        by_body.body["messages"] = by_header.body["messages"]
        by_body.relay_call("Thanks.", model_answer("Gladly."))
        assert len(sessions()) == 1

    def test_instructions_and_tools_are_entries_when_they_change_and_only_then(self, relay: Relay) -> None:
        talk = ClaudeCode(relay)
        talk.relay_call("One", model_answer("1"))
        talk.relay_call("Two", model_answer("2"))
        assert Message.objects.filter(is_state=True).values_list("kind", flat=True).count() == 2
        talk.body["system"][-1]["text"] = "You are in plan mode now."
        talk.relay_call("Three", model_answer("3"))
        states = Message.objects.filter(is_state=True, on_path=True).order_by("seq")
        assert [row.kind for row in states] == ["system_instruction_set", "tools_offered", "system_instruction_set"]


class TestOthers:
    def test_threads_that_codex_spawns_are_children(self, relay: Relay) -> None:
        main = Codex(relay)
        main.relay_call("Review this.", model_answer("I ask another."))
        spawned = {"thread-id": "t2", "x-codex-parent-thread-id": main.headers["thread-id"]}
        child = Codex(relay, **spawned, **{"x-openai-subagent": "review"})
        child.relay_call("Look at the diff.", model_answer("Fine."))
        above = Session.objects.get(parent=None)
        assert Session.objects.get(parent=above).title == "Look at the diff."

    def test_children_of_opencode_name_their_parent(self, relay: Relay) -> None:
        OpenCode(relay, session="ses_1").relay_call("Plan it.", model_answer("Yes."))
        OpenCode(relay, session="ses_2", **{"x-parent-session-id": "ses_1"}).relay_call("Do it.", model_answer("Done."))
        assert Session.objects.get(title="Do it.").parent == Session.objects.get(title="Plan it.")

    def test_the_title_that_opencode_asks_for_first_finds_its_session_in_the_end(self, relay: Relay) -> None:
        talk = OpenCode(relay, session="ses_1")
        title = talk.send_title("Plan it.")
        relay.digest()
        talk.relay_call("Plan it.", model_answer("Yes."))
        relay.answer(title, model_answer("A plan"))
        relay.digest()
        (session,) = sessions()
        assert exchange_of(title).session == session
        assert session.title == "Plan it."
        assert path_of(session) == ["u:Plan it.", "a:Yes."]

    def test_the_router_of_gemini_cli_is_no_session_of_its_own(self, relay: Relay) -> None:
        talk = GeminiCli(relay)
        talk.route(model_answer('{"complexity_score": 3}'))
        talk.relay_call("Fix the parser.", model_answer("Done."))
        router = talk.route(model_answer('{"complexity_score": 4}'))
        talk.relay_call("Thanks.", model_answer("Gladly."))
        (session,) = sessions()
        assert len(path_of(session)) == 4
        assert exchange_of(router).metadata["helper"] == "router"

    def test_the_router_is_known_in_the_other_spelling_too(self, relay: Relay) -> None:
        router = captured("gemini-cli-1")
        body = in_snake_case(router["body"])
        asked = relay.relay_call("gemini-generate", body, model_answer("{}"), router["headers"], path=router["path"])
        assert exchange_of(asked).metadata["helper"] == "router"

    def test_a_picture_sent_again_in_the_other_spelling_is_the_same_picture(self, relay: Relay) -> None:
        talk = ChangingSpelling(relay)
        picture = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}
        talk.body["contents"].append({"role": "user", "parts": [{"text": "What is it?"}, picture]})
        talk.relay_call("", model_answer("A cat."))
        talk.relay_call("Sure?", model_answer("Quite."))
        (session,) = sessions()
        assert path_of(session) == ["u:What is it?", "a:A cat.", "u:Sure?", "a:Quite."]
        assert bytes(Blob.objects.get(media_type="image/png").data) == PNG

    def test_what_the_vendor_keeps_under_a_name_is_gone_on_from(self, relay: Relay) -> None:
        first = {"model": "m", "input": "My name is Ada.", "stream": True}
        relay.relay_call("openai-responses", first, model_answer("Hello Ada."), reply_id="resp_1")
        second = {"model": "m", "input": "Who am I?", "previous_response_id": "resp_1", "stream": True}
        last = relay.relay_call("openai-responses", second, model_answer("Ada."), reply_id="resp_2")
        (session,) = sessions()
        assert path_of(session) == ["u:My name is Ada.", "a:Hello Ada.", "u:Who am I?", "a:Ada."]
        assert exchange_of(last).metadata["recognised_by"] == "previous response"

    def test_a_cache_key_that_all_conversations_share_does_not_throw_them_together(self, relay: Relay) -> None:
        talks = [Chat(relay), Chat(relay)]
        for talk in talks:
            talk.body["prompt_cache_key"] = "my-app"
        for turn in range(2):
            talks[0].relay_call(f"Pears {turn}", model_answer(f"Pears {turn}!"))
            talks[1].relay_call(f"Plums {turn}", model_answer(f"Plums {turn}!"))
        assert sorted(session.message_count for session in sessions()) == [4, 4]

    def test_counting_tokens_begins_no_session(self, relay: Relay) -> None:
        count = captured("sdk-python-8")
        exchange = relay.send("anthropic-messages", count["body"], count["headers"], kind="count")
        relay.end(exchange)
        relay.digest()
        assert sessions() == []
        assert exchange_of(exchange).end_reason == "done"
