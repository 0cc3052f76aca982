"""From the journal to history: a conversation that is resent whole each time is stored once."""

import pytest

from history.models import Exchange, Message, ToolCall
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"


def chat(*messages: tuple[str, str], **fields: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": role, "content": text} for role, text in messages], **fields}


def test_a_call_becomes_a_session_with_a_question_an_answer_and_an_exchange(relay: Relay) -> None:
    exchange = relay.relay_call(CHAT, chat(("user", "What is a fjord?")), model_answer("A long narrow inlet."))
    (session,) = sessions()
    assert path_of(session) == ["u:What is a fjord?", "a:A long narrow inlet."]
    assert (session.source, session.title, session.recognised_by) == ("relay", "What is a fjord?", "new")
    row = exchange_of(exchange)
    assert (row.session, row.end_reason, row.status_code, row.attempts) == (session, "done", 200, 1)
    assert row.message is not None
    assert row.message.input_tokens == 20
    assert row.usage["source"] == "provider"


def test_a_conversation_that_is_resent_whole_adds_its_new_tail_alone(relay: Relay) -> None:
    talk = [("user", "one")]
    for turn in range(4):
        relay.relay_call(CHAT, chat(*talk), model_answer(f"answer {turn}"))
        talk += [("assistant", f"answer {turn}"), ("user", f"question {turn}")]
    (session,) = sessions()
    assert len(path_of(session)) == 8
    assert Message.objects.count() == 8
    assert {row.metadata["recognised_by"] for row in Exchange.objects.all()} == {"new", "fingerprint"}


def test_the_same_hello_twice_is_two_sessions(relay: Relay) -> None:
    for _ in range(2):
        relay.relay_call(CHAT, chat(("user", "hello")), model_answer("Hello!"))
    assert len(sessions()) == 2


def test_the_session_is_there_before_the_answer(relay: Relay) -> None:
    exchange = relay.send(CHAT, chat(("user", "Think hard.")))
    relay.digest()
    (session,) = sessions()
    assert path_of(session) == ["u:Think hard."]
    assert exchange_of(exchange).ended_at is None
    relay.answer(exchange, model_answer("Done."))
    relay.digest()
    assert path_of(session) == ["u:Think hard.", "a:Done."]


def test_an_edited_question_becomes_a_branch_and_the_path(relay: Relay) -> None:
    relay.relay_call(CHAT, chat(("user", "one")), model_answer("1"))
    relay.relay_call(CHAT, chat(("user", "one"), ("assistant", "1"), ("user", "tow")), model_answer("?"))
    relay.relay_call(CHAT, chat(("user", "one"), ("assistant", "1"), ("user", "two")), model_answer("2"))
    (session,) = sessions()
    assert path_of(session) == ["u:one", "a:1", "u:two", "a:2"]
    assert Message.objects.filter(content="tow", on_path=False).count() == 1


def test_a_regenerated_answer_stands_beside_the_first(relay: Relay) -> None:
    body = chat(("user", "one"), ("assistant", "1"), ("user", "two"))
    relay.relay_call(CHAT, chat(("user", "one")), model_answer("1"))
    relay.relay_call(CHAT, body, model_answer("2"))
    relay.relay_call(CHAT, body, model_answer("II"))
    (session,) = sessions()
    assert path_of(session) == ["u:one", "a:1", "u:two", "a:II"]
    assert Message.objects.filter(session=session, content="2").count() == 1


def test_a_branch_that_was_left_is_gone_on_from(relay: Relay) -> None:
    begun = (("user", "q0"), ("assistant", "a0"))
    longer = (*begun, ("user", "q1"), ("assistant", "a1"))
    for body in (
        *(chat(*longer, ("user", "q2")), chat(*longer, ("user", "q2x")), chat(*begun, ("user", "q1y"))),
        *(chat(*longer, ("user", "q2z")), chat(*begun, ("user", "q1y")), chat(*longer, ("user", "q2"))),
    ):
        row = exchange_of(relay.relay_call(CHAT, body, model_answer("ok")))
        assert (row.end_reason, row.metadata.get("problem")) == ("done", None)
        assert row.message is not None
    (session,) = sessions()
    assert path_of(session) == ["u:q0", "a:a0", "u:q1", "a:a1", "u:q2", "a:ok"]
    assert Message.objects.filter(session=session, kind="model_input").count() == 6


def test_results_of_the_next_request_complete_the_calls(relay: Relay) -> None:
    asked = [{"role": "user", "content": "Which day is it?"}]
    relay.relay_call(CHAT, {"model": "m", "messages": asked}, model_answer("", call("clock", "c1", zone="UTC")))
    pending = ToolCall.objects.get()
    assert pending.status == "pending"
    made = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
    more = [
        *asked,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": "Monday"},
    ]
    relay.relay_call(CHAT, {"model": "m", "messages": more}, model_answer("It is Monday."))
    done = ToolCall.objects.get()
    assert (done.status, done.result) == ("success", "Monday")
    assert done.duration is not None
    assert done.started_at is not None
    assert len(sessions()) == 1
