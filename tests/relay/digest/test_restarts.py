"""However often the digester is killed while an older call is under way: nothing doubled, nothing back, every end."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from history.models import Exchange, Message, Session
from history.record import exchanges
from relay.digest import digester
from relay.gateway.journal.records import RecordsLost, encode_header
from relay.models import JournalPosition
from tests.relay.digest.programs import Chat
from tests.relay.digest.relayed import Relay, erase, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"


def hello(text: str = "hello") -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


def counts() -> tuple[int, int, int]:
    return Exchange.objects.count(), Session.objects.count(), Message.objects.count()


def killed_twice(relay: Relay) -> None:
    """With something to file in between, so that each of them has kept a position of its own."""
    for life in range(2):
        relay.reborn()
        relay.digest()
        relay.relay_call(CHAT, hello(f"life {life}"), model_answer("still here"))


def lose_three_calls(relay: Relay) -> None:
    relay.journal._write((encode_header(RecordsLost(at=time.time(), calls=3, lost_bytes=10, why="full")), b""))


class TestWhatIsDone:
    @pytest.fixture(autouse=True)
    def _an_older_call(self, relay: Relay) -> None:
        relay.send(CHAT, hello("open all the time"))

    def test_tries_that_became_one_exchange_stay_one_however_much_came_after_them(self, relay: Relay) -> None:
        talk = Chat(relay)
        relay.fail(talk.send("again"), 500, b"{}")
        relay.digest()
        relay.answer(talk.send(headers={"x-stainless-retry-count": "1"}), model_answer("Done."))
        relay.digest()
        killed_twice(relay)
        relay.reborn()
        before = counts()
        relay.digest()
        assert counts() == before == (4, 4, 9)

    def test_what_its_owner_erased_does_not_come_back(self, relay: Relay) -> None:
        relay.relay_call(CHAT, hello("erase me"), model_answer("gladly"))
        erase("erase me")
        killed_twice(relay)
        relay.reborn()
        relay.digest()
        assert "erase me" not in [session.title for session in sessions()]

    def test_what_its_owner_erased_under_way_does_not_come_back_either(self, relay: Relay) -> None:
        gone = relay.send(CHAT, hello("erase me"))
        relay.digest()
        erase("erase me")
        relay.reborn()
        relay.answer(gone, model_answer("too late"))
        relay.digest()
        assert [session.title for session in sessions()] == ["open all the time"]

    def test_what_the_journal_lost_is_counted_once(self, relay: Relay) -> None:
        lose_three_calls(relay)
        relay.digest()
        killed_twice(relay)
        assert JournalPosition.objects.get().lost_calls == 3

    def test_what_is_kept_of_it_does_not_grow_with_what_is_done(self, relay: Relay) -> None:
        relay.relay_call(CHAT, hello(), model_answer("ok"))
        before = len(str(JournalPosition.objects.get().position))
        for number in range(20):
            relay.relay_call(CHAT, hello(f"{number}"), model_answer("ok"))
        assert len(str(JournalPosition.objects.get().position)) <= before + 10


class TestWhatIsUnderWay:
    def test_a_life_that_ends_while_it_reads_again_costs_no_answer(
        self, relay: Relay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        relay.send(CHAT, hello("open all the time"))
        lose_three_calls(relay)
        late = relay.send(CHAT, hello("late"))
        relay.digest()
        monkeypatch.setattr(digester, "MOST_RECORDS", 1)
        lose_three_calls(relay)
        relay.reborn()
        relay.digester.step()
        relay.reborn()
        relay.answer(late, model_answer("here I am"))
        relay.digest()
        assert exchange_of(late).end_reason == "done"
        assert JournalPosition.objects.get().lost_calls == 6

    def test_a_call_that_was_swept_has_the_end_that_the_journal_tells(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, hello())
        relay.digest()
        Exchange.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
        assert exchanges.sweep() == 1
        relay.reborn()
        relay.answer(exchange, model_answer("Hi"))
        relay.digest()
        assert exchange_of(exchange).end_reason == "done"
        assert path_of(sessions()[0]) == ["u:hello", "a:Hi"]

    def test_a_request_that_was_read_and_not_filed_is_filed_by_the_next_one(self, relay: Relay) -> None:
        waits = relay.send(CHAT, hello("waits"))
        relay.digester._order.end_wait = 60
        relay.digester.step()
        lose_three_calls(relay)
        relay.digester.step()
        assert not Exchange.objects.exists()
        relay.reborn()
        relay.answer(waits, model_answer("no more"))
        relay.digest()
        assert path_of(sessions()[0]) == ["u:waits", "a:no more"]
