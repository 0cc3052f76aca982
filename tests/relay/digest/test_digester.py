"""The digester: nothing stored twice and nothing lost after crashes and outages, and everything in order."""

from __future__ import annotations

import time

import pytest
from django.db.models import F

from history import retention
from history.models import ApiKey, Exchange, Message, Session
from project.accounts.models import User
from relay.digest import bodies
from relay.gateway.journal.segments import names
from relay.gateway.journal.writer import Journal
from relay.models import JournalPosition
from tests.relay.digest.programs import Chat, ClaudeCode
from tests.relay.digest.relayed import Relay, erase, exchange_of, model_answer, path_of, sessions

CHAT = "openai-chat"


def hello(text: str = "hello") -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


@pytest.mark.django_db
class TestRemembering:
    def test_another_digester_goes_on_where_the_first_one_stopped(self, relay: Relay) -> None:
        talk = Chat(relay)
        for turn in range(5):
            talk.relay_call(f"Question {turn}", model_answer(f"Answer {turn}"))
            relay.reborn()
        (session,) = sessions()
        assert len(path_of(session)) == 10
        assert (Message.objects.count(), Exchange.objects.count()) == (10, 5)

    def test_a_call_that_was_filed_before_the_change_is_finished_after_it(self, relay: Relay) -> None:
        first = relay.send(CHAT, hello("one"))
        relay.digest()
        relay.relay_call(CHAT, hello("two"), model_answer("2"))
        relay.reborn()
        relay.answer(first, model_answer("1"))
        relay.digest()
        assert sorted(path_of(session) for session in sessions()) == [["u:one", "a:1"], ["u:two", "a:2"]]
        assert Exchange.objects.count() == 2

    def test_what_its_owner_erased_does_not_come_back_with_another_digester(self, relay: Relay) -> None:
        relay.send(CHAT, hello("open all the time"))
        relay.relay_call(CHAT, hello("erase me"), model_answer("gladly"))
        erase("erase me")
        relay.reborn()
        relay.digest()
        assert [session.title for session in sessions()] == ["open all the time"]

    def test_tries_that_became_one_exchange_stay_one(self, relay: Relay) -> None:
        relay.send(CHAT, hello("open all the time"))
        talk = Chat(relay)
        relay.fail(talk.send("again"), 500, b"{}")
        relay.digest()
        second = talk.send(headers={"x-stainless-retry-count": "1"})
        relay.answer(second, model_answer("Done."))
        relay.digest()
        relay.reborn()
        relay.digest()
        assert exchange_of(second).attempts == 2
        assert Exchange.objects.count() == 2

    def test_digested_segments_are_removed(self, relay: Relay) -> None:
        relay.relay_call(CHAT, hello(), model_answer("Hello!"))
        relay.journal.close()
        relay.digest()
        assert names(relay.folder) == []

    def test_a_segment_is_kept_as_long_as_a_call_in_it_is_under_way(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, hello())
        relay.journal._begin_segment()
        relay.digest()
        assert len(names(relay.folder)) == 2
        relay.answer(exchange, model_answer("Hello!"))
        relay.journal.close()
        relay.digest()
        assert names(relay.folder) == []

    def test_what_the_journal_lost_is_counted_in_the_database(self, relay: Relay) -> None:
        relay.journal.most_bytes = 10
        relay.send(CHAT, hello())
        relay.journal.most_bytes = 10**6
        time.sleep(0.3)
        relay.relay_call(CHAT, hello(), model_answer("Hello!"))
        relay.digest()
        kept = JournalPosition.objects.get()
        assert (kept.lost_calls, kept.lost_bytes > 50) == (1, True)


@pytest.mark.django_db
class TestOrder:
    def test_a_request_waits_for_the_answer_that_it_goes_on_from(self, relay: Relay) -> None:
        talk = Chat(relay)
        first = talk.send("One?")
        relay.digest()
        talk.add_answer(model_answer("1"))
        second = talk.send("Two?")
        relay.digest()
        assert not Exchange.objects.filter(pk=second).exists()
        relay.answer(first, model_answer("1"))
        relay.answer(second, model_answer("2"))
        relay.digest()
        (session,) = sessions()
        assert path_of(session) == ["u:One?", "a:1", "u:Two?", "a:2"]

    def test_but_not_for_ever(self, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("relay.digest.pending_calls.WAIT_SECONDS", 0.2)
        talk = Chat(relay)
        talk.send("One?")
        relay.digest()
        talk.add_answer(model_answer("1"))
        second = talk.send("Two?")
        relay.digest()
        time.sleep(0.3)
        relay.digest()
        assert Exchange.objects.filter(pk=second).exists()

    def test_answers_in_another_order_than_the_questions_go_where_they_belong(self, relay: Relay) -> None:
        calls = [relay.send(CHAT, hello(f"question {number}")) for number in range(5)]
        for number in (3, 0, 4, 1, 2):
            relay.answer(calls[number], model_answer(f"answer {number}"))
            relay.digest()
        for number, exchange in enumerate(calls):
            session = exchange_of(exchange).session
            assert session is not None
            assert path_of(session) == [f"u:question {number}", f"a:answer {number}"]

    def test_a_backlog_of_a_whole_conversation_is_digested_at_once(self, relay: Relay) -> None:
        talks = [Chat(relay), ClaudeCode(relay)]
        for turn in range(4):
            for talk in talks:
                exchange = talk.send(f"{type(talk).__name__} {turn}")
                relay.answer(exchange, model_answer(f"{type(talk).__name__} answer {turn}"))
                talk.add_answer(model_answer(f"{type(talk).__name__} answer {turn}"))
        relay.digest()
        assert [len(path_of(session)) for session in sessions()] == [8, 8]

    def test_two_processes_that_relay_one_conversation(self, relay: Relay) -> None:
        talk = Chat(relay)
        journals = [relay.journal, Journal(relay.folder)]
        for turn in range(4):
            relay.journal = journals[turn % 2]
            exchange = talk.send(f"Question {turn}")
            relay.answer(exchange, model_answer(f"Answer {turn}"))
            talk.add_answer(model_answer(f"Answer {turn}"))
        relay.digest()
        (session,) = sessions()
        assert len(path_of(session)) == 8

    def test_what_cannot_be_stored_does_not_hold_up_the_rest(self, relay: Relay) -> None:
        """A session that is being removed takes no entry any more."""
        talk = ClaudeCode(relay)
        talk.relay_call("One", model_answer("1"))
        open_call = talk.send("Two")
        relay.digest()
        Session.objects.update(state=Session.State.REMOVING, hidden_at=F("stored_at"))
        relay.answer(open_call, model_answer("2"))
        other = relay.relay_call(CHAT, hello("three"), model_answer("3"))
        relay.digest()
        assert exchange_of(other).message is not None
        stored = exchange_of(open_call)
        assert (stored.end_reason, stored.metadata["problem"]) == ("done", "could not be stored: NoSuchEntry")

    def test_a_reply_that_cannot_be_read_leaves_a_row_that_says_so(
        self, relay: Relay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stumble(*_args: object, **_named: object) -> None:
            raise KeyError("choices")

        monkeypatch.setattr(bodies, "read_answer", stumble)
        filed = relay.send(CHAT, hello("filed before"))
        relay.digest()
        at_once = relay.send(CHAT, hello("all at once"))
        for exchange in (filed, at_once):
            relay.answer(exchange, model_answer("unreadable"))
        relay.digest()
        for exchange in (filed, at_once):
            stored = exchange_of(exchange)
            assert (stored.end_reason, stored.metadata["problem"]) == ("done", "could not be stored: KeyError")

    def test_a_session_that_is_erased_before_the_answer_comes_is_no_error(
        self, relay: Relay, ada: User, caplog: pytest.LogCaptureFixture
    ) -> None:
        exchange = relay.send(CHAT, hello())
        relay.digest()
        retention.erase(sessions()[0], actor=ada, reason="asked for")
        relay.answer(exchange, model_answer("too late"))
        relay.digest()
        assert (sessions(), relay.digester.is_idle) == ([], True)
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.django_db
class TestSessions:
    def test_a_session_that_its_owner_deleted_is_not_written_to_again(self, relay: Relay) -> None:

        talk = ClaudeCode(relay)
        talk.relay_call("One", model_answer("1"))
        Session.objects.update(state=Session.State.DELETED, hidden_at=F("stored_at"))
        talk.relay_call("Two", model_answer("2"))
        talk.relay_call("Three", model_answer("3"))
        old, new = Session.objects.get(hidden_at__isnull=False), Session.objects.get(hidden_at=None)
        assert path_of(old) == ["u:One", "a:1"]
        assert path_of(new)[-1] == "a:3"

    def test_the_same_words_under_another_key_are_another_session(self, relay: Relay, bob_key: ApiKey) -> None:
        mine, theirs = ClaudeCode(relay), ClaudeCode(relay)
        mine.relay_call("One", model_answer("1"))
        theirs.relay_call("One", model_answer("1"), key=bob_key)
        mine.relay_call("Two", model_answer("2"))
        theirs.relay_call("Two", model_answer("2"), key=bob_key)
        assert {session.api_key_id for session in sessions()} == {relay.key.pk, bob_key.pk}
        assert [session.message_count for session in sessions()] == [4, 4]

    def test_a_new_session_can_be_asked_for(self, relay: Relay) -> None:
        talk = ClaudeCode(relay)
        talk.relay_call("One", model_answer("1"))
        talk.relay_call("Two", model_answer("2"), headers={"X-Parley-New-Session": "1"})
        assert len(sessions()) == 2
        assert {session.recognised_by for session in sessions()} == {"client id", "new"}

    def test_first_words_of_a_moment_ago_recognise_a_conversation_whose_answers_changed(self, relay: Relay) -> None:
        talk = Chat(relay)
        talk.relay_call("Tell me of fjords.", model_answer("Gladly."))
        talk.body["messages"][-1]["content"] = "(shortened by the client)"
        last = talk.relay_call("More.", model_answer("More fjords."))
        (session,) = sessions()
        assert exchange_of(last).metadata["recognised_by"] == "sticky"
        assert path_of(session)[-2:] == ["u:More.", "a:More fjords."]

    def test_first_words_of_long_ago_do_not(self, relay: Relay, settings: pytest.FixtureRequest) -> None:
        settings.CHAT_HISTORY_STICKY_TTL_SECONDS = 60  # type: ignore[attr-defined]
        talk = Chat(relay)
        talk.relay_call("Tell me of fjords.", model_answer("Gladly."), at=time.time() - 100)
        Session.objects.update(last_activity_at=sessions()[0].created_at)
        talk.body["messages"][-1]["content"] = "(shortened by the client)"
        talk.relay_call("More.", model_answer("More fjords."))
        assert len(sessions()) == 2


@pytest.fixture
def bob_key(bob: object) -> ApiKey:
    from history.access import keys

    return keys.create(name="bob", owner=bob, recording="full").api_key  # type: ignore[arg-type]
