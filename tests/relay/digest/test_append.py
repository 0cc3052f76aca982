"""Sessions that a caller names and continues without resending what was said."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from history.models import Message, Session
from history.verification import verify
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

CHAT, RESPONSES, MESSAGES, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini-generate"


def body_of(dialect: str, *texts: str) -> dict[str, Any]:
    if dialect == RESPONSES:
        return {"model": "m", "input": [{"role": "user", "content": text} for text in texts]}
    if dialect == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": text}]} for text in texts]}
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "max_tokens": 9, "messages": messages}


def turn(relay: Relay, dialect: str, text: str, answer: str, **name: Any) -> UUID:
    headers = {"X-Parley-Session-Id": "job-1"} if not name else name.get("headers", {})
    return relay.relay_call(dialect, body_of(dialect, text) | name.get("fields", {}), model_answer(answer), headers)


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES, GEMINI])
@pytest.mark.parametrize(
    "name",
    [
        {"headers": {"X-Parley-Session-Id": "job-1"}},
        {"headers": {"X-CRS-Session-Id": "job-1"}},
        {"fields": {"sessionId": "job-1"}},
    ],
)
def test_each_call_is_a_turn_on_one_path(relay: Relay, dialect: str, name: dict[str, Any]) -> None:
    for place in range(3):
        last = turn(relay, dialect, f"Question {place}", f"Answer {place}", **name)
    (session,) = sessions()
    assert path_of(session) == [line for n in range(3) for line in (f"u:Question {n}", f"a:Answer {n}")]
    assert session.message_count == 6
    assert exchange_of(last).metadata["recognised_by"] == "header"
    assert not Message.objects.filter(kind="head_moved").exists()
    assert list(verify()) == []


def test_the_same_words_are_said_again(relay: Relay) -> None:
    for place in range(3):
        turn(relay, CHAT, "continue", f"Part {place}")
    (session,) = sessions()
    assert path_of(session) == [line for n in range(3) for line in ("u:continue", f"a:Part {n}")]
    assert session.message_count == 6


def test_a_session_that_the_relay_named_is_continued_by_its_id(relay: Relay) -> None:
    first = relay.relay_call(CHAT, body_of(CHAT, "One"), model_answer("1"), {"X-CRS-New-Session": "true"})
    name = str(exchange_of(first).session_id)
    relay.relay_call(CHAT, body_of(CHAT, "Two"), model_answer("2"), {"X-CRS-Session-Id": name})
    (session,) = sessions()
    assert (path_of(session), session.message_count) == (["u:One", "a:1", "u:Two", "a:2"], 4)


@pytest.mark.parametrize("reason", ["client_gone", "upstream_error"])
@pytest.mark.parametrize("is_filed", [True, False])
def test_a_question_without_an_answer_is_asked_again(relay: Relay, reason: str, is_filed: bool) -> None:
    turn(relay, CHAT, "One", "1")
    relay.end(relay.send(CHAT, body_of(CHAT, "Two"), {"X-Parley-Session-Id": "job-1"}), reason, status=0)
    if is_filed:
        relay.digest()
    turn(relay, CHAT, "Two", "2")
    (session,) = sessions()
    assert [line for line in path_of(session) if "【错误】" not in line] == ["u:One", "a:1", "u:Two", "a:2"]
    assert Message.objects.filter(content="Two").count() == 1


def test_the_next_turn_waits_for_the_answer_before_it(relay: Relay) -> None:
    headers = {"X-Parley-Session-Id": "job-1"}
    exchanges = [relay.send(CHAT, body_of(CHAT, text), headers) for text in ("One", "Two")]
    relay.digest()
    for exchange, text in zip(exchanges, "12", strict=True):
        relay.answer(exchange, model_answer(text))
    relay.digest()
    assert path_of(sessions()[0]) == ["u:One", "a:1", "u:Two", "a:2"]


def test_an_instruction_that_is_sent_each_time_is_stored_once(relay: Relay) -> None:
    for text in ("One", "Two"):
        body = {
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
        }
        relay.relay_call(CHAT, body, model_answer(f"Re: {text}"), {"X-Parley-Session-Id": "job-1"})
    assert path_of(sessions()[0]) == ["u:One", "a:Re: One", "u:Two", "a:Re: Two"]
    assert Message.objects.filter(kind="system_instruction_set").count() == 1


def test_questions_that_are_resent_without_their_answers_are_stored_once(relay: Relay) -> None:
    headers = {"X-Parley-Session-Id": "job-1"}
    relay.relay_call(CHAT, body_of(CHAT, "Context", "One"), model_answer("1"), headers)
    relay.relay_call(CHAT, body_of(CHAT, "Context", "Two"), model_answer("2"), headers)
    (session,) = sessions()
    assert path_of(session) == ["u:Context", "u:One", "a:1", "u:Two", "a:2"]


def test_results_alone_complete_the_calls_of_the_answer_before(relay: Relay) -> None:
    headers = {"X-Parley-Session-Id": "job-1"}
    relay.relay_call(CHAT, body_of(CHAT, "Look it up"), model_answer("", call("find", "c1", q="fjords")), headers)
    messages = [{"role": "tool", "tool_call_id": "c1", "content": "Twelve"}]
    relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("Twelve."), headers)
    assert path_of(sessions()[0]) == ["u:Look it up", "a:", "t:Twelve", "a:Twelve."]


def test_a_caller_that_resends_its_answers_may_still_branch(relay: Relay) -> None:
    headers = {"X-Parley-Session-Id": "job-1"}
    turn(relay, CHAT, "One", "1")
    turn(relay, CHAT, "Two", "2")
    spoken = [("user", "One"), ("assistant", "1"), ("user", "Three")]
    messages = [{"role": role, "content": text} for role, text in spoken]
    relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("3"), headers)
    assert path_of(sessions()[0]) == ["u:One", "a:1", "u:Three", "a:3"]
    assert Session.objects.count() == 1


@pytest.mark.parametrize("reason", ["client_gone", "upstream_error"])
def test_another_question_after_one_without_an_answer_follows_it(relay: Relay, reason: str) -> None:
    turn(relay, CHAT, "One", "1")
    relay.end(relay.send(CHAT, body_of(CHAT, "Two"), {"X-Parley-Session-Id": "job-1"}), reason, status=0)
    relay.digest()
    turn(relay, CHAT, "Three", "3")
    spoken = [line for line in path_of(sessions()[0]) if "【错误】" not in line]
    assert spoken == ["u:One", "a:1", "u:Two", "u:Three", "a:3"]
