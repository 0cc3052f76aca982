"""Frame cursors: a program gets every frame once and in order, also after losses and delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from hypothesis import given, strategies as st

from history.answers.assembly import Assembler
from history.answers.events import TextPiece, ToolCallPiece
from history.entries import ModelOutput, Text
from relay.consumers.program_sessions import ProgramSessions
from relay.live.answer_html import AnswerCursor, PageCursor
from relay.live.frames import Piece, ProgramCursor, RunSnapshot, pieces_of
from relay.models import Run
from relay.runtime.async_db import in_database
from tests.factories import create_chat
from tests.relay.conftest import Talk


def pieces(n: int, text: str, after: int = 5) -> dict[str, Any]:
    return {"kind": "pieces", "n": n, "exchange": "x", "after": after, "pieces": [["text", "t", text]]}


def opened(n: int, exchange: str = "x", after: int = 5) -> dict[str, Any]:
    return {"kind": "opened", "n": n, "exchange": exchange, "after": after}


def entry(seq: int, text: str) -> tuple[int, list[Piece]]:
    return seq, pieces_of(ModelOutput(parts=(Text(text=text),)))


def snapshot_at(n: int, text: str, exchange: str = "x", after: int = 5) -> RunSnapshot:
    return RunSnapshot(n, exchange=exchange, pieces=[["text", "t", text]], after=after)


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join(piece[2] for frame in frames for piece in frame.get("pieces", ()))


def test_frames_are_told_once_and_in_order() -> None:
    followed = ProgramCursor(uuid4())
    assert [frame["n"] for frame in followed.receive(opened(1)) + followed.receive(pieces(2, "a"))] == [1, 2]
    assert followed.receive(pieces(2, "a")) == followed.receive(opened(1)) == []
    assert not followed.has_gap


def test_what_comes_after_a_gap_waits_and_what_was_noted_fills_it() -> None:
    followed = ProgramCursor(uuid4())
    told = followed.catch_up(snapshot_at(5, "one "))
    assert followed.receive(pieces(8, "four ")) == []
    assert followed.catch_up(snapshot_at(5, "one ")) == []
    assert list(followed.ahead) == [8]
    told += followed.catch_up(snapshot_at(7, "one two three "))
    assert [(frame.get("since"), frame["n"]) for frame in told] == [(0, 5), (5, 7), (None, 8)]
    assert text_of(told) == "one two three four "
    assert followed.ahead == {}
    assert followed.receive(pieces(6, "two ")) == []


def test_an_answer_that_became_an_entry_unheard_is_told_to_its_end() -> None:
    followed = ProgramCursor(uuid4(), leaf=5)
    told = followed.receive(opened(1)) + followed.receive(pieces(2, "one "))
    told += followed.catch_up(RunSnapshot(entries=[entry(7, "one two")]))
    assert [frame["kind"] for frame in told] == ["opened", "pieces", "pieces", "stored"]
    assert text_of(told) == "one two"
    assert (followed.leaf, followed.exchange) == (7, "")


def test_late_frames_of_an_answer_that_was_read_are_not_told_again() -> None:
    followed = ProgramCursor(uuid4(), leaf=5)
    told = followed.receive(opened(1)) + followed.receive(pieces(2, "one "))
    told += followed.catch_up(RunSnapshot(entries=[entry(7, "one two three")]))
    told += followed.receive(pieces(3, "two ")) + followed.receive(pieces(4, "three"))
    told += followed.receive({"kind": "stored", "n": 5, "exchange": "", "after": 7, "leaf": 7})
    assert text_of(told) == "one two three"
    [end] = followed.receive({"kind": "ended", "n": 6, "outcome": "done", "leaf": 7})
    assert end["since"] == 2, "what a client was told last"


def test_the_end_of_an_answer_here_is_not_skipped_by_its_number() -> None:
    """The answer is stored, so the run has nothing in the making; its text is in the record alone."""
    followed = ProgramCursor(uuid4(), leaf=5)
    told = followed.receive(opened(1)) + followed.receive(pieces(2, "one "))
    assert followed.receive({"kind": "calling", "n": 9, "seq": 7, "count": 1}) == []
    told += followed.catch_up(RunSnapshot(9, entries=[entry(7, "one two three")], after=7))
    assert text_of(told) == "one two three"
    assert followed.receive({"kind": "ended", "n": 10, "outcome": "done", "leaf": 7})[0]["since"] == 2


def test_each_answer_of_a_run_is_counted_anew() -> None:
    followed = ProgramCursor(uuid4(), leaf=5)
    followed.catch_up(snapshot_at(5, "one"))
    followed.catch_up(RunSnapshot(entries=[entry(7, "one")]))
    assert text_of(followed.catch_up(snapshot_at(12, "two", exchange="y", after=7))) == "two"


def test_where_nothing_more_will_come_the_gap_is_left_behind() -> None:
    followed = ProgramCursor(uuid4(), n=3)
    followed.receive({"kind": "calling", "n": 6, "exchange": "", "seq": 7, "count": 1})
    assert [frame["n"] for frame in followed.catch_up(RunSnapshot())] == [6]
    assert not followed.has_gap


def test_a_state_that_kept_changing_leaves_the_gap_open() -> None:
    followed = ProgramCursor(uuid4(), n=3, leaf=5)
    followed.receive(pieces(6, "late"))
    assert followed.catch_up(RunSnapshot(is_consistent=False)) == []
    assert followed.has_gap


async def test_a_call_whose_arguments_have_not_begun_is_not_taken_for_one_without_any() -> None:
    begun = Assembler().feed_all([ToolCallPiece(part="c", call_id="1", name="sys_monitor")]).output()
    assert pieces_of(begun, ["c"]) == [["call", "c", "", "1", "sys_monitor"]]
    snapshot = RunSnapshot(1, exchange="x", pieces=pieces_of(begun, ["c"]))
    answer = await AnswerCursor.from_snapshot(snapshot, run=uuid4())
    await answer.apply({"n": 2, "pieces": [["call", "c", '{"metric": "cpu"}', "", ""]]})
    assert [part.text for part in answer.parts.values()] == ['{"metric": "cpu"}']
    followed = ProgramCursor(uuid4())
    followed.catch_up(snapshot)
    whole = Assembler().feed_all(
        [TextPiece(part="t", text=""), ToolCallPiece(part="c", call_id="1", name="sys_monitor", arguments='{"a": 1}')]
    )
    snapshot = RunSnapshot(2, exchange="x", pieces=pieces_of(whole.output(), ["c"]))
    assert text_of(followed.catch_up(snapshot)) == '{"a": 1}'


class PlayedRun:
    """A run of two answers: its frames in order, and what this process or the database knows after each of them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.frames: list[dict[str, Any]] = []
        self.states: list[tuple[list[tuple[int, list[Piece]]], RunSnapshot, bool]] = []
        self.text, self.entries, leaf = "", list[tuple[int, list[Piece]]](), 5
        for answer, size in enumerate(sizes):
            exchange, text = f"x{answer}", ""
            self._add("opened", exchange, leaf, "")
            for word in range(size):
                text += f"a{answer}w{word} "
                self._add("pieces", exchange, leaf, text, pieces=[["text", "t", f"a{answer}w{word} "]])
            leaf += 2
            self.text += text
            self.entries = [*self.entries, entry(leaf, text)]
            self._add("stored", "", leaf, "", leaf=leaf)
            self._add("calling", "", leaf, "", seq=leaf, count=1)
        self._add("ended", "", leaf, "", outcome="done", leaf=leaf)

    def _add(self, kind: str, exchange: str, after: int, text: str, **fields: Any) -> None:
        n = len(self.frames) + 1
        self.frames.append({"kind": kind, "n": n, "exchange": exchange, "after": after, **fields})
        parts = [["text", "t", text]] if text else []
        so_far = RunSnapshot(n, exchange=exchange, pieces=parts, after=after)
        self.states.append((self.entries, so_far, kind == "ended"))

    def here(self, n: int) -> RunSnapshot:
        entries, so_far, has_ended = self.states[n - 1]
        return self._ended(entries) if has_ended else replace(so_far, entries=entries)

    def in_database(self, n: int, *, noted_at: int) -> RunSnapshot:
        """After frame `n`, with the answer as it was noted a few frames before."""
        entries, so_far, has_ended = self.states[n - 1]
        if has_ended:
            return self._ended(entries)
        before = self.states[max(noted_at, 1) - 1][1]
        exchange = so_far.exchange
        if not exchange:
            return RunSnapshot(entries=entries)
        old = before if before.exchange == exchange else RunSnapshot(0, exchange=exchange, after=so_far.after)
        return replace(old, entries=entries, role="executor")

    def _ended(self, entries: list[tuple[int, list[Piece]]]) -> RunSnapshot:
        return RunSnapshot(entries=entries, ended={"kind": "ended", "outcome": "done"})


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=2),
    fates=st.lists(
        st.sampled_from(["arrives", "lost", "late", "twice", "read", "read here"]), min_size=20, max_size=20
    ),
    lag=st.integers(0, 3),
    start=st.integers(0, 12),
)
def test_every_word_arrives_once_when_frames_are_lost_or_late(
    sizes: list[int], fates: list[str], lag: int, start: int
) -> None:
    run = PlayedRun(sizes)
    followed, told, text = ProgramCursor(uuid4()), list[dict[str, Any]](), ""
    if 0 < start < len(run.frames):
        entries, so_far, _ = run.states[start - 1]
        text = "".join(piece[2] for _, pieces in entries for piece in pieces)  # in the history of the session
        text += "".join(piece[2] for piece in followed.start_at(so_far))
    start = start if start < len(run.frames) else 0
    last, late = followed.n, list[dict[str, Any]]()
    for frame, fate in zip(run.frames[start:], fates, strict=False):
        if fate in ("arrives", "twice"):
            told += followed.receive(frame) + (followed.receive(frame) if fate == "twice" else [])
        elif fate == "late":
            late.append(frame)
        elif fate == "read":
            told += followed.catch_up(run.in_database(frame["n"], noted_at=frame["n"] - lag))
            told += [one for frame in late for one in followed.receive(frame)]
            late = []
        elif fate == "read here":
            told += followed.catch_up(run.here(frame["n"]))
    if not any(frame["kind"] == "ended" for frame in told):
        told += followed.catch_up(run.here(len(run.frames)))
    assert text + text_of(told) == run.text
    assert [frame["kind"] for frame in told].count("ended") == 1
    for frame in told:
        if "n" in frame:
            assert frame.get("since", frame["n"] - 1) == last, told
            last = frame["n"]


async def test_a_page_holds_frames_back_until_those_before_them_have_come() -> None:
    cursor = PageCursor(uuid4())
    answer = AnswerCursor(uuid4(), exchange="x", n=1)
    cursor.show(answer)
    assert await cursor.receive_changes(pieces(3, "two ")) is None
    assert (answer.n, list(cursor.ahead)) == (1, [3])
    changes = await cursor.receive_changes(pieces(2, "one "))
    assert [change.n for change in changes or ()] == [2, 3]
    assert (answer.n, cursor.n, cursor.ahead) == (3, 3, {})
    [part] = answer.parts.values()
    assert part.text == "one two "
    assert await cursor.receive_changes(pieces(2, "one ")) == []


async def test_pages_that_show_the_same_answer_share_its_changes() -> None:
    answer, run = AnswerCursor(uuid4(), exchange="x", n=1), uuid4()
    first, second = PageCursor(run), PageCursor(run)
    for cursor in (first, second):
        cursor.show(answer)
    [change] = await first.receive_changes(pieces(2, "one ")) or []
    assert await second.receive_changes(pieces(2, "one ")) == [change]
    assert [part.text for part in answer.parts.values()] == ["one "]


async def test_a_gap_on_a_page_is_filled_from_a_snapshot_and_the_frames_that_wait() -> None:
    cursor = PageCursor(uuid4())
    cursor.show(AnswerCursor(uuid4(), exchange="x", n=1))
    assert await cursor.receive_changes(pieces(4, "three")) is None
    answer = await cursor.resume_answer(snapshot_at(3, "one two "))
    assert (answer.n, cursor.n, cursor.has_gap) == (4, 4, False)
    assert [part.text for part in answer.parts.values()] == ["one two three"]


class RecordingProgram(ProgramSessions):
    """A program without its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.cursors, self.done = {}, set()
        self.frames: list[str] = []

    async def check_user(self) -> None:
        """The user is signed in."""

    async def send_event(self, kind: str, **fields: Any) -> None:
        self.frames.append(kind)


@pytest.mark.any_database
async def test_the_end_of_a_lost_run_is_sent_once_also_if_its_frame_comes_late(talk: Talk) -> None:
    talk.session = await in_database(create_chat, talk.user, "Hello?", "Hello.")
    ended = {"session": talk.session, "owner": talk.user, "origin": 1, "leaf": 2, "outcome": "lost"}
    run = await in_database(lambda: Run.objects.create(**ended, ended_at=timezone.now()))
    program = RecordingProgram()
    program.user, program.api_key, program.current = talk.user, None, talk.session.pk
    program.cursors[run.pk] = ProgramCursor(run.pk, leaf=2)
    await program.session_changed({})
    frame = {"type": "run.frame", "run": str(run.pk), "n": 1, "kind": "ended", "outcome": "lost", "leaf": 2}
    await program.run_frame(frame)
    assert program.frames == ["session.changed", "run.ended"]
