"""A database that is there and takes nothing, or goes away just as it has: the journal waits, and then knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, InternalError, OperationalError, ProgrammingError

from history.db import bulk, transactions
from history.models import Exchange, Message
from relay.digest import digester, process
from tests.relay.digest.relayed import Relay, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db(transaction=True)

CHAT = "openai-chat"
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
REFUSALS = [InternalError("cannot execute INSERT in a read-only transaction"), ProgrammingError("no such column")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=["read-only", "not migrated"])
def test_a_database_that_refuses_costs_no_call(
    relay: Relay, refusal: DatabaseError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_args: object) -> None:
        raise refusal

    exchange = relay.send(CHAT, HELLO)
    relay.answer(exchange, model_answer("Hi"))
    with monkeypatch.context() as for_now:
        for_now.setattr(bulk, "insert", refuse)
        for _ in range(3):
            assert process._step(relay.digester) == (0, process.PAUSE_WHEN_AWAY)
    assert [record.levelname for record in caplog.records] == ["ERROR"], "told once"
    relay.journal.close()
    for _ in range(2):
        process._step(relay.digester)
    assert path_of(sessions()[0]) == ["u:hello", "a:Hi"]


@contextmanager
def gone_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It has written all, and the word that it has does not come through."""
    committing = transactions.writing

    @contextmanager
    def committing_unheard() -> Iterator[None]:
        with committing():
            yield
        raise OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as for_now:
        for_now.setattr(digester, "writing", committing_unheard)
        yield


def test_a_commit_without_a_reply_is_not_repeated(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = relay.send(CHAT, HELLO)
    with gone_after_the_commit(monkeypatch), pytest.raises(OperationalError):
        relay.digester.step()
    relay.answer(exchange, model_answer("Hi"))
    with gone_after_the_commit(monkeypatch), pytest.raises(OperationalError):
        relay.digester.step()
    relay.digest()
    assert exchange_of(exchange).end_reason == "done"
    assert (Exchange.objects.count(), Message.objects.count()) == (1, 2)
    assert caplog.records == []
