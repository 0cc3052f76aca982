"""Characters that come in two surrogates are whole before anybody sees them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from history.answers.assembly import Assembler
from history.answers.events import AnswerEnded, ReasoningPiece, SurrogateJoiner, TextPiece

pytestmark = pytest.mark.no_database


def joined(*texts: str) -> list[str]:
    surrogates = SurrogateJoiner()
    pieces = [surrogates.join(TextPiece(part="t", text=text)) for text in texts]
    return [piece.text for piece in [*pieces, *surrogates.rest()] if isinstance(piece, TextPiece)]


def test_the_first_half_waits_for_the_second() -> None:
    assert joined("a\ud83d", "\ude00b") == ["a", "😀b"]
    assert joined("\ud83d", "\ude00") == ["", "😀"]


def test_what_stays_alone_comes_in_its_place_or_at_the_end() -> None:
    assert joined("a\ud83d", "b") == ["a", "\ud83db"]
    assert joined("a", "b\ud83d") == ["a", "b", "\ud83d"]


def test_halves_of_different_parts_do_not_meet() -> None:
    surrogates = SurrogateJoiner()
    surrogates.join(TextPiece(part="t", text="\ud83d"))
    thought = surrogates.join(ReasoningPiece(part="t", text="\ude00"))
    assert isinstance(thought, ReasoningPiece)
    assert thought.text == "\ude00"
    assert surrogates.join(AnswerEnded(reason="stop")) == AnswerEnded(reason="stop")
    assert [piece.part for piece in surrogates.rest() if isinstance(piece, TextPiece)] == ["t"]


@given(st.lists(st.text(alphabet=st.characters(codec=None), max_size=4), max_size=8))
def test_nothing_is_added_and_nothing_is_lost_wherever_it_is_cut(texts: list[str]) -> None:
    surrogates, assembler = SurrogateJoiner(), Assembler()
    for text in texts:
        assembler.feed(surrogates.join(TextPiece(part="t", text=text)))
    assembler.feed_all(surrogates.rest())
    whole = "".join(texts)
    assert assembler.output().text.encode("utf-16", "surrogatepass") == whole.encode("utf-16", "surrogatepass")
