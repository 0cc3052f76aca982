"""Several hosts on one database, each with a journal of its own: a conversation may go from one to the other.

The next host may be quicker than the digester of the one before. It waits for it, but not for one that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection, connections

from history.access import keys
from history.entries import Reasoning, Text
from history.models import ApiKey, Exchange, Message
from project.accounts.models import User
from relay.digest import pending_calls, positions
from relay.digest.calls import WAIT_SECONDS, PendingCall, SessionMatch
from relay.digest.process import journal_name
from relay.digest.recognisers import returned_answers
from relay.models import JournalPosition
from tests.relay.digest.programs import Chat, ClaudeCode, Program
from tests.relay.digest.relayed import Relay, exchange_of, model_answer, path_of, sessions
from tests.relay.digest.test_digester_processes import digesting
from tests.servers.processes import wait_for

CHAT, RESPONSES = "openai-chat", "openai-responses"
ROUND_TRIP = 0.005  # as quick as a client can be
FOUR = ["u:One?", "a:1", "u:Two?", "a:2"]


def hello(text: str = "hello") -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


@pytest.fixture
def hosts(tmp_path: Path, key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> tuple[Relay, Relay]:
    """Two, and each knows of the other; they tell each other at every step how far they are."""
    monkeypatch.setattr(positions, "WRITE_SECONDS", 0.0)
    monkeypatch.setattr(positions, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(positions, "LOOK_SECONDS", 0.0)
    here, there = (Relay(tmp_path / name, key, name=name) for name in ("here", "there"))
    for relay in (here, there, here):
        relay.digest()
    return here, there


def settle(*relays: Relay) -> None:
    """In turns, until all is filed: sooner than any of them would give up waiting."""

    def are_idle() -> bool:
        for relay in relays:
            relay.digest()
        return all(relay.digester.is_idle for relay in relays)

    wait_for(are_idle, seconds=0.8 * WAIT_SECONDS, what="what the hosts wait for")


def asked_of_both(talk: Program, here: Relay, there: Relay, *, open_here: bool = False) -> None:
    """The first question goes here, and before that is filed the second one there."""
    first = talk.send("One?")
    if open_here:
        here.digest()
    here.answer(first, model_answer("1"))
    talk.add_answer(model_answer("1"))
    time.sleep(ROUND_TRIP)
    talk.relay = there
    there.answer(talk.send("Two?"), model_answer("2"))
    talk.add_answer(model_answer("2"))


@pytest.mark.django_db
class TestTheNextRequestIsQuicker:
    @pytest.mark.parametrize("program", [Chat, ClaudeCode])
    @pytest.mark.parametrize("open_here", [False, True])
    def test_the_answer_is_stored_once_and_the_conversation_is_one_path(
        self, hosts: tuple[Relay, Relay], program: Callable[[Relay], Program], open_here: bool
    ) -> None:
        here, there = hosts
        talk = program(here)
        asked_of_both(talk, here, there, open_here=open_here)
        there.digest()
        assert not Message.objects.filter(content="Two?").exists()
        settle(here, there)
        (session,) = sessions()
        assert path_of(session) == FOUR
        assert Message.objects.filter(content="1").count() == 1
        assert not Exchange.objects.filter(message=None).exists()

    def test_and_back_again_without_a_pause(self, hosts: tuple[Relay, Relay]) -> None:
        here, there = hosts
        talk = Chat(here)
        asked_of_both(talk, here, there)
        time.sleep(ROUND_TRIP)
        talk.relay = here
        here.answer(talk.send("Three?"), model_answer("3"))
        settle(there, here)
        (session,) = sessions()
        assert path_of(session) == [*FOUR, "u:Three?", "a:3"]
        assert Message.objects.filter(kind="model_output").count() == 3

    def test_an_answer_that_its_vendor_names(self, hosts: tuple[Relay, Relay]) -> None:
        here, there = hosts
        first = here.send(RESPONSES, {"model": "m", "input": "One?"})
        here.answer(first, model_answer("1"), reply_id="resp_1")
        body = {"model": "m", "input": "Two?", "previous_response_id": "resp_1"}
        there.answer(there.send(RESPONSES, body), model_answer("2"), reply_id="resp_2")
        settle(there, here)
        (session,) = sessions()
        assert path_of(session) == FOUR

    def test_a_conversation_that_the_vendor_keeps(self, hosts: tuple[Relay, Relay]) -> None:
        here, there = hosts
        for relay, question, answer in ((here, "One?", "1"), (there, "Two?", "2")):
            body = {"model": "m", "input": question, "conversation": "conv_1"}
            relay.answer(relay.send(RESPONSES, body), model_answer(answer))
            time.sleep(ROUND_TRIP)
        settle(there, here)
        (session,) = sessions()
        assert path_of(session) == FOUR

    def test_a_retry_of_what_failed_on_the_other_host_is_one_exchange(self, hosts: tuple[Relay, Relay]) -> None:
        here, there = hosts
        here.fail(here.send(CHAT, hello()), 500, b"{}")
        again = there.send(CHAT, hello(), {"x-stainless-retry-count": "1"})
        there.answer(again, model_answer("Hi"))
        settle(there, here)
        assert exchange_of(again).attempts == 2
        assert Exchange.objects.count() == len(sessions()) == 1

    def test_what_the_other_host_wrote_meanwhile_counts(self, hosts: tuple[Relay, Relay]) -> None:
        """An instruction that changes there and changes back here."""
        here, there = hosts
        talk = Chat(here)
        for relay, instruction in ((here, "Be brief."), (there, "Be rude."), (here, "Be brief.")):
            talk.relay = relay
            talk.body["messages"] = [
                {"role": "system", "content": instruction},
                *(message for message in talk.body["messages"] if message["role"] != "system"),
            ]
            talk.relay_call(f"With {instruction}", model_answer("ok"))
        told = Message.objects.filter(kind="system_instruction_set").order_by("seq")
        assert [row.content for row in told] == ["Be brief.", "Be rude.", "Be brief."]


@pytest.mark.django_db
class TestWaitingEnds:
    def test_for_a_host_that_is_gone(self, hosts: tuple[Relay, Relay]) -> None:
        _here, there = hosts
        JournalPosition.objects.filter(pk="here").update(digested_at=datetime.now(UTC) - timedelta(seconds=30))
        talk = Chat(there)
        talk.add_answer(model_answer("an unknown answer"))
        talk.send("And now?")
        there.digest()
        assert Message.objects.filter(content="And now?").exists()

    def test_for_an_answer_that_no_host_has(self, hosts: tuple[Relay, Relay]) -> None:
        here, there = hosts
        talk = Chat(there)
        talk.add_answer(model_answer("an unknown answer"))
        talk.send("And now?")
        for relay in (there, here, there):
            relay.digest()
        assert Message.objects.filter(content="And now?").exists()

    def test_two_hosts_that_both_wait_do_not_wait_for_each_other(self, hosts: tuple[Relay, Relay]) -> None:
        for relay in hosts:
            talk = Chat(relay)
            talk.add_answer(model_answer(f"unknown answer in {relay.name}"))
            relay.answer(talk.send("And now?"), model_answer("Now."))
            time.sleep(ROUND_TRIP)
        settle(*hosts)
        assert Message.objects.filter(content="Now.").count() == 2

    def test_who_is_alone_asks_and_says_nothing(
        self, relay: Relay, django_assert_num_queries: Callable[..., object]
    ) -> None:
        relay.relay_call(CHAT, hello(), model_answer("Hi"))
        with django_assert_num_queries(0):  # type: ignore[attr-defined]
            relay.digest()

    def test_who_was_alone_hears_of_another_one(
        self, relay: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        relay.relay_call(CHAT, hello(), model_answer("Hi"))
        another = Relay(tmp_path / "another", relay.key, name="another")
        another.digest()
        monkeypatch.setattr(positions, "LOOK_SECONDS", 0.0)
        relay.digest()
        before = JournalPosition.objects.get(pk="test").digested_at
        time.sleep(0.01)
        monkeypatch.setattr(positions, "WRITE_SECONDS", 0.0)
        relay.digest()
        after = JournalPosition.objects.get(pk="test").digested_at
        assert before is not None
        assert after is not None
        assert after > before


@pytest.mark.django_db
class TestWhoWaitedTooLong:
    """The digester of the first host is far behind; the second one gave up waiting and stored the client's copy."""

    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pending_calls, "WAIT_SECONDS", 0.0)
        monkeypatch.setattr(returned_answers, "WAIT_SECONDS", 0.0)

    @pytest.mark.parametrize("program", [Chat, ClaudeCode])
    @pytest.mark.parametrize("open_here", [False, True])
    def test_the_answer_that_comes_late_is_the_copy_that_is_there(
        self, hosts: tuple[Relay, Relay], program: Callable[[Relay], Program], open_here: bool
    ) -> None:
        here, there = hosts
        talk = program(here)
        asked_of_both(talk, here, there, open_here=open_here)
        there.digest()
        here.digest()
        (session,) = sessions()
        assert path_of(session) == FOUR
        assert Message.objects.filter(content="1").count() == 1
        first = Exchange.objects.order_by("started_at")[0]
        assert first.message is not None
        assert (first.session, first.message.content, first.usage["output_tokens"]) == (session, "1", 5)
        talk.relay = here
        talk.relay_call("Three?", model_answer("3"))
        assert path_of(session) == [*FOUR, "u:Three?", "a:3"]

    def test_what_the_copy_lacks_is_kept_beside_it(self, hosts: tuple[Relay, Relay]) -> None:
        here, there = hosts
        talk, thought = ClaudeCode(here), Reasoning(text="A hard one.", signature="other", provider="vendor")
        first = talk.send("One?")
        here.answer(first, replace(model_answer("1"), parts=(thought, Text(text="1"))))
        talk.add_answer(model_answer("1"))
        time.sleep(ROUND_TRIP)
        talk.relay = there
        there.answer(talk.send("Two?"), model_answer("2"))
        there.digest()
        here.digest()
        (session,) = sessions()
        assert path_of(session) == FOUR
        stored = exchange_of(first).message
        assert stored is not None
        assert (stored.on_path, "A hard one." in str(stored.body)) == (False, True)

    def test_another_conversation_of_the_same_words_is_no_copy(self, relay: Relay) -> None:
        """One that was there before the question was asked."""
        talk = Chat(relay)
        talk.add_answer(model_answer("Hi"))
        talk.body["messages"].insert(0, {"role": "user", "content": "hello"})
        talk.relay_call("An old one goes on.", model_answer("ok"), at=time.time() - 60)
        relay.relay_call(CHAT, hello(), model_answer("Hi"))
        assert sorted(len(path_of(session)) for session in sessions()) == [2, 4]


@pytest.mark.django_db(transaction=True)
def test_two_hosts_begin_the_same_session_in_the_same_moment(hosts: tuple[Relay, Relay]) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite lets one write at a time")
    here, there = hosts
    calls = []
    for relay in hosts:
        calls.append(relay.send(CHAT, hello(relay.name), {"x-parley-session-id": "shared"}))
        relay.answer(calls[-1], model_answer(f"Hello from {relay.name}"))
    sees = here.digester._order.must_wait

    def see_while_the_other_one_writes(call: PendingCall, match: SessionMatch) -> bool:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(there.digest).result()
            pool.submit(connections.close_all).result()
        return sees(call, match)

    here.digester._order.must_wait = see_while_the_other_one_writes  # type: ignore[method-assign]
    here.digest()
    (session,) = sessions()
    assert [exchange_of(call).metadata.get("problem") for call in calls] == [None, None]
    assert {message.content for message in session.messages.all()} >= {"Hello from here", "Hello from there"}


@pytest.mark.django_db(transaction=True)
def test_a_conversation_that_goes_from_host_to_host_as_fast_as_it_can(tmp_path: Path, ada: User) -> None:
    key = keys.create(name="laptop", owner=ada, recording="full").api_key
    hosts = [Relay(tmp_path / name / "journal", key) for name in ("one", "two")]
    for host in hosts:
        host.folder.mkdir(parents=True, exist_ok=True)
        journal_name(host.folder)
    with digesting(tmp_path / "one"), digesting(tmp_path / "two"):
        wait_for(lambda: JournalPosition.objects.filter(digested_at__isnull=False).count() == 2)
        time.sleep(positions.LOOK_SECONDS)
        talks = [Chat(hosts[0]), ClaudeCode(hosts[1])]
        for turn in range(8):
            for number, talk in enumerate(talks):
                talk.relay = hosts[(turn + number) % 2]
                answer = model_answer(f"{type(talk).__name__} answer {turn}")
                talk.relay.answer(talk.send(f"{type(talk).__name__} {turn}"), answer)
                talk.add_answer(answer)
                time.sleep(0.02)
        wait_for(lambda: Exchange.objects.filter(end_reason="done").count() == 16, seconds=60)
    assert [len(path_of(session)) for session in sessions()] == [16, 16]
    assert Message.objects.filter(kind="model_output").count() == 16
