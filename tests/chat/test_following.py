"""What a program is told of a run: every frame once and in order, whatever way it takes."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from history.assembly import Assembler
from history.entries import ModelOutput, Text
from history.events import TextPiece, ToolCallPiece
from relay.consumers import program_events
from relay.consumers.following import Following
from relay.consumers.program_events import ProgramEvents
from relay.database import in_database
from relay.live import LiveAnswer, pieces_of
from relay.live_runs import SoFar
from relay.models import Run
from tests.chat.conftest import Talk
from tests.talk import chat_of


def pieces(n: int, text: str) -> dict[str, Any]:
    return {"kind": "pieces", "n": n, "exchange": "x", "pieces": [["text", "t", text]]}


def opened(n: int, exchange: str = "x") -> dict[str, Any]:
    return {"kind": "opened", "n": n, "exchange": exchange}


def so_far(n: int, text: str, exchange: str = "x") -> SoFar:
    return SoFar(exchange, n, ModelOutput(parts=(Text(text=text),)), ("t",))


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join(piece[2] for frame in frames for piece in frame.get("pieces", ()))


def test_frames_in_order_are_told_at_once_and_a_repetition_is_not() -> None:
    followed = Following(uuid4())
    assert [frame["n"] for frame in followed.take(opened(1)) + followed.take(pieces(2, "a"))] == [1, 2]
    assert followed.take(pieces(2, "a")) == followed.take(opened(1)) == []
    assert not followed.has_gap


def test_what_comes_after_a_gap_waits_and_what_was_noted_fills_it() -> None:
    followed = Following(uuid4())
    told = followed.catch_up(so_far(5, "one "))
    assert followed.take(pieces(8, "four ")) == []
    assert followed.catch_up(so_far(5, "one ")) == []
    assert list(followed.ahead) == [8]
    told += followed.catch_up(so_far(7, "one two three "))
    assert [(frame.get("since"), frame["n"]) for frame in told] == [(0, 5), (5, 7), (None, 8)]
    assert text_of(told) == "one two three four "
    assert followed.ahead == {}
    assert followed.take(pieces(6, "two ")) == []


def test_an_answer_that_became_an_entry_unheard_is_told_to_its_end() -> None:
    followed = Following(uuid4())
    told = followed.take(opened(1)) + followed.take(pieces(2, "one "))
    told += followed.stored(7, ModelOutput(parts=(Text(text="one two"),)))
    assert [frame["kind"] for frame in told] == ["opened", "pieces", "pieces", "stored"]
    assert text_of(told) == "one two"
    assert (followed.leaf, followed.exchange) == (7, "")


def test_each_answer_of_a_run_is_counted_anew() -> None:
    followed = Following(uuid4())
    followed.catch_up(so_far(5, "one"))
    followed.stored(7, ModelOutput(parts=(Text(text="one"),)))
    assert text_of(followed.catch_up(so_far(12, "two", "y"))) == "two"


def test_where_nothing_more_will_come_the_gap_is_left_behind() -> None:
    followed = Following(uuid4(), n=3)
    followed.take({"kind": "calling", "n": 6, "exchange": ""})
    assert [frame["n"] for frame in followed.go_past_the_gap()] == [6]
    assert not followed.has_gap


def test_a_call_whose_arguments_have_not_begun_is_not_taken_for_one_without_any() -> None:
    begun = Assembler().feed_all([ToolCallPiece(part="c", call_id="1", name="sys_monitor")]).output()
    assert pieces_of(begun, ["c"]) == [["call", "c", "", "1", "sys_monitor"]]
    answer = LiveAnswer.so_far(begun, run="r", exchange="x", n=1, names=["c"])
    answer.hear({"n": 2, "pieces": [["call", "c", '{"metric": "cpu"}', "", ""]]})
    assert [part.text for part in answer.parts.values()] == ['{"metric": "cpu"}']
    followed = Following(uuid4())
    followed.catch_up(SoFar("x", 1, begun, ("c",)))
    whole = Assembler().feed_all(
        [TextPiece(part="t", text=""), ToolCallPiece(part="c", call_id="1", name="sys_monitor", arguments='{"a": 1}')]
    )
    assert text_of(followed.catch_up(SoFar("x", 2, whole.output(), ("c",)))) == '{"a": 1}'


def test_a_page_holds_frames_back_until_those_before_them_have_come() -> None:
    answer = LiveAnswer(run="r", exchange="x", n=1)
    answer.hear(pieces(3, "two "))
    assert (answer.n, list(answer.ahead)) == (1, [3])
    answer.hear(pieces(2, "one "))
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
