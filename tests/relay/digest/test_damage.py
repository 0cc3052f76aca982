"""A segment that was damaged on disk: what is whole is read, what is not is counted, nothing goes unseen."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from history.models import Exchange
from relay.gateway.journal import record_framing
from relay.gateway.journal.record_framing import FRAME_SIZE
from relay.gateway.journal.segments import bytes_in, names
from relay.models import JournalPosition
from tests.relay.digest.damages import record_starts
from tests.relay.digest.relayed import Relay, exchange_of, model_answer

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"


def hello(text: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


@pytest.fixture
def calls(relay: Relay) -> list[int]:
    """Three calls in one finished segment; the start of each record, and the end."""
    for text in "abc":
        relay.answer(relay.send(CHAT, hello(text)), model_answer(text.upper()))
    relay.journal.close()
    return record_starts(segment(relay).read_bytes())


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
    aside = f"{name}.{calls[2]}.damaged"
    assert row.lost_why == f"the journal is damaged: {name} at byte {calls[2]}, put aside as {aside}"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"], "the hole, and whose end it has left"
    assert [path.name for path in relay.folder.glob("*.journal*")] == [aside]


def test_a_call_whose_end_is_damaged_says_that_it_is_not_known(relay: Relay, calls: list[int]) -> None:
    flip(relay, calls[3] + 40)
    relay.digest()
    assert titles() == ["a", "b", "c"]
    assert sorted(Exchange.objects.values_list("end_reason", flat=True)) == ["done", "done", "server_lost"]
    assert JournalPosition.objects.get().lost_bytes == calls[4] - calls[3]


@pytest.mark.parametrize("byte", [0, 4, 7, 12, 18, 21], ids=["mark", "length", "long", "position", "calls", "checksum"])
def test_a_damaged_frame_costs_its_own_record_alone(relay: Relay, calls: list[int], byte: int) -> None:
    flip(relay, calls[2] + byte)
    damaged = segment(relay)
    data = damaged.read_bytes()
    relay.digest()
    row = JournalPosition.objects.get()
    assert (titles(), names(relay.folder)) == (["a", "c"], [])
    assert (row.lost_calls, row.lost_bytes) == (1, calls[3] - calls[2])
    aside = damaged.with_name(f"{damaged.name}.{calls[2]}.damaged")
    assert aside.read_bytes() == data[calls[2] : calls[3]], "what is in the record is not kept a second time"
    assert bytes_in(relay.folder) == 0, "it does not count as journal"


@pytest.mark.parametrize("torn", [1, FRAME_SIZE, 200])
def test_the_torn_tail_of_a_process_that_died_is_no_damage(relay: Relay, calls: list[int], torn: int) -> None:
    """It had begun to write the next record, and nothing counts it yet."""
    mark = record_framing.mark_of(segment(relay).name)
    following = (
        record_framing.pack_frame([b"A" + b"x" * 500], mark, length=501, position=calls[-1], calls=3)
        + b"A"
        + b"x" * 500
    )
    segment(relay).write_bytes(segment(relay).read_bytes() + following[:torn])
    relay.digest()
    row = JournalPosition.objects.get()
    assert (titles(), row.lost_bytes) == (["a", "b", "c"], 0)
    assert list(relay.folder.glob("*.journal*")) == []


def test_a_record_that_was_written_and_not_counted_is_read(relay: Relay, calls: list[int]) -> None:
    """Its process died between the two writes."""
    whole = bytearray(segment(relay).read_bytes())
    whole[record_framing.COUNTS_AT : record_framing.START] = record_framing.pack_counts(calls[-3], 2)
    segment(relay).write_bytes(whole)
    relay.digest()
    assert (titles(), JournalPosition.objects.get().lost_bytes) == (["a", "b", "c"], 0)


def test_a_file_whose_end_is_cut_off_is_noticed(relay: Relay, calls: list[int]) -> None:
    """At any byte, and where exactly whole calls are cut off."""
    whole = segment(relay).read_bytes()
    segment(relay).write_bytes(whole[: calls[2]])
    relay.digest()
    row = JournalPosition.objects.get()
    assert (titles(), row.lost_calls, row.lost_bytes) == (["a"], 2, calls[-1] - calls[2])


def test_a_call_that_is_cut_out_whole_is_noticed(relay: Relay, calls: list[int]) -> None:
    data = segment(relay).read_bytes()
    segment(relay).write_bytes(data[: calls[2]] + data[calls[4] :])
    relay.digest()
    row = JournalPosition.objects.get()
    assert (titles(), row.lost_calls, row.lost_bytes) == (["a", "c"], 1, calls[4] - calls[2])


@pytest.mark.parametrize("cut", [(0, 2), (2, 4), (1, 3), (4, 6)], ids=["before", "at", "across", "after"])
def test_a_hole_is_noticed_by_a_digester_that_had_read_a_part(
    relay: Relay, calls: list[int], cut: tuple[int, int]
) -> None:
    """The file is cut while no digester runs, before, at or behind the place where the last one stopped."""
    whole = segment(relay).read_bytes()
    segment(relay).write_bytes(whole[: calls[2]])
    with segment(relay).open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)  # it is being written
        relay.digest()
    assert titles() == ["a"]
    segment(relay).write_bytes(whole[: calls[cut[0]]] + whole[calls[cut[1]] :])
    relay.reborn()
    relay.digest()
    row = JournalPosition.objects.get()
    missing = {(0, 2): [], (2, 4): ["b"], (1, 3): ["b"], (4, 6): ["c"]}[cut]
    assert titles() == [title for title in "abc" if title not in missing]
    assert row.lost_calls == len(missing)
    assert bool(row.lost_bytes) == bool(missing)


def test_while_it_is_written_nothing_counts_as_damaged(relay: Relay) -> None:
    relay.relay_call(CHAT, hello("a"), model_answer("A"))
    with segment(relay).open("ab") as file:
        file.write(bytes(30) + b"A?")
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
