"""What a program is told of a run: every frame once and in order, whatever way it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from history.answers.assembly import Assembler
from history.answers.events import TextPiece, ToolCallPiece
from history.entries import ModelOutput, Text
from relay.consumers import program_events
from relay.consumers.following import Following, RunState
from relay.consumers.program_events import ProgramEvents
from relay.live.frames import LiveAnswer, pieces_of
from relay.live.run_task import PartialAnswer
from relay.models import Run
from relay.runtime.async_db import in_database
from tests.factories import chat_of
from tests.relay.conftest import Talk


def pieces(n: int, text: str, after: int = 5) -> dict[str, Any]:
    return {"kind": "pieces", "n": n, "exchange": "x", "after": after, "pieces": [["text", "t", text]]}


def opened(n: int, exchange: str = "x", after: int = 5) -> dict[str, Any]:
    return {"kind": "opened", "n": n, "exchange": exchange, "after": after}


def said(text: str) -> ModelOutput:
    return ModelOutput(parts=(Text(text=text),))


def noted(n: int, text: str, exchange: str = "x") -> RunState:
    return RunState(so_far=PartialAnswer(exchange, n, said(text), ("t",), 5))


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join(piece[2] for frame in frames for piece in frame.get("pieces", ()))


def test_frames_are_told_once_and_in_order() -> None:
    followed = Following(uuid4())
    assert [frame["n"] for frame in followed.take(opened(1)) + followed.take(pieces(2, "a"))] == [1, 2]
    assert followed.take(pieces(2, "a")) == followed.take(opened(1)) == []
    assert not followed.has_gap


def test_what_comes_after_a_gap_waits_and_what_was_noted_fills_it() -> None:
    followed = Following(uuid4())
    told = followed.catch_up(noted(5, "one "))
    assert followed.take(pieces(8, "four ")) == []
    assert followed.catch_up(noted(5, "one ")) == []
    assert list(followed.ahead) == [8]
    told += followed.catch_up(noted(7, "one two three "))
    assert [(frame.get("since"), frame["n"]) for frame in told] == [(0, 5), (5, 7), (None, 8)]
    assert text_of(told) == "one two three four "
    assert followed.ahead == {}
    assert followed.take(pieces(6, "two ")) == []


def test_an_answer_that_became_an_entry_unheard_is_told_to_its_end() -> None:
    followed = Following(uuid4(), leaf=5)
    told = followed.take(opened(1)) + followed.take(pieces(2, "one "))
    told += followed.catch_up(RunState(entries=[(7, said("one two"))]))
    assert [frame["kind"] for frame in told] == ["opened", "pieces", "pieces", "stored"]
    assert text_of(told) == "one two"
    assert (followed.leaf, followed.exchange) == (7, "")


def test_late_frames_of_an_answer_that_was_read_are_not_told_again() -> None:
    followed = Following(uuid4(), leaf=5)
    told = followed.take(opened(1)) + followed.take(pieces(2, "one "))
    told += followed.catch_up(RunState(entries=[(7, said("one two three"))]))
    told += followed.take(pieces(3, "two ")) + followed.take(pieces(4, "three"))
    told += followed.take({"kind": "stored", "n": 5, "exchange": "", "after": 7, "leaf": 7})
    assert text_of(told) == "one two three"
    [end] = followed.take({"kind": "ended", "n": 6, "outcome": "done", "leaf": 7})
    assert end["since"] == 2, "what a client was told last"


def test_the_end_of_an_answer_here_is_not_skipped_by_its_number() -> None:
    """The answer is stored, so the run has nothing in the making; its text is in the record alone."""
    followed = Following(uuid4(), leaf=5)
    told = followed.take(opened(1)) + followed.take(pieces(2, "one "))
    assert followed.take({"kind": "calling", "n": 9, "seq": 7, "count": 1}) == []
    told += followed.catch_up(RunState([(7, said("one two three"))], PartialAnswer("", 9, None, (), 7)))
    assert text_of(told) == "one two three"
    assert followed.take({"kind": "ended", "n": 10, "outcome": "done", "leaf": 7})[0]["since"] == 2


def test_each_answer_of_a_run_is_counted_anew() -> None:
    followed = Following(uuid4(), leaf=5)
    followed.catch_up(noted(5, "one"))
    followed.catch_up(RunState(entries=[(7, said("one"))]))
    assert text_of(followed.catch_up(RunState(so_far=PartialAnswer("y", 12, said("two"), ("t",), 7)))) == "two"


def test_where_nothing_more_will_come_the_gap_is_left_behind() -> None:
    followed = Following(uuid4(), n=3)
    followed.take({"kind": "calling", "n": 6, "exchange": "", "seq": 7, "count": 1})
    assert [frame["n"] for frame in followed.catch_up(RunState())] == [6]
    assert not followed.has_gap


def test_a_state_that_kept_changing_leaves_the_gap_open() -> None:
    followed = Following(uuid4(), n=3, leaf=5)
    followed.take(pieces(6, "late"))
    assert followed.catch_up(RunState(is_settled=False)) == []
    assert followed.has_gap


async def test_a_call_whose_arguments_have_not_begun_is_not_taken_for_one_without_any() -> None:
    begun = Assembler().feed_all([ToolCallPiece(part="c", call_id="1", name="sys_monitor")]).output()
    assert pieces_of(begun, ["c"]) == [["call", "c", "", "1", "sys_monitor"]]
    answer = await LiveAnswer.so_far(begun, run="r", exchange="x", n=1, names=["c"])
    await answer.hear({"n": 2, "pieces": [["call", "c", '{"metric": "cpu"}', "", ""]]})
    assert [part.text for part in answer.parts.values()] == ['{"metric": "cpu"}']
    followed = Following(uuid4())
    followed.catch_up(RunState(so_far=PartialAnswer("x", 1, begun, ("c",))))
    whole = Assembler().feed_all(
        [TextPiece(part="t", text=""), ToolCallPiece(part="c", call_id="1", name="sys_monitor", arguments='{"a": 1}')]
    )
    assert text_of(followed.catch_up(RunState(so_far=PartialAnswer("x", 2, whole.output(), ("c",))))) == '{"a": 1}'


class PlayedRun:
    """A run of two answers: its frames in order, and what this process or the database knows after each of them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.frames: list[dict[str, Any]] = []
        self.states: list[tuple[list[tuple[int, ModelOutput]], PartialAnswer, bool]] = []
        self.text, self.entries, leaf = "", list[tuple[int, ModelOutput]](), 5
        for answer, size in enumerate(sizes):
            exchange, text = f"x{answer}", ""
            self._add("opened", exchange, leaf, "")
            for word in range(size):
                text += f"a{answer}w{word} "
                self._add("pieces", exchange, leaf, text, pieces=[["text", "t", f"a{answer}w{word} "]])
            leaf += 2
            self.text += text
            self.entries = [*self.entries, (leaf, said(text))]
            self._add("stored", "", leaf, "", leaf=leaf)
            self._add("calling", "", leaf, "", seq=leaf, count=1)
        self._add("ended", "", leaf, "", outcome="done", leaf=leaf)

    def _add(self, kind: str, exchange: str, after: int, text: str, **fields: Any) -> None:
        n = len(self.frames) + 1
        self.frames.append({"kind": kind, "n": n, "exchange": exchange, "after": after, **fields})
        so_far = PartialAnswer(exchange, n, said(text) if text else None, ("t",) if text else (), after)
        self.states.append((self.entries, so_far, kind == "ended"))

    def here(self, n: int) -> RunState:
        entries, so_far, has_ended = self.states[n - 1]
        return self._ended(entries) if has_ended else RunState(entries, so_far)

    def in_database(self, n: int, *, noted_at: int) -> RunState:
        """After frame `n`, with the answer as it was noted a few frames before."""
        entries, so_far, has_ended = self.states[n - 1]
        if has_ended:
            return self._ended(entries)
        before = self.states[max(noted_at, 1) - 1][1]
        is_same = so_far.exchange and before.exchange == so_far.exchange
        old = before if is_same else PartialAnswer(so_far.exchange, 0, None, (), so_far.after)
        return RunState(entries, old if so_far.exchange else None, {"kind": "opened", "exchange": so_far.exchange})

    def _ended(self, entries: list[tuple[int, ModelOutput]]) -> RunState:
        return RunState(entries, ended={"kind": "ended", "outcome": "done"})


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=2),
    fates=st.lists(
        st.sampled_from(["arrives", "lost", "late", "twice", "read", "read here"]), min_size=20, max_size=20
    ),
    lag=st.integers(0, 3),
    start=st.integers(0, 12),
)
def test_whatever_is_lost_or_late_every_word_is_told_exactly_once(
    sizes: list[int], fates: list[str], lag: int, start: int
) -> None:
    run = PlayedRun(sizes)
    followed, told, text = Following(uuid4()), list[dict[str, Any]](), ""
    if 0 < start < len(run.frames):
        entries, so_far, _ = run.states[start - 1]
        text = "".join(output.text for _, output in entries)  # in the history of the session
        text += "".join(piece[2] for piece in followed.start_at(so_far))
    start = start if start < len(run.frames) else 0
    last, late = followed.n, list[dict[str, Any]]()
    for frame, fate in zip(run.frames[start:], fates, strict=False):
        if fate in ("arrives", "twice"):
            told += followed.take(frame) + (followed.take(frame) if fate == "twice" else [])
        elif fate == "late":
            late.append(frame)
        elif fate == "read":
            told += followed.catch_up(run.in_database(frame["n"], noted_at=frame["n"] - lag))
            told += [one for frame in late for one in followed.take(frame)]
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
    answer = LiveAnswer(run="r", exchange="x", n=1)
    await answer.hear(pieces(3, "two "))
    assert (answer.n, list(answer.ahead)) == (1, [3])
    await answer.hear(pieces(2, "one "))
    assert (answer.n, answer.ahead) == (3, {})
    [part] = answer.parts.values()
    assert part.text == "one two "


class Hearing(ProgramEvents):
    """A program without its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    async def tell(self, kind: str, **what: Any) -> None:
        self.heard.append(kind)


@pytest.mark.any_database
async def test_the_end_of_a_run_is_told_once_also_where_it_is_heard_and_looked_for_at_once(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_events, "LOOK_SECONDS", 0.0)  # whatever was heard, it has been silent since
    talk.session = await in_database(chat_of, talk.user, "Hello?", "Hello.")
    ended = {"session": talk.session.pk, "owner": talk.user, "origin": 1, "leaf": 2, "outcome": "done"}
    run = await in_database(lambda: Run.objects.create(**ended, ended_at=timezone.now()))
    program = Hearing()
    program.current = talk.session.pk
    program.following[run.pk] = Following(run.pk, leaf=2)
    async with program.turn:
        looking = asyncio.create_task(program._look())
        await asyncio.sleep(0)  # it has seen that the run is elsewhere,
        frame = {"type": "run.frame", "run": str(run.pk), "n": 1, "kind": "ended", "outcome": "done", "leaf": 2}
        await program.run_frame(frame)  # whose end comes before it may look
    await asyncio.wait_for(looking, 10)
    assert program.heard == ["run.ended"]
