"""A segment that was damaged on disk: what is whole is read, what is not is counted, nothing goes unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.models import Exchange
from relay.gateway.segments import FRAME, MAGIC, bytes_in, names
from relay.models import JournalPosition
from tests.digest.relayed import Relay, exchange_of, said

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"


def hello(text: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


@pytest.fixture
def calls(relay: Relay) -> list[int]:
    """Three calls in one segment that nobody writes any more; where each of their records begins, and the end."""
    for text in "abc":
        relay.answer(relay.send(CHAT, hello(text)), said(text.upper()))
    relay.journal.close()
    data, at = segment(relay).read_bytes(), [len(MAGIC)]
    while at[-1] < len(data):
        at.append(at[-1] + FRAME.size + FRAME.unpack_from(data, at[-1])[0])
    return at


def segment(relay: Relay) -> Path:
    return relay.folder / names(relay.folder)[0]


def flip(relay: Relay, at: int) -> None:
    data = bytearray(segment(relay).read_bytes())
    data[at] ^= 0x40
    segment(relay).write_bytes(data)


def titles() -> list[str]:
    return sorted(Exchange.objects.values_list("session__title", flat=True))


def test_a_record_that_is_damaged_is_passed_over_and_counted(
    relay: Relay, calls: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    flip(relay, calls[2] + 40)
    name = segment(relay).name
    relay.digest()
    row = JournalPosition.objects.get()
    assert titles() == ["a", "c"]
    assert (row.lost_calls, row.lost_bytes) == (1, calls[3] - calls[2])
    assert row.lost_why == f"the journal is damaged: {name} at byte {calls[2]}"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert list(relay.folder.glob("*.journal*")) == []


def test_a_call_whose_end_is_damaged_says_that_it_is_not_known(relay: Relay, calls: list[int]) -> None:
    flip(relay, calls[3] + 40)
    relay.digest()
    assert titles() == ["a", "b", "c"]
    assert sorted(Exchange.objects.values_list("end_reason", flat=True)) == ["done", "done", "server_lost"]
    assert JournalPosition.objects.get().lost_bytes == calls[4] - calls[3]


@pytest.mark.parametrize("byte", [0, 3], ids=["another length", "a length beyond the end"])
def test_where_nothing_tells_how_it_goes_on_the_segment_is_put_aside(relay: Relay, calls: list[int], byte: int) -> None:
    flip(relay, calls[2] + byte)
    damaged = segment(relay)
    relay.digest()
    row = JournalPosition.objects.get()
    assert (titles(), names(relay.folder)) == (["a"], [])
    assert (row.lost_calls, row.lost_bytes) == (0, calls[-1] - calls[2])
    assert row.lost_why.endswith(f"put aside as {damaged.name}.damaged")
    assert damaged.with_name(f"{damaged.name}.damaged").stat().st_size == calls[-1]
    assert bytes_in(relay.folder) == 0, "it takes no room of the journal"


def test_the_torn_tail_of_a_process_that_died_is_no_damage(relay: Relay, calls: list[int]) -> None:
    whole = segment(relay).read_bytes()
    segment(relay).write_bytes(whole[: calls[-1] - 10])
    relay.digest()
    row = JournalPosition.objects.get()
    assert (titles(), row.lost_bytes) == (["a", "b", "c"], 0)
    assert list(relay.folder.glob("*.journal*")) == []


def test_while_it_is_written_nothing_counts_as_damaged(relay: Relay) -> None:
    relay.ask(CHAT, hello("a"), said("A"))
    with segment(relay).open("ab") as file:
        file.write(FRAME.pack(2, 0) + b"A?")
    relay.digest()
    assert JournalPosition.objects.get().lost_bytes == 0


def test_damage_is_counted_once_however_often_the_digester_dies(relay: Relay, calls: list[int]) -> None:
    other = Relay(relay.folder, relay.key)
    open_call = other.send(CHAT, hello("open all the time"))
    flip(relay, calls[2] + 40)
    for _ in range(3):
        relay.reborn()
        relay.digest()
    assert JournalPosition.objects.get().lost_bytes == calls[3] - calls[2]
    assert exchange_of(open_call).ended_at is None
