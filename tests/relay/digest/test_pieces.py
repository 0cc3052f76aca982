"""One answer that a client sends back in pieces is one answer: it is known again, and nothing of it is stored twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from history import verification
from history.models import Message, ToolCall
from tests.relay.digest.programs import (
    AnthropicSdk,
    Chat,
    ClaudeCode,
    InPieces,
    OneByOne,
    OpenCode,
    Program,
    ResponsesSdk,
)
from tests.relay.digest.relayed import Relay, call, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

LOOK = model_answer("Let me look.", call("read", "c1", path="a"), call("read", "c2", path="b"))


class PlainCodex(ResponsesSdk):
    """As plain as an SDK, without thoughts."""

    def add_answer(self, output: Any) -> None:
        super().add_answer(output)
        self.body["input"] = [item for item in self.body["input"] if item["type"] != "reasoning"]


def of(kind: type[Program], habit: type[Program]) -> Callable[[Relay], Program]:
    return type(f"{kind.__name__}{habit.__name__}", (habit, kind), {})


def compare(talk: Program) -> None:
    talk.relay_call("Compare them", LOOK)
    talk.find(c1="one", c2="two and more")
    talk.relay_call("", model_answer("They differ."))
    talk.relay_call("How?", model_answer("In length."))


SPLIT = [of(kind, InPieces) for kind in (AnthropicSdk, Chat, ClaudeCode, ResponsesSdk)]
INTERLEAVED = [of(kind, OneByOne) for kind in (AnthropicSdk, Chat, PlainCodex)]


@pytest.mark.parametrize("program", [*SPLIT, *INTERLEAVED], ids=lambda program: program.__name__)
class TestAnAnswerInPieces:
    def test_is_stored_once(self, relay: Relay, program: Callable[[Relay], Program]) -> None:
        compare(program(relay))
        (session,) = sessions()
        assert Message.objects.filter(kind="model_output").count() == 3
        assert not Message.objects.filter(kind="head_moved").exists()
        assert [(one.call_id, one.status, one.result) for one in ToolCall.objects.order_by("index")] == [
            ("c1", "success", "one"), ("c2", "success", "two and more"),
        ]  # fmt: skip
        assert list(verification.verify(sessions=[session])) == []

    def test_and_so_are_those_after_it(self, relay: Relay, program: Callable[[Relay], Program]) -> None:
        talk = program(relay)
        compare(talk)
        again = model_answer("Once more.", call("read", "c3", path="a"), call("read", "c4", path="b"))
        talk.relay_call("Read them again", again)
        talk.find(c3="uno", c4="dos")
        talk.relay_call("", model_answer("Now they do not."))
        (session,) = sessions()
        assert Message.objects.filter(kind="model_output").count() == 5
        assert ToolCall.objects.filter(session=session, status="success").count() == 4
        assert not Message.objects.filter(kind="head_moved").exists()

    def test_also_while_the_one_before_it_is_not_filed_yet(
        self, relay: Relay, program: Callable[[Relay], Program]
    ) -> None:
        talk = program(relay)
        for text, results, output in (
            ("Compare them", {}, LOOK),
            ("", {"c1": "one", "c2": "two"}, model_answer("They differ.")),
            ("How?", {}, model_answer("In length.")),
        ):
            if results:
                talk.find(**results)
            exchange = talk.send(text)
            relay.answer(exchange, output)
            talk.add_answer(output)
        relay.digest()
        assert len(sessions()) == 1
        assert Message.objects.filter(kind="model_output").count() == 3


def test_answers_that_were_not_recorded_here_stay_unchanged(relay: Relay) -> None:
    talk = Chat(relay)
    talk.add_user_text("Hi")
    talk.add_answer(model_answer("Hello."))
    talk.add_answer(model_answer("How are you?"))
    talk.relay_call("Fine.", model_answer("Good."))
    talk.relay_call("And you?", model_answer("Good, too."))
    assert path_of(sessions()[0]) == [
        "u:Hi", "a:Hello.", "a:How are you?", "u:Fine.", "a:Good.", "u:And you?", "a:Good, too.",
    ]  # fmt: skip


def test_two_answers_in_a_row_and_later_one_in_pieces(relay: Relay) -> None:
    talk = of(Chat, InPieces)(relay)
    talk.add_user_text("Hi")
    talk.add_answer(model_answer("Hello."))
    talk.add_answer(model_answer("How are you?"))
    compare(talk)
    (session,) = sessions()
    assert path_of(session)[:3] == ["u:Hi", "a:Hello.", "a:How are you?"]
    assert Message.objects.filter(kind="model_output").count() == 5
    assert not Message.objects.filter(kind="head_moved").exists()


def test_an_edit_before_it_is_a_branch_that_goes_on_from_there(relay: Relay) -> None:
    """What was said after an answer in pieces is said anew: the answer itself is not."""
    talk = of(AnthropicSdk, InPieces)(relay)
    compare(talk)
    talk.body["messages"] = talk.body["messages"][:-2]
    talk.relay_call("Why?", model_answer("One is longer."))
    (session,) = sessions()
    assert path_of(session)[-2:] == ["u:Why?", "a:One is longer."]
    assert Message.objects.filter(kind="model_output").count() == 4
    assert Message.objects.filter(kind="head_moved").count() == 1


def test_a_program_that_names_its_session(relay: Relay) -> None:
    talk = type("Split", (InPieces, OpenCode), {})(relay, session="ses_1")
    compare(talk)
    assert len(sessions()) == 1
    assert Message.objects.filter(kind="model_output").count() == 3
