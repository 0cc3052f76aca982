"""A client's retry is one exchange with attempts, not two messages."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.test import Client

from history.models import EarlierTry, Exchange, Message
from history.retention import erase
from project.accounts.models import User
from tests.digest.programs import Chat, ClaudeCode, Program
from tests.digest.relayed import Relay, exchange_of, half_bytes, path_of, said, sessions

pytestmark = pytest.mark.django_db

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
    relay.answer(third, said("Done."))
    relay.digest()
    (session,) = sessions()
    assert path_of(session) == ["u:Fix the parser.", "a:Done."]
    row = Exchange.objects.get()
    assert (row.pk, row.attempts, row.end_reason, row.status_code) == (third, 3, "done", 200)
    assert [one["exchange"] for one in row.metadata["retried"]] == [str(first), str(second)]
    assert Message.objects.filter(kind="model_input", is_internal=False).count() == 1


def test_what_each_try_has_cost_is_in_the_sum(relay: Relay) -> None:
    talk = Chat(relay)
    tries = [talk.send("Fix the parser.")]
    for number in ("1", "2"):
        relay.journal.reply(tries[-1], half_bytes(talk.dialect, said("Half", usage=None)))
        relay.end(tries[-1], "upstream_cut", metadata={"cost": "0.5"})
        relay.digest()
        talk.turns -= 1
        tries.append(talk.send(headers={"x-stainless-retry-count": number}))
        relay.digest()
    relay.answer(tries[-1], said("Done."), metadata={"cost": "0.25"})
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
    relay.answer(tries[-1], said("Done."))
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
    relay.answer(second, said("Done."))
    relay.digest()
    assert not Exchange.objects.filter(pk=second).exists()
    relay.end(first, "client_gone", status=0)
    relay.digest()
    assert Exchange.objects.get().pk == second
    assert path_of(sessions()[0]) == ["u:Fix the parser.", "a:Done."]


def test_another_body_is_another_call_whatever_its_number(relay: Relay) -> None:
    talk = Chat(relay)
    relay.fail(talk.send("Fix the parser."), 500, BUSY)
    relay.digest()
    other = Chat(relay)
    exchange = other.send("Fix the lexer.", headers={"x-stainless-retry-count": "1"})
    relay.answer(exchange, said("Done."))
    relay.digest()
    assert len(sessions()) == 2
    assert exchange_of(exchange).attempts == 1
