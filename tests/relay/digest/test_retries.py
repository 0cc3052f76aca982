"""A client's retry is one exchange with attempts, not two messages."""

from __future__ import annotations

import time
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history.models import EarlierTry, Exchange, Message, Session
from history.retention import erase
from project.accounts.models import User
from relay.digest import pending_calls
from relay.gateway.call.session_ids import session_id
from relay.gateway.journal.records import Attempt
from tests.relay.digest.programs import Chat, ClaudeCode, Program
from tests.relay.digest.relayed import Relay, exchange_of, half_bytes, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"
FIRST, SECOND = {"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}
BUSY = b'{"error": {"message": "Overloaded", "type": "overloaded_error"}}'


@pytest.mark.parametrize("program", [Chat, ClaudeCode])
def test_tries_of_one_request_are_one_exchange_and_one_question(program: type[Program], relay: Relay) -> None:
    talk = program(relay)
    first = talk.send("Fix the parser.")
    relay.fail(first, 529, BUSY)
    relay.digest()
    talk.turns -= 1
    second = talk.send(headers={"x-stainless-retry-count": "1"})
    relay.fail(second, 529, BUSY)
    relay.digest()
    talk.turns -= 1
    third = talk.send(headers={"x-stainless-retry-count": "2"})
    relay.answer(third, model_answer("Done."))
    relay.digest()
    (session,) = sessions()
    assert path_of(session) == ["u:Fix the parser.", "a:Done."]
    row = Exchange.objects.get()
    assert (row.pk, row.attempts, row.end_reason, row.status_code) == (third, 3, "done", 200)
    assert [one["exchange"] for one in row.metadata["retried"]] == [str(first), str(second)]
    assert Message.objects.filter(kind="model_input", is_internal=False).count() == 1


def test_each_try_says_when_it_was_made(relay: Relay) -> None:
    talk, begun = Chat(relay), time.time() - 60
    tries = [talk.send("Fix the parser.", at=begun)]
    for number in (1, 2, 3):
        relay.fail(tries[-1], 529, BUSY, at=begun + 10 * number - 5)
        relay.digest()
        talk.turns -= 1
        tries.append(talk.send(at=begun + 10 * number, headers={"x-stainless-retry-count": str(number)}))
    relay.answer(tries[-1], model_answer("Done."))
    relay.digest()
    row = Exchange.objects.get()
    made = [datetime.fromisoformat(one["at"]).timestamp() - begun for one in row.metadata["retried"]]
    assert [round(seconds) for seconds in made] == [0, 10, 20]
    assert round(row.started_at.timestamp() - begun) == 0


def test_programs_and_staff_are_told_of_every_try(relay: Relay, client: Client, ada: User) -> None:
    talk = Chat(relay)
    first = talk.send("Fix the parser.")
    relay.fail(first, 529, BUSY)
    relay.digest()
    talk.turns -= 1
    second = talk.send(headers=SECOND)
    elsewhere = [Attempt("vendor", 503, 0.1, "a secret error"), Attempt("azure", 200, 0.2)]
    relay.answer(second, model_answer("Done."), attempts=elsewhere, metadata={"not_carried": "option_not_carried:n"})
    relay.digest()
    ada.is_staff = ada.is_superuser = True
    ada.save()
    client.force_login(ada)
    told = client.get(f"/api/history/exchanges/{first}").json()["relay"]
    assert [(one["exchange"], one["status"], one["error"]) for one in told["retried"]] == [
        (str(first), 529, "Overloaded")
    ]
    assert [(one["provider"], one["status"]) for one in told["upstream"]] == [("vendor", 503), ("azure", 200)]
    assert (told["client"], told["not_carried"]) == ("OpenAI SDK", "option_not_carried:n")
    page = client.get(f"/admin/history/exchange/{second}/change/").content.decode()
    for shown in ("OpenAI SDK", "vendor 503, azure 200", f"upstream_error 529, {first}", "option_not_carried:n"):
        assert shown in page
    assert "secret" not in page
    assert "Overloaded" not in page


def test_what_each_try_has_cost_is_in_the_sum(relay: Relay) -> None:
    talk = Chat(relay)
    tries = [talk.send("Fix the parser.")]
    for number in ("1", "2"):
        relay.journal.reply(tries[-1], half_bytes(talk.dialect, model_answer("Half", usage=None)))
        relay.end(tries[-1], "upstream_cut", metadata={"cost": "0.5"})
        relay.digest()
        talk.turns -= 1
        tries.append(talk.send(headers={"x-stainless-retry-count": number}))
        relay.digest()
    relay.answer(tries[-1], model_answer("Done."), metadata={"cost": "0.25"})
    relay.digest()
    (session,) = sessions()
    row = Exchange.objects.get()
    assert session.cost == row.cost == Decimal("1.25")
    assert [Decimal(one["cost"]) for one in row.metadata["retried"]] == [Decimal("0.5"), Decimal("0.5")]


def test_the_ids_of_earlier_tries_name_the_session_too(relay: Relay, client: Client, ada: User) -> None:
    """A client was told one id for each try; which of them it asks about later is its own affair."""
    talk = Chat(relay)
    tries = [talk.send("Fix the parser.")]
    for number in ("1", "2"):
        relay.fail(tries[-1], 529, BUSY)
        relay.digest()
        talk.turns -= 1
        tries.append(talk.send(headers={"x-stainless-retry-count": number}))
    relay.answer(tries[-1], model_answer("Done."))
    relay.digest()
    (session,) = sessions()
    client.force_login(ada)
    told = [client.get(f"/api/history/exchanges/{one}").json() for one in tries]
    assert [one["session_id"] for one in told] == [str(session.pk)] * 3
    assert {one["id"] for one in told} == {str(tries[-1])}
    erase(session, actor=ada, reason="a test")
    assert not EarlierTry.objects.exists()
    assert client.get(f"/api/history/exchanges/{tries[0]}").status_code == 404


def test_a_retry_while_the_first_try_is_under_way_waits_for_its_end(relay: Relay) -> None:
    talk = Chat(relay)
    first = talk.send("Fix the parser.")
    second = talk.send(headers={"x-stainless-retry-count": "1"})
    relay.answer(second, model_answer("Done."))
    relay.digest()
    assert not Exchange.objects.filter(pk=second).exists()
    relay.end(first, "client_gone", status=0)
    relay.digest()
    assert Exchange.objects.get().pk == second
    assert path_of(sessions()[0]) == ["u:Fix the parser.", "a:Done."]


def test_another_body_is_another_call_with_any_number(relay: Relay) -> None:
    talk = Chat(relay)
    relay.fail(talk.send("Fix the parser."), 500, BUSY)
    relay.digest()
    other = Chat(relay)
    exchange = other.send("Fix the lexer.", headers={"x-stainless-retry-count": "1"})
    relay.answer(exchange, model_answer("Done."))
    relay.digest()
    assert len(sessions()) == 2
    assert exchange_of(exchange).attempts == 1


def hello() -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}


def test_a_retry_continues_its_own_conversation_beside_equal_ones(relay: Relay) -> None:
    mine, others = {"x-session-id": "session-aaaa"}, {"x-session-id": "session-bbbb"}
    relay.fail(relay.send(CHAT, hello(), {**mine, **FIRST}), 529, BUSY)
    other = relay.send(CHAT, hello(), {**others, **FIRST})
    relay.fail(other, 529, BUSY)
    relay.digest()
    again = relay.send(CHAT, hello(), {**mine, **SECOND})
    relay.answer(again, model_answer("For you."))
    relay.digest()
    assert exchange_of(other).attempts == 1
    assert exchange_of(again).attempts == 2
    assert exchange_of(again).session_id == session_id("session-aaaa", key=relay.key.pk)


def test_a_sample_that_is_asked_for_again_leaves_the_others_alone(relay: Relay) -> None:
    one, two = relay.send(CHAT, hello(), FIRST), relay.send(CHAT, hello(), FIRST)
    relay.fail(one, 529, BUSY)
    relay.answer(two, model_answer("Sample two."))
    relay.digest()
    again = relay.send(CHAT, hello(), SECOND)
    relay.answer(again, model_answer("Sample one."))
    relay.digest()
    assert exchange_of(two).end_reason == "done"
    assert sorted(path_of(session)[-1] for session in sessions()) == ["a:Sample one.", "a:Sample two."]


@pytest.mark.parametrize(("seconds", "exchanges"), [(5, 1), (300, 2)])
def test_a_whole_answer_is_asked_for_again_only_right_after_it_was_lost(
    relay: Relay, seconds: int, exchanges: int
) -> None:
    """The same words in another session whose first try never arrived are a call of their own."""
    now = time.time()
    relay.answer(relay.send(CHAT, hello(), FIRST, at=now - seconds), model_answer("Hi."), at=now - seconds)
    relay.digest()
    relay.answer(relay.send(CHAT, hello(), SECOND, at=now), model_answer("Hello."))
    relay.digest()
    assert Exchange.objects.count() == exchanges


def test_two_hosts_need_not_have_the_same_time_to_the_second(relay: Relay) -> None:
    now = time.time()
    relay.fail(relay.send(CHAT, hello(), FIRST, at=now), 529, BUSY)
    relay.digest()
    relay.answer(relay.send(CHAT, hello(), SECOND, at=now - 1), model_answer("Hi."))
    relay.digest()
    assert Exchange.objects.count() == 1


@pytest.mark.parametrize("is_late", [True, False])
def test_an_unfinished_attempt_is_overtaken_by_the_next(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    monkeypatch.setattr(pending_calls, "WAIT_SECONDS", 0.0)
    first = relay.send(CHAT, hello(), FIRST)
    relay.digest()
    again = relay.send(CHAT, hello(), SECOND)
    relay.digest()
    ends = [(first, "Not read by the client."), (again, "Hi.")]
    for exchange, answer in reversed(ends) if is_late else ends:
        relay.answer(exchange, model_answer(answer))
        relay.digest()
    (session,) = sessions()
    row = Exchange.objects.get()
    assert (row.pk, row.attempts, row.end_reason) == (again, 2, "done")
    assert path_of(session) == ["u:hello", "a:Hi."]
    assert Message.objects.filter(session=session, content="Not read by the client.", on_path=False).exists()
    assert not relay.digester.pending


def test_a_retry_does_not_write_into_a_session_that_its_owner_has_deleted(relay: Relay) -> None:
    named = {"x-session-id": "session-aaaa"}
    relay.fail(relay.send(CHAT, hello(), {**named, **FIRST}), 529, BUSY)
    relay.digest()
    Session.objects.update(state=Session.State.DELETED, hidden_at=timezone.now())
    again = relay.send(CHAT, hello(), {**named, **SECOND})
    relay.answer(again, model_answer("Hi."))
    relay.digest()
    session = exchange_of(again).session
    assert session is not None
    assert session.hidden_at is None
