"""The relay's journal: acknowledged records survive crashes, and losses are counted."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from relay.gateway.journal import record_framing, writer as journals
from relay.gateway.journal.reader import JournalReader, read
from relay.gateway.journal.records import (
    Attempt,
    CallAccepted,
    CallEnded,
    Record,
    RecordsLost,
    ReplyBytes,
    decode_record,
    encode_header,
    encode_reply_header,
    without_credentials,
)
from relay.gateway.journal.segments import MAGIC, heading, is_written, names, writer_of
from relay.gateway.journal.writer import Journal
from tests.relay.gateway.writer import accept


def ended(exchange: UUID, reason: str = "done") -> CallEnded:
    return CallEnded(exchange=exchange, at=time.time(), reason=reason, status=200)


def records_in(folder: Path) -> list[Record]:
    return [record for _place, record in read(folder)]


def write_one(journal: Journal, body: bytes = b"{}") -> UUID:
    exchange = uuid4()
    accept(journal, exchange, body)
    journal.reply(exchange, b"hello")
    journal.end(ended(exchange))
    return exchange


texts = st.text(max_size=30)
moments = st.floats(min_value=0, max_value=4e9)
pairs = st.lists(st.tuples(texts, texts), max_size=3)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        CallAccepted,
        exchange=st.uuids(),
        at=moments,
        key=st.integers(0, 2**40),
        owner=st.integers(0, 2**40),
        recording=st.sampled_from(["full", "redacted"]),
        dialect=texts,
        path=texts,
        query=texts,
        headers=pairs,
        body=st.binary(max_size=200),
        model=texts,
        stream=st.booleans(),
        session=st.none() | st.uuids(),
        new_session=st.booleans(),
    ),
    st.builds(ReplyBytes, exchange=st.uuids(), at=moments, data=st.binary(max_size=200), offset=st.integers(0, 2**40)),
    st.builds(
        CallEnded,
        exchange=st.uuids(),
        at=moments,
        reason=texts,
        status=st.integers(0, 599),
        first_byte_at=st.none() | moments,
        attempts=st.lists(st.builds(Attempt, texts, st.integers(0, 599), moments, texts), max_size=2),
        response_headers=pairs,
        usage_hint=st.dictionaries(texts, st.integers(), max_size=2),
        reply=st.binary(max_size=200),
    ),
    st.builds(RecordsLost, at=moments, calls=st.integers(0, 9), lost_bytes=st.integers(0, 9), why=texts),
)


def payload_of(record: Record) -> record_framing.Payload:
    match record:
        case ReplyBytes():
            return encode_reply_header(record.exchange, record.at, offset=record.offset), record.data
        case CallAccepted():
            return encode_header(replace(record, body=b"")), record.body
        case CallEnded():
            return encode_header(replace(record, reply=b"")), record.reply
    return encode_header(record), b""


def file_of(written: list[Record], *, name: str = "1.journal") -> tuple[bytes, list[int]]:
    """A whole segment as the journal writes it, and where each of its records ends."""
    data, ends, calls = b"", [], 0
    for record in written:
        data += framed(record, name, position=record_framing.START + len(data), calls=calls)
        calls += isinstance(record, CallAccepted)
        ends.append(record_framing.START + len(data))
    return MAGIC + record_framing.pack_counts(record_framing.START + len(data), calls) + data, ends


def framed(record: Record, segment: str, *, position: int, calls: int) -> bytes:
    payload, mark = b"".join(payload_of(record)), record_framing.mark_of(segment)
    return record_framing.pack_frame([payload], mark, length=len(payload), position=position, calls=calls) + payload


def read_back(record: Record) -> Record:
    return decode_record(memoryview(b"".join(payload_of(record))))


class TestRecords:
    @given(records)
    def test_every_record_comes_back_as_it_was(self, record: Record) -> None:
        assert read_back(record) == record

    def test_half_a_character_of_a_client_comes_back_too(self) -> None:
        record = CallEnded(exchange=uuid4(), at=1.5, reason="upstream_error", error="half \ud800")
        assert read_back(record) == record

    def test_a_field_of_a_later_version_is_left_out(self) -> None:
        told = b'{"at":1.5,"calls":2,"lost_bytes":3,"why":"full","unheard_of":[1]}'
        payload = b"L" + len(told).to_bytes(4, "little") + told
        assert decode_record(memoryview(payload)) == RecordsLost(at=1.5, calls=2, lost_bytes=3, why="full")

    @given(written=st.lists(records, max_size=6), data=st.data())
    def test_a_segment_cut_at_any_byte_gives_the_records_that_are_whole(
        self, written: list[Record], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("cut")
        whole, ends = file_of(written)
        cut = data.draw(st.integers(0, len(whole)))
        (folder / "1.journal").write_bytes(whole[:cut])
        assert records_in(folder) == [record for record, end in zip(written, ends, strict=True) if end <= cut]

    @given(written=st.lists(records, min_size=1, max_size=4), data=st.data())
    def test_a_flipped_bit_costs_one_record_and_never_gives_a_wrong_one(
        self, written: list[Record], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("flip")
        whole = bytearray(file_of(written)[0])
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
        (folder / "1.journal").write_bytes(whole)
        read = [record for _place, record in JournalReader(folder).read()]
        lost = [one for one in read if isinstance(one, RecordsLost) and one.is_damage]
        found = [one for one in read if one not in lost]
        assert (len(lost), len(written) - len(found)) == (1, int(at >= record_framing.START))
        assert not [record for record in found if record not in written]


class TestWriting:
    def test_a_call_reads_back_in_the_order_in_which_it_happened(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path / "journal")
        exchange = write_one(journal, body=b'{"messages": []}')
        first, second = records_in(tmp_path / "journal")
        assert isinstance(first, CallAccepted)
        assert (first.exchange, first.body, first.body_size) == (exchange, b'{"messages": []}', 16)
        assert isinstance(second, CallEnded)
        assert (second.reason, second.reply, second.reply_size, second.lost_bytes) == ("done", b"hello", 5, 0)

    def test_files_are_private(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            write_one(Journal(tmp_path / "journal"))
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700
        (segment,) = names(tmp_path / "journal")
        assert stat.S_IMODE((tmp_path / "journal" / segment).stat().st_mode) == 0o600

    def test_credentials_are_no_part_of_a_record(self) -> None:
        headers = [("authorization", "Bearer hidden-1"), ("x-api-key", "hidden-2"), ("user-agent", "curl")]
        assert without_credentials(headers) == [("user-agent", "curl")]

    @pytest.mark.parametrize(
        ("recording", "kept", "not_kept"),
        [
            ("full", [b"question", b"answer"], []),
            ("redacted", [b"question", b"answer"], []),
            ("no_replies", [b"question"], [b"answer"]),
            ("metadata", [], [b"question", b"answer"]),
        ],
    )
    def test_the_recording_mode_is_obeyed_before_anything_is_on_disk(
        self, tmp_path: Path, recording: str, kept: list[bytes], not_kept: list[bytes]
    ) -> None:
        journal, exchange = Journal(tmp_path), uuid4()
        assert accept(journal, exchange, b"question", recording=recording)
        journal.reply(exchange, b"answer")
        journal.end(ended(exchange))
        (segment,) = names(tmp_path)
        on_disk = (tmp_path / segment).read_bytes()
        assert all(word in on_disk for word in kept)
        assert not any(word in on_disk for word in not_kept)
        first, *_, last = records_in(tmp_path)
        assert isinstance(first, CallAccepted)
        assert isinstance(last, CallEnded)
        assert (first.body_size, last.reply_size) == (8, 6)

    def test_nothing_at_all_is_written_where_recording_is_off(self, tmp_path: Path) -> None:
        journal, exchange = Journal(tmp_path / "journal"), uuid4()
        assert not accept(journal, exchange, recording="off")
        journal.reply(exchange, b"answer")
        journal.end(ended(exchange))
        assert not (tmp_path / "journal").exists()
        assert journal.unreported.calls == 0

    async def test_bytes_that_wait_are_written_within_half_a_second_without_another_call(self, tmp_path: Path) -> None:
        journal, exchange = Journal(tmp_path), uuid4()
        accept(journal, exchange)
        journal.reply(exchange, b"a")
        journal.reply(exchange, b"b")
        assert len(records_in(tmp_path)) == 1
        await asyncio.sleep(0.5)
        _first, gathered = records_in(tmp_path)
        assert isinstance(gathered, ReplyBytes)
        assert gathered.data == b"ab"
        journal.close()

    def test_many_bytes_are_written_at_once(self, tmp_path: Path) -> None:
        journal, exchange = Journal(tmp_path), uuid4()
        accept(journal, exchange)
        journal.reply(exchange, b"x" * 70_000)
        assert len(records_in(tmp_path)) == 2

    def test_a_second_end_and_bytes_after_the_end_are_passed_over(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path)
        exchange = write_one(journal)
        journal.reply(exchange, b"late")
        journal.end(ended(exchange, "client_gone"))
        assert len(records_in(tmp_path)) == 2


class TestSegments:
    def test_a_full_segment_is_followed_by_another_and_read_in_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journals, "SEGMENT_BYTES", 2_000)
        journal = Journal(tmp_path)
        written = [write_one(journal, body=b"x" * 700) for _ in range(6)]
        assert len(names(tmp_path)) > 2
        assert len({writer_of(name) for name in names(tmp_path)}) == 1
        assert [record.exchange for record in records_in(tmp_path) if isinstance(record, CallAccepted)] == written

    def test_several_processes_are_read_in_the_order_of_time(self, tmp_path: Path) -> None:
        here, there = Journal(tmp_path), Journal(tmp_path)
        written = [write_one(journal) for journal in (here, there, there, here, there, here)]
        assert len(names(tmp_path)) == 2
        assert [record.exchange for record in records_in(tmp_path) if isinstance(record, CallAccepted)] == written

    def test_a_clock_that_is_set_back_changes_the_order_of_no_writer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, there, exchange, now = Journal(tmp_path), Journal(tmp_path), uuid4(), time.time()
        accept(here, exchange)
        monkeypatch.setattr(time, "time_ns", lambda: int((now - 100) * 1e9))
        here._begin_segment()
        here.end(replace(ended(exchange), at=now - 100))
        write_one(there)
        assert len(names(tmp_path)) == 3
        told = [record for record in records_in(tmp_path) if isinstance(record, (CallAccepted, CallEnded))]
        assert [type(record) for record in told if record.exchange == exchange] == [CallAccepted, CallEnded]

    def test_a_reader_gives_each_record_once_and_waits_for_half_written_ones(self, tmp_path: Path) -> None:
        journal, reader = Journal(tmp_path), JournalReader(tmp_path)
        write_one(journal)
        assert len(list(reader.read())) == 2
        assert list(reader.read()) == []
        (segment,) = names(tmp_path)
        size = (tmp_path / segment).stat().st_size
        late = framed(ended(uuid4()), segment, position=size, calls=1)
        with (tmp_path / segment).open("ab") as file:
            file.write(late[:20])
            file.flush()
            assert list(reader.read()) == []
            file.write(late[20:])
        assert len(list(reader.read())) == 1

    def test_a_reader_that_stops_half_way_goes_on_there(self, tmp_path: Path) -> None:
        here, there = Journal(tmp_path), Journal(tmp_path)
        for journal in (here, there, here):
            write_one(journal)
        reader = JournalReader(tmp_path)
        found = []
        for place, _record in reader.read():
            found.append(place)
            if len(found) == 3:
                break
        found += [place for place, _record in reader.read()]
        assert len(found) == len(set(found)) == 6

    def test_digested_segment_is_removed_once_it_has_no_writer(self, tmp_path: Path) -> None:
        journal, reader = Journal(tmp_path), JournalReader(tmp_path)
        write_one(journal)
        (segment,) = names(tmp_path)
        assert is_written(tmp_path / segment)
        list(reader.read())
        reader.remove_all_but(())
        assert names(tmp_path) == [segment]
        assert reader.writers_gone() == set()
        journal.close()
        assert not is_written(tmp_path / segment)
        list(reader.read())
        assert reader.writers_gone() == {writer_of(segment)}
        reader.remove_all_but(())
        assert names(tmp_path) == []

    def test_what_is_still_needed_stays_and_is_where_the_next_reader_begins(self, tmp_path: Path) -> None:
        journal, reader = Journal(tmp_path), JournalReader(tmp_path)
        write_one(journal)
        second = write_one(journal)
        journal.close()
        (segment,) = names(tmp_path)
        places = [place for place, _record in reader.read()]
        needed = {segment: places[2].start}
        reader.remove_all_but(needed)
        assert names(tmp_path) == [segment]
        again = [record for _place, record in JournalReader(tmp_path, {**reader.read_to, **needed}).read()]
        assert len(again) == 2
        assert isinstance(again[0], CallAccepted)
        assert again[0].exchange == second

    @pytest.mark.parametrize(
        "first_line", [b"parley journal 1\n", b"parley journal 2\n", heading(3), b"another file\n"]
    )
    def test_a_segment_of_an_unknown_format_is_put_aside_and_reported(self, tmp_path: Path, first_line: bytes) -> None:
        content = first_line + b"".join(payload_of(ended(uuid4())))
        (tmp_path / "1-old.journal").write_bytes(content)
        reader = JournalReader(tmp_path)
        ((_place, lost),) = reader.read()
        assert isinstance(lost, RecordsLost)
        assert lost.is_damage
        assert lost.lost_bytes >= len(content)
        reader.remove_all_but(())
        (aside,) = tmp_path.iterdir()
        assert aside.suffix == ".damaged"
        assert aside.read_bytes() == content

    def test_a_segment_of_a_later_version_is_left_to_it(self, tmp_path: Path) -> None:
        (tmp_path / "1-new.journal").write_bytes(heading(9) + b"anything")
        reader = JournalReader(tmp_path)
        assert list(reader.read()) == []
        reader.remove_all_but(())
        assert names(tmp_path) == ["1-new.journal"]

    async def test_an_idle_segment_is_left_to_its_readers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journals, "IDLE_SECONDS", 0.1)
        journal = Journal(tmp_path)
        write_one(journal)
        (segment,) = names(tmp_path)
        await asyncio.sleep(0.6)
        assert not is_written(tmp_path / segment)
        write_one(journal)
        assert len(records_in(tmp_path)) == 4
        journal.close()


class TestTrouble:
    def test_full_journal_counts_losses_and_reports_them_once_there_is_space(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path, most_bytes=10_000)
        write_one(journal, body=b"x" * 8_000)
        lost = uuid4()
        assert not accept(journal, lost, b"x" * 5_000)
        journal.reply(lost, b"unheard")
        journal.end(ended(lost))
        assert (journal.unreported.calls, journal.unreported.lost_bytes) == (1, 5_000)
        journal.most_bytes = 100_000
        time.sleep(0.3)
        write_one(journal)
        told = [record for record in records_in(tmp_path) if isinstance(record, RecordsLost)]
        assert [(record.calls, record.lost_bytes) for record in told] == [(1, 5_000)]
        assert lost not in {record.exchange for record in records_in(tmp_path) if isinstance(record, CallAccepted)}

    async def test_end_that_did_not_fit_is_written_once_there_is_space(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(journals, "IDLE_SECONDS", 0.1)
        monkeypatch.setattr(journals, "MEASURE_SECONDS", 0.1)
        journal, reader, exchange = Journal(tmp_path), JournalReader(tmp_path), uuid4()
        accept(journal, exchange)
        journal.most_bytes = 1
        await asyncio.sleep(0.2)
        journal.end(ended(exchange))
        await asyncio.sleep(0.6)
        assert len(list(reader.read())) == 1
        assert reader.writers_gone() == set()
        assert [record.levelname for record in caplog.records] == ["ERROR"], "told once, however often it is tried"
        journal.most_bytes = 100_000
        await asyncio.sleep(0.6)
        ((_place, end),) = reader.read()
        assert isinstance(end, CallEnded)
        journal.close()

    def test_a_reply_that_did_not_fit_keeps_its_beginning_and_a_note(self, tmp_path: Path) -> None:
        journal, exchange = Journal(tmp_path, most_bytes=100_000), uuid4()
        accept(journal, exchange)
        journal.reply(exchange, b"a" * 70_000)
        journal.reply(exchange, b"b" * 70_000)
        journal.reply(exchange, b"c")
        journal.end(ended(exchange))
        _accepted, kept, end = records_in(tmp_path)
        assert isinstance(kept, ReplyBytes)
        assert kept.data == b"a" * 70_000
        assert isinstance(end, CallEnded)
        assert (end.reply_size, end.lost_bytes) == (140_001, 70_001)

    def test_a_full_disk_leaves_whole_records_and_what_was_lost_is_counted(self, tmp_path: Path) -> None:
        process = subprocess.run(
            [sys.executable, "-m", "tests.relay.gateway.writer", str(tmp_path), "--full"],
            capture_output=True,
            text=True,
            check=True,
        )
        *said, counted = process.stdout.splitlines()
        kept = {UUID(line.split()[0]) for line in said if line.endswith("kept")}
        found = records_in(tmp_path)
        assert {record.exchange for record in found if isinstance(record, CallAccepted)} == kept
        assert {record.exchange for record in found if isinstance(record, CallEnded)} == kept
        assert len(kept) > 3
        assert counted.startswith("2 calls")
        assert sum(record.calls for record in found if isinstance(record, RecordsLost)) == 2

    def test_kill_9_of_the_writer_loses_nothing_that_was_acknowledged(self, tmp_path: Path) -> None:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.relay.gateway.writer", str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(400)]
            (segment,) = names(tmp_path)
            assert is_written(tmp_path / segment)
            process.send_signal(signal.SIGKILL)
        assert not is_written(tmp_path / segment)
        acknowledged = {UUID(line.split()[0]) for line in said[1:]}
        found = records_in(tmp_path)
        assert acknowledged <= {record.exchange for record in found if isinstance(record, CallEnded)}
        endless = UUID(said[0].split()[0])
        assert any(isinstance(record, ReplyBytes) and record.exchange == endless for record in found)
        assert not any(isinstance(record, CallEnded) and record.exchange == endless for record in found)
