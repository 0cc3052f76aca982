"""A call that takes an hour holds its own records, and not what was digested beside it, also after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from history.models import Exchange, Message
from relay.digest import journal_compaction, positions
from relay.gateway.journal.reader import JournalReader
from relay.gateway.journal.segments import bytes_in, names, writer_of
from relay.gateway.journal.writer import Journal
from tests.relay.digest.relayed import Relay, exchange_of, half_bytes, model_answer, path_of, reply_bytes, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"
ANSWER = model_answer("A long answer, told in many pieces.")
PIECES = 12


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def _a_small_journal(settings: Any, relay: Relay) -> None:
    settings.PARLEY_JOURNAL_MB = 2
    relay.journal = Journal(relay.folder, most_bytes=2_000_000)


def hello(text: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


def piece(number: int) -> bytes:
    whole = reply_bytes(CHAT, ANSWER, stream=True)
    return whole[number * len(whole) // PIECES : (number + 1) * len(whole) // PIECES]


def go_on(relay: Relay, call: UUID, number: int) -> None:
    """One segment more, with a word of the long call and a large call that is done."""
    relay.journal._measured = float("-inf")
    relay.journal._begin_segment()
    relay.journal.reply(call, piece(number))
    relay.journal.flush()
    relay.answer(relay.send(CHAT, hello(f"{number}" + "x" * 200_000)), model_answer("ok"))


def finish(relay: Relay, call: UUID) -> None:
    relay.end(call)
    relay.digest()
    assert path_of(next(session for session in sessions() if session.title == "long")) == ["u:long", f"a:{ANSWER.text}"]
    assert Exchange.objects.filter(end_reason="done").count() == PIECES + 1
    assert Message.objects.count() == 2 * PIECES + 2


def test_one_long_stream_does_not_fill_the_journal_with_what_is_digested(relay: Relay) -> None:
    call = relay.send(CHAT, hello("long"))
    for number in range(PIECES):
        go_on(relay, call, number)
        relay.digest()
        assert bytes_in(relay.folder) < 1_000_000
    assert relay.journal.unreported.calls == 0
    finish(relay, call)
    relay.journal.close()
    relay.digest()
    assert names(relay.folder) == []


def test_another_digester_reads_on_from_what_was_carried_over(relay: Relay) -> None:
    call = relay.send(CHAT, hello("long"))
    for number in range(PIECES):
        go_on(relay, call, number)
        relay.reborn()
        relay.digest()
    assert bytes_in(relay.folder) < 1_000_000
    finish(relay, call)


POINTS = {
    "with a copy and no word of it": (positions, "save_position"),
    "with a copy that the position speaks of": (journal_compaction, "publish"),
    "with the old segments still there": (JournalReader, "remove_all_but"),
}


@contextmanager
def failing(relay: Relay, monkeypatch: pytest.MonkeyPatch, *, at: str, error: BaseException) -> Iterator[None]:
    """Once a copy is made, and before a step of that is taken."""
    where, what = POINTS[at]
    made, whole = set[str](), getattr(where, what)

    def fail(*args: Any, **how: Any) -> Any:
        if made or any(relay.folder.glob("*.carried")):
            raise error
        return whole(*args, **how)

    write_copy = journal_compaction.write_copy

    def copied(*args: Any) -> Any:
        copy = write_copy(*args)
        made.add(copy.name)
        return copy

    with monkeypatch.context() as for_now:
        for_now.setattr(journal_compaction, "write_copy", copied)
        for_now.setattr(where, what, fail)
        yield


@pytest.mark.parametrize("point", POINTS)
def test_kill_9_at_any_point_of_it_doubles_nothing_and_loses_nothing(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    call, deaths = relay.send(CHAT, hello("long")), 0
    for number in range(PIECES):
        go_on(relay, call, number)
        try:
            with failing(relay, monkeypatch, at=point, error=Killed()):
                relay.digest()
        except Killed:
            deaths += 1
        relay.reborn()
        relay.digest()
    assert deaths > 3
    assert bytes_in(relay.folder) < 1_000_000
    finish(relay, call)


def test_with_the_database_away_just_then_it_is_done_later(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    call, away = relay.send(CHAT, hello("long")), 0
    for number in range(PIECES):
        go_on(relay, call, number)
        try:
            with failing(relay, monkeypatch, at="with a copy and no word of it", error=OperationalError("away")):
                relay.digest()
        except OperationalError:
            away += 1
        relay.digest()
    assert away > 3
    assert not list(relay.folder.glob("*.carried"))
    finish(relay, call)


def test_a_call_that_was_carried_over_is_lost_with_its_writer(relay: Relay) -> None:
    call = relay.send(CHAT, hello("long"))
    for number in range(4):
        go_on(relay, call, number)
        relay.digest()
    assert {writer_of(name) for name in names(relay.folder)} == {relay.journal._writer}
    assert exchange_of(call).ended_at is None
    relay.journal._close_segment()
    relay.reborn()
    relay.digest()
    assert exchange_of(call).end_reason == "server_lost"
    assert half_bytes(CHAT, ANSWER).startswith(b"".join(map(piece, range(4))))
    assert names(relay.folder) == []
