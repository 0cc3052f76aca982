"""Clients that send only the newest turns of a conversation: what they leave out is in the record already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from history import verification
from history.access import keys
from history.entries import Reasoning, Text
from history.models import Message, Session, ToolCall
from history.record import recorder
from project.accounts.models import User
from tests.relay.digest.programs import AnthropicSdk, Chat, ClaudeCode, GenAiSdk, Program, ResponsesSdk
from tests.relay.digest.relayed import Relay, call, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

NAMED = {"x-parley-session-id": "talk-1"}
LIST = {"openai-responses": "input", "gemini-generate": "contents"}


class Window:
    """A program that sends the last `size` messages alone, as NextChat and Cherry Studio do."""

    def __init__(self, program: Program, size: int) -> None:
        self.program, self.size = program, size

    def relay_call(self, text: str, output: Any) -> Any:
        self.program.add_user_text(text)
        said_so_far = self.program.body[LIST.get(self.program.dialect, "messages")]
        del said_so_far[: -self.size]
        return self.program.relay_call("", output)


def talk_to(window: Window, turns: int) -> list[str]:
    told = []
    for turn in range(turns):
        window.relay_call(f"Question {turn}", model_answer(f"Answer {turn}"))
        told += [f"u:Question {turn}", f"a:Answer {turn}"]
    return told


@pytest.mark.parametrize("program", [AnthropicSdk, Chat, GenAiSdk, ResponsesSdk, ClaudeCode])
@pytest.mark.parametrize("headers", [{}, NAMED], ids=["unnamed", "named"])
def test_a_conversation_of_which_the_newest_turns_are_sent_is_one_and_stored_once(
    relay: Relay, program: type[Program], headers: dict[str, str]
) -> None:
    told = talk_to(Window(program(relay, **headers), 7), 8)
    (session,) = sessions()
    assert path_of(session) == told
    assert Message.objects.filter(kind__in=("model_input", "model_output"), is_internal=False).count() == 16
    assert not Message.objects.filter(kind="head_moved").exists()
    assert list(verification.verify()) == []


def test_tools_may_stand_in_it_and_complete_their_calls(relay: Relay) -> None:
    talk = Chat(relay)
    window = Window(talk, 4)
    for turn in range(4):
        window.relay_call(f"Question {turn}", model_answer("I look.", call("read", f"c{turn}", path=f"file {turn}")))
        talk.find(**{f"c{turn}": f"result {turn}"})
        talk.relay_call("", model_answer(f"Answer {turn}"))
    (session,) = sessions()
    assert path_of(session)[-4:] == ["u:Question 3", "a:I look.", "t:result 3", "a:Answer 3"]
    assert session.message_count == 12
    assert not ToolCall.objects.exclude(status="success").exists()


def test_conversations_at_the_same_time_stay_apart(relay: Relay) -> None:
    talks = [Window(Chat(relay), 3) for _ in range(3)]
    for turn in range(5):
        for number, talk in enumerate(talks):
            talk.relay_call(f"Question {turn} of {number}", model_answer(f"Answer {turn} of {number}"))
    assert sorted(path_of(session)[-1] for session in sessions()) == [f"a:Answer 4 of {number}" for number in range(3)]
    assert [session.message_count for session in sessions()] == [10, 10, 10]


def test_examples_before_a_question_are_no_conversation(relay: Relay) -> None:
    """A program picks examples for each question: no model was called with them here."""
    examples = [("Is this spam? Win now!", "Yes."), ("Is this spam? See you at six.", "No.")]
    for drawn in (examples, examples[1:]):
        talk = Chat(relay)
        for question, answer in drawn:
            talk.add_user_text(question)
            talk.add_answer(model_answer(answer))
        talk.relay_call(f"Is this spam? {len(drawn)} {drawn[0][1]}", model_answer("No."))
    assert sorted(session.message_count for session in sessions()) == [4, 6]


def test_an_end_that_two_conversations_have_leads_to_neither(relay: Relay) -> None:
    talks = [Window(Chat(relay), 5) for _ in range(2)]
    for number, talk in enumerate(talks):
        for text, answer in ((f"Question of {number}", f"Answer of {number}"), ("Thanks", "Welcome!")):
            talk.relay_call(text, model_answer(answer))
    talks[0].size = 3
    talks[0].relay_call("One thing more", model_answer("Yes?"))
    assert [path_of(session) for session in sessions()] == [
        ["u:Question of 0", "a:Answer of 0", "u:Thanks", "a:Welcome!"],
        ["u:Question of 1", "a:Answer of 1", "u:Thanks", "a:Welcome!"],
        ["u:Thanks", "a:Welcome!", "u:One thing more", "a:Yes?"],
    ]


def test_a_newest_answer_of_two_texts_that_comes_back_as_one_is_known_in_it(relay: Relay) -> None:
    """In Chat Completions an answer is one text, from any vendor."""
    talk = Chat(relay)
    window = Window(talk, 5)
    talk_to(window, 4)
    talk.add_user_text("Look for it")
    del talk.body["messages"][:-5]
    exchange = talk.send(upstream="anthropic-messages")
    relay.answer(
        exchange, replace(model_answer(), parts=(Text(text="I look."), Reasoning(text="Hm."), Text(text="Found it.")))
    )
    relay.digest()
    talk.add_answer(model_answer("I look.\n\nFound it."))
    window.relay_call("Where?", model_answer("Here."))
    (session,) = sessions()
    assert path_of(session)[-3:] == ["a:I look.\n\nFound it.", "u:Where?", "a:Here."]
    assert not Message.objects.filter(kind="head_moved").exists()


def test_replies_that_are_not_kept_do_not_tear_it_apart(relay: Relay, ada: User) -> None:
    relay.key = keys.create(name="quiet", owner=ada, recording="no_replies").api_key
    told = talk_to(Window(Chat(relay), 5), 6)
    (session,) = sessions()
    assert [line for line in path_of(session) if line != "a:"] == told[::2]


@pytest.mark.parametrize("headers", [{}, NAMED], ids=["unnamed", "named"])
@pytest.mark.parametrize("is_filed", [False, True])
def test_a_digester_that_comes_late_files_it_in_order(relay: Relay, headers: dict[str, str], is_filed: bool) -> None:
    talk = Chat(relay, **headers)
    for turn in range(5):
        talk.add_user_text(f"Question {turn}")
        del talk.body["messages"][:-3]
        exchange = talk.send()
        if is_filed:
            relay.digest()
        relay.answer(exchange, model_answer(f"Answer {turn}"))
        talk.add_answer(model_answer(f"Answer {turn}"))
    for _ in range(3):
        relay.digest()
    (session,) = sessions()
    assert path_of(session) == [
        line for turn in range(5) for line in (f"u:Question {turn}", f"a:Answer {turn}")
    ]  # fmt: skip


@pytest.mark.parametrize("headers", [{}, NAMED], ids=["unnamed", "named"])
def test_what_was_said_differently_is_kept(relay: Relay, headers: dict[str, str]) -> None:
    """An edited first message is another conversation, or another branch."""
    window = Window(Chat(relay, **headers), 5)
    talk_to(window, 5)
    window.program.body["messages"][2]["content"] = "Question 3, but politely"
    window.relay_call("Last question", model_answer("Last answer"))
    session = Session.objects.get(messages__content="Last answer")
    assert path_of(session) == [
        "u:Question 3, but politely", "a:Answer 3", "u:Question 4", "a:Answer 4", "u:Last question", "a:Last answer",
    ]  # fmt: skip


def test_neither_another_key_nor_a_copy_is_gone_on_in(relay: Relay, ada: User) -> None:
    window = Window(Chat(relay), 3)
    told = talk_to(window, 3)
    (original,) = sessions()
    recorder.fork(original, at=original.head, owner=ada)
    window.relay_call("Once more", model_answer("Again"))
    assert path_of(original) == [*told, "u:Once more", "a:Again"]
    relay.key = keys.create(name="other", owner=ada, recording="full").api_key
    window.relay_call("And I?", model_answer("You, too."))
    assert path_of(original) == [*told, "u:Once more", "a:Again"]
    assert Session.objects.filter(api_key=relay.key).count() == 1
