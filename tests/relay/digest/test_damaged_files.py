"""Any damage to a file of the journal: an answer is whole, or the record says what is missing."""

from __future__ import annotations

import fcntl
import json
import logging
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from history.models import ApiKey, Exchange, Message
from relay.gateway.journal import record_framing
from relay.gateway.journal.reader import JournalReader
from relay.gateway.journal.records import RecordsLost
from relay.gateway.journal.segments import MAGIC, names
from relay.models import JournalPosition
from tests.factories import example_count
from tests.relay.digest.damages import DAMAGES, Damage, record_starts
from tests.relay.digest.relayed import Relay, exchange_of, remove_everything, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"
WORDS = [f"{name} " * 40 for name in ("fjord", "bay", "lake", "sea")]


def write_calls(relay: Relay) -> dict[UUID, str]:
    """Calls whose replies are written in four records each, and the last of them with the end; two are interleaved."""
    exchanges = {relay.send(CHAT, question(text)): text for text in WORDS}
    replies = {exchange: reply_of(text) for exchange, text in exchanges.items()}
    for part in range(4):
        for exchange, reply in replies.items():
            relay.journal.reply(exchange, reply[part * len(reply) // 4 : (part + 1) * len(reply) // 4])
        if part < 3:
            relay.journal.flush()
    for exchange in exchanges:
        relay.end(exchange)
    relay.journal.close()
    return exchanges


def reply_of(text: str) -> bytes:
    """Word by word."""
    words = [{"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None} for word in text.split()]
    chunks = [*words, {"index": 0, "delta": {}, "finish_reason": "stop"}]
    lines = [b"data: " + json.dumps({"id": "c", "model": "m", "choices": [one]}).encode() for one in chunks]
    return b"\n\n".join([*lines, b"data: [DONE]", b""])


def question(text: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


def segment(relay: Relay) -> Path:
    return relay.folder / names(relay.folder)[0]


def check_honest(exchanges: dict[UUID, str]) -> None:
    """Every call is whole, or its row says that it is not; and what is not whole is counted as lost."""
    rows = {row.pk: row for row in Exchange.objects.select_related("message")}
    lost = sum(row.lost_calls + row.lost_bytes for row in JournalPosition.objects.all())
    for exchange, text in exchanges.items():
        row = rows.get(exchange)
        if row is None:
            assert lost, "a call is missing, and nothing is counted as lost"
        elif row.end_reason == "done":
            assert row.message is not None
            assert (row.message.content, row.message.status) == (text, "complete")
        else:
            assert lost, "a call is not whole, and nothing is counted as lost"
            assert row.end_reason in ("server_lost", "damaged")
            answer = row.message
            assert answer is None or (answer.status == "interrupted" and text.startswith(answer.content))
    assert not set(rows) - set(exchanges)
    assert not Message.objects.filter(kind="model_output", status="complete").exclude(content__in=exchanges.values())


@pytest.mark.parametrize("damage", DAMAGES)
@given(seed=st.integers(0, 2**32), is_half_read=st.booleans())
@settings(max_examples=example_count(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_gives_a_wrong_answer_or_a_silent_loss(
    damage: Damage, seed: int, is_half_read: bool, key: ApiKey
) -> None:
    chance = random.Random(seed)
    remove_everything()
    JournalPosition.objects.all().delete()
    with TemporaryDirectory() as folder:
        relay = Relay(Path(folder), key)
        exchanges = write_calls(relay)
        whole = segment(relay).read_bytes()
        if is_half_read:
            read_a_part(relay, whole, chance)
        data = bytearray(whole)
        damage(data, chance)
        segment(relay).write_bytes(data)
        for _ in range(2):
            relay.reborn()
            relay.digest()
        check_honest(exchanges)
        assert names(relay.folder) == [], "a damaged file stays in the journal"


def read_a_part(relay: Relay, whole: bytes, chance: random.Random) -> None:
    """A digester reads while the file is written; then both are gone."""
    path = segment(relay)
    path.write_bytes(whole[: chance.randrange(record_framing.START, len(whole))])
    with path.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        relay.digest()


def test_a_file_cut_at_any_byte_says_what_is_missing(relay: Relay) -> None:
    """The reader alone, at every single byte: too many for a database."""
    write_calls(relay)
    path = segment(relay)
    whole = path.read_bytes()
    places = record_starts(whole)
    for cut in range(0, len(whole), 1 if len(whole) < 5_000 else 7):
        path.write_bytes(whole[:cut])
        found = [record for _place, record in JournalReader(relay.folder).read()]
        lost = [record for record in found if isinstance(record, RecordsLost)]
        assert len(lost) == 1, cut
        assert lost[0].lost_bytes > 0
        assert len(found) - 1 == sum(end <= cut for end in places[1:])


def test_bytes_of_a_client_that_look_like_a_record_are_not_one(relay: Relay) -> None:
    """A request holds whole records of the same file; then the file is damaged before it."""
    exchanges = write_calls(relay)
    inner = segment(relay).read_bytes()[record_framing.START :]
    other = Relay(relay.folder, relay.key)
    holder = other.send(CHAT, json.dumps(question("hi")).encode() + inner)
    other.end(holder)
    other.journal.close()
    second = relay.folder / names(relay.folder)[1]
    data = bytearray(second.read_bytes())
    data[record_framing.START + 30] ^= 1  # in the head of the request
    second.write_bytes(data)
    relay.digest()
    check_honest(exchanges)
    assert Exchange.objects.count() == len(exchanges)
    assert JournalPosition.objects.get().lost_calls == 1


@pytest.mark.parametrize("how", ["flipped", "cut out"])
def test_an_answer_whose_middle_is_damaged_is_interrupted_before_it(relay: Relay, how: str) -> None:
    exchanges = write_calls(relay)
    data = bytearray(segment(relay).read_bytes())
    at = record_starts(bytes(data))
    (_, second) = list(exchanges)[:2]
    place = 4 + 4 + 1  # the second piece of the second reply
    if how == "flipped":
        data[at[place] + 60] ^= 1
    else:
        del data[at[place] : at[place + 1]]
    segment(relay).write_bytes(data)
    relay.digest()
    check_honest(exchanges)
    row = exchange_of(second)
    size = len(reply_of(exchanges[second]))
    assert (row.end_reason, row.metadata["reply_bytes"]) == ("damaged", size)
    assert 0 < row.metadata["missing_bytes"] < size
    assert row.message is not None
    gap = Message.objects.get(session=row.session, kind="gap")
    assert gap.content == f"{row.metadata['missing_bytes']:,} bytes of the reply were damaged on disk."
    assert (gap.parent_seq, gap.on_path) == (row.message.seq, True)
    assert Exchange.objects.filter(end_reason="done").count() == 3


def test_a_call_whose_beginning_is_cut_out_is_counted_as_lost(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    exchanges = write_calls(relay)
    data = bytearray(segment(relay).read_bytes())
    at = record_starts(bytes(data))
    del data[at[1] : at[2]]
    segment(relay).write_bytes(data)
    relay.digest()
    check_honest(exchanges)
    assert JournalPosition.objects.get().lost_calls == 1
    assert str(list(exchanges)[1]) in caplog.text


@pytest.mark.parametrize(
    "heading",
    [b"", b"parley journal 7\n", b"parlex journal 4 " + MAGIC[-9:], MAGIC.replace(b"4", b"5", 1), b"\0" * len(MAGIC)],
    ids=["cut off", "another number", "a letter", "another number with its checksum", "zeros"],
)
def test_a_file_with_a_damaged_first_line_is_counted_and_put_aside(
    relay: Relay, heading: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    exchanges = write_calls(relay)
    damaged = segment(relay)
    damaged.write_bytes(heading + damaged.read_bytes()[len(MAGIC) :])
    with caplog.at_level(logging.ERROR):
        relay.digest()
    check_honest(exchanges)
    row = JournalPosition.objects.get()
    assert row.lost_bytes > 0
    assert damaged.name in row.lost_why
    assert damaged.name in caplog.text
    assert damaged.with_name(f"{damaged.name}.0.damaged").exists()
    assert names(relay.folder) == []
    assert Exchange.objects.filter(end_reason="done").count() == 4


def test_a_file_of_which_nothing_is_left_is_counted(relay: Relay) -> None:
    exchanges = write_calls(relay)
    segment(relay).write_bytes(b"")
    relay.digest()
    check_honest(exchanges)
    assert (sessions(), names(relay.folder)) == ([], [])
