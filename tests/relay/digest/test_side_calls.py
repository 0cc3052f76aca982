"""Side calls under the name of a conversation, which often come before its first question."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from history.models import Exchange, Message
from history.verification import verify
from tests.relay.digest.programs import Chat, ClaudeCode, Codex, GeminiCli, OpenCode, Program
from tests.relay.digest.relayed import Relay, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

QUESTION = "Fix the parser."
# As the programs sent them, whole.
REQUESTS = Path(__file__).parent / "side_call_requests"
Titled = tuple[Program, UUID]


def claude_code(relay: Relay, text: str = QUESTION) -> Titled:
    talk = ClaudeCode(relay)
    return talk, talk.send_title(text)


def claude_code_latest(relay: Relay) -> Titled:
    return claude_code(relay, f"<session>\n{QUESTION}\n</session>\n\nUse the language of the session.")


def opencode(relay: Relay) -> Titled:
    talk = OpenCode(relay, session="ses_1")
    return talk, talk.send_title(QUESTION)


def request_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((REQUESTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


EVERY = [claude_code, claude_code_latest, opencode]


@pytest.mark.parametrize("begin", EVERY)
@pytest.mark.parametrize("ends", ["before", "during", "after"])
def test_a_title_call_that_comes_first_is_a_note_of_the_conversation(
    relay: Relay, begin: Callable[[Relay], Titled], ends: str
) -> None:
    talk, title = begin(relay)
    cost: dict[str, Any] = {"metadata": {"cost": "0.25"}}
    if ends == "before":
        relay.answer(title, model_answer('{"title": "Parser repair"}'), **cost)
    relay.digest()
    assert sessions() == []
    question = talk.send(QUESTION)
    relay.digest()
    if ends == "during":
        relay.answer(title, model_answer('{"title": "Parser repair"}'), **cost)
    relay.answer(question, model_answer("Done."))
    relay.digest()
    if ends == "after":
        relay.answer(title, model_answer('{"title": "Parser repair"}'), **cost)
        relay.digest()
    talk.add_answer(model_answer("Done."))
    talk.relay_call("Thanks.", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session) == ["u:Fix the parser.", "a:Done.", "u:Thanks.", "a:Gladly."]
    assert (session.title, session.cost) == (QUESTION, Decimal("0.25"))
    assert exchange_of(title).session == session
    assert not Message.objects.filter(on_path=False).exclude(kind="debug_log").exists()
    assert Message.objects.get(kind="debug_log").content.endswith('{"title": "Parser repair"}')
    instruction = Message.objects.filter(kind="system_instruction_set").get()
    assert instruction.on_path
    assert list(verify()) == []


def test_the_first_message_keeps_all_of_its_texts_after_a_title_call(relay: Relay) -> None:
    talk, title = claude_code(relay)
    relay.answer(title, model_answer('{"title": "Parser repair"}'))
    talk.relay_call(QUESTION, model_answer("Done."))
    first = Message.objects.filter(kind="model_input", on_path=True).order_by("seq")[0]
    assert first.content == f"<system-reminder>\nTurn 1.\n</system-reminder>\n\n{QUESTION}"


def test_a_title_call_waits_for_a_question_that_is_ten_seconds_late(relay: Relay) -> None:
    """opencode 1.18.33 with its own prompt, on a busy machine."""
    request = request_of("opencode-title")
    talk = OpenCode(relay, session="ses_1")
    title = relay.send("openai-chat", request["body"], request["headers"])
    relay.answer(title, model_answer("Parser repair"))
    relay.digest()
    for call in relay.digester.pending.values():
        call.seen_at -= 10
    relay.digest()
    assert sessions() == []
    talk.relay_call(QUESTION, model_answer("Done."))
    (session,) = sessions()
    assert (session.title, path_of(session)) == (QUESTION, ["u:Fix the parser.", "a:Done."])
    assert exchange_of(title).session == session
    assert not Message.objects.filter(on_path=False).exclude(kind="debug_log").exists()


@pytest.mark.parametrize("begin", EVERY)
def test_a_title_call_survives_a_restart_while_it_waits(relay: Relay, begin: Callable[[Relay], Titled]) -> None:
    talk, title = begin(relay)
    relay.answer(title, model_answer("Parser repair"))
    relay.digest()
    relay.reborn()
    relay.digest()
    talk.relay_call(QUESTION, model_answer("Done."))
    assert exchange_of(title).session == sessions()[0]
    assert path_of(sessions()[0]) == ["u:Fix the parser.", "a:Done."]


@pytest.mark.parametrize("begin", EVERY)
def test_a_first_call_without_another_opens_a_conversation_in_the_end(
    relay: Relay, begin: Callable[[Relay], Titled]
) -> None:
    _talk, title = begin(relay)
    relay.answer(title, model_answer("Parser repair"))
    relay.digest()
    assert not Exchange.objects.exists()
    relay.digest_later()
    (session,) = sessions()
    assert exchange_of(title).session == session
    assert path_of(session)[-1] == "a:Parser repair"
    assert QUESTION in path_of(session)[-2]


@pytest.mark.parametrize("begin", EVERY)
def test_a_question_that_comes_late_is_the_path_and_is_stored_whole(
    relay: Relay, begin: Callable[[Relay], Titled]
) -> None:
    talk, title = begin(relay)
    relay.answer(title, model_answer("Parser repair"))
    relay.digest()
    relay.digest_later()
    talk.relay_call(QUESTION, model_answer("Done."))
    talk.relay_call("Thanks.", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session) == ["u:Fix the parser.", "a:Done.", "u:Thanks.", "a:Gladly."]
    inputs = Message.objects.filter(kind="model_input", on_path=True).order_by("seq")
    if isinstance(talk, ClaudeCode):
        assert inputs[0].content.startswith("<system-reminder>\nTurn 1.")


@pytest.mark.parametrize("field", ["title", "name"])
def test_a_title_that_is_asked_for_later_leaves_the_conversation_alone(relay: Relay, field: str) -> None:
    talk = ClaudeCode(relay)
    talk.relay_call(QUESTION, model_answer("Done."))
    title = talk.send_title(QUESTION, field=field)
    relay.answer(title, model_answer("{}"))
    relay.digest()
    talk.relay_call("Thanks.", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session) == ["u:Fix the parser.", "a:Done.", "u:Thanks.", "a:Gladly."]
    assert exchange_of(title).metadata["helper"] == "title"


def test_a_probe_that_ended_long_before_is_filed_with_its_conversation(relay: Relay) -> None:
    talk = ClaudeCode(relay)
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}
    probe = relay.send(talk.dialect, body, talk.headers)
    relay.answer(probe, model_answer("#"), metadata={"cost": "0.5"})
    relay.digest()
    relay.digest_later()
    relay.reborn()
    assert (sessions(), exchange_of(probe).session) == ([], None)
    talk.relay_call(QUESTION, model_answer("Done."))
    (session,) = sessions()
    assert exchange_of(probe).session == session
    assert session.cost == Decimal("0.5")
    assert Message.objects.get(kind="debug_log").content == "probe call: quota → #"


def test_a_conversation_of_json_answers_is_a_conversation(relay: Relay) -> None:
    """A program without tools that always asks for JSON, and resends what was said."""
    headers = {"x-session-id": "extraction-1"}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"properties": {"title": {}}}}}
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Extract."}, {"role": "user", "content": "One"}]
    body = {"model": "m", "messages": messages, "response_format": form}
    relay.relay_call("openai-chat", body, model_answer("{}"), headers)
    relay.digest_later()
    messages += [{"role": "assistant", "content": "{}"}, {"role": "user", "content": "Two"}]
    relay.relay_call("openai-chat", body, model_answer("{1}"), headers)
    (session,) = sessions()
    assert path_of(session) == ["u:One", "a:{}", "u:Two", "a:{1}"]


def test_a_request_with_foreign_answers_is_a_branch(relay: Relay) -> None:
    talk = OpenCode(relay, session="ses_1")
    talk.relay_call(QUESTION, model_answer("Done."))
    other = OpenCode(relay, session="ses_1")
    other.add_user_text("What is a fjord?")
    other.add_answer(model_answer("A bay."))
    other.relay_call("How deep?", model_answer("Deep."))
    (session,) = sessions()
    assert path_of(session) == ["u:What is a fjord?", "a:A bay.", "u:How deep?", "a:Deep."]
    assert Message.objects.filter(content="Done.", on_path=False).exists()


def test_a_title_in_a_thread_of_its_own_opens_no_session(relay: Relay) -> None:
    """Codex 0.169.0 asks for one after each prompt, offers a tool with it and names no other thread."""
    talk, request = Codex(relay), request_of("codex-title")
    question = talk.send("First codex tui")
    title = relay.send("openai-responses", request["body"], request["headers"], path=request["path"])
    relay.answer(title, model_answer('{"title": "Greet"}'))
    relay.answer(question, model_answer("Hello."))
    relay.digest()
    relay.digest_later()
    (session,) = sessions()
    assert path_of(session)[-2:] == ["u:First codex tui", "a:Hello."]
    exchange = exchange_of(title)
    assert (exchange.session, exchange.metadata["helper"]) == (None, "title")
    assert exchange.metadata["answered"] == '{"title": "Greet"}'


def test_a_compaction_of_codex_is_a_note_of_its_conversation(relay: Relay) -> None:
    talk, request = Codex(relay), request_of("codex-compaction")
    talk.relay_call("First codex tui", model_answer("Hello."))
    body = talk.request()
    body["input"] += request["body"]["input"]
    metadata = {"x-codex-turn-metadata": request["headers"]["x-codex-turn-metadata"]}
    compaction = relay.relay_call("openai-responses", body, model_answer("A summary."), {**talk.headers, **metadata})
    talk.relay_call("Go on.", model_answer("Gladly."))
    (session,) = sessions()
    assert path_of(session)[-4:] == ["u:First codex tui", "a:Hello.", "u:Go on.", "a:Gladly."]
    assert exchange_of(compaction).metadata["helper"] == "compact"
    assert Message.objects.get(kind="debug_log").content.endswith("A summary.")
    assert not Message.objects.filter(kind="head_moved").exists()


@pytest.mark.parametrize("metadata", ["", "{", "[]", '{"thread_source": 1}', '{"thread_source": "user"}', "[" * 5_000])
def test_other_metadata_of_codex_changes_nothing(relay: Relay, metadata: str) -> None:
    talk = Codex(relay, **{"x-codex-turn-metadata": metadata})
    talk.relay_call(QUESTION, model_answer("Done."))
    assert path_of(sessions()[0])[-2:] == ["u:Fix the parser.", "a:Done."]


# Gemini CLI names no conversation: `/compress` sends it with another instruction, without tools, in one piece.
COMPRESS = "First, reason in your scratchpad. Then, generate the <state_snapshot>."
VERIFY = "Critically evaluate the <state_snapshot> you just generated."
SNAPSHOT = "<state_snapshot><overall_goal>Mend it</overall_goal></state_snapshot>"


def text_of(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": text}]}


def compress(talk: GeminiCli, *more: dict[str, Any], history: int | None = None) -> UUID:
    system = {"parts": [{"text": "You are a component that summarizes internal chat history."}]}
    contents = [*talk.body["contents"][:history], text_of("user", COMPRESS), *more]
    body = {"contents": contents, "systemInstruction": system}
    return talk.relay.send(talk.dialect, body, talk.headers, path="/v1beta/models/gemini-2.5-flash:generateContent")


@pytest.mark.parametrize("is_one_batch", [False, True])
@pytest.mark.parametrize("history", [None, 4])
def test_a_summary_that_names_no_conversation_is_a_side_call(
    relay: Relay, history: int | None, is_one_batch: bool
) -> None:
    def digest() -> None:
        if not is_one_batch:
            relay.digest()

    talk = GeminiCli(relay)
    for number in range(3):
        relay.answer(talk.send(f"Question {number}"), model_answer(f"Answer {number}"))
        talk.add_answer(model_answer(f"Answer {number}"))
        digest()
    summary = compress(talk, history=history)
    relay.answer(summary, model_answer(SNAPSHOT))
    digest()
    check = compress(talk, text_of("model", SNAPSHOT), text_of("user", VERIFY), history=history)
    relay.answer(check, model_answer(SNAPSHOT))
    digest()
    heard = text_of("model", "Got it. Thanks for the additional context!")
    talk.body["contents"] = [text_of("user", SNAPSHOT), heard, *talk.body["contents"][4:]]
    relay.answer(talk.send("And now?"), model_answer("We continue."))
    relay.digest()
    (session,) = sessions()
    assert [exchange_of(one).metadata.get("helper") for one in (summary, check)] == ["other", "other"]
    assert {exchange_of(one).session for one in (summary, check)} == {session}
    assert path_of(session)[-2:] == ["u:And now?", "a:We continue."]
    assert not Message.objects.filter(kind__in=("model_input", "model_output"), content=COMPRESS).exists()
    notes = Message.objects.filter(kind="debug_log").order_by("seq").values_list("content", flat=True)
    assert [COMPRESS in notes[0], VERIFY in notes[1]] == [True, True]
    assert list(verify()) == []


@pytest.mark.parametrize("kept", ["stream", "tools", "instruction"])
def test_a_turn_that_differs_in_less_is_part_of_the_conversation(relay: Relay, kept: str) -> None:
    """A person may switch off the tools, or change the instruction."""
    talk = GeminiCli(relay)
    talk.relay_call("Question", model_answer("Answer"))
    body = {**talk.body, "systemInstruction": {"parts": [{"text": "Be brief."}]}}
    body["contents"] = [*talk.body["contents"], text_of("user", "Next")]
    if kept != "tools":
        del body["tools"]
    if kept == "instruction":
        body["systemInstruction"] = talk.body["systemInstruction"]
    verb = "streamGenerateContent" if kept == "stream" else "generateContent"
    exchange = relay.send(talk.dialect, body, talk.headers, path=f"/v1beta/models/gemini-2.5-flash:{verb}")
    relay.answer(exchange, model_answer("Last"))
    relay.digest_later()
    assert path_of(sessions()[0])[-2:] == ["u:Next", "a:Last"]


def test_a_program_that_never_streams_goes_on_without_tools(relay: Relay) -> None:
    """Frameworks change instruction and tools from step to step; the last one has the answer."""
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    talk = Chat(relay)
    talk.body |= {"stream": False, "tools": tools}
    talk.body["messages"] = [{"role": "system", "content": "Use the tools."}]
    talk.relay_call("Question", model_answer("Answer"))
    del talk.body["tools"]
    talk.body["messages"][0] = {"role": "system", "content": "Write the report."}
    talk.relay_call("Report", model_answer("The report"))
    assert path_of(sessions()[0]) == ["u:Question", "a:Answer", "u:Report", "a:The report"]
