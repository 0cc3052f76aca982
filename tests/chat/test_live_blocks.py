"""The text of an answer on its way: finished blocks are rendered once and stay, only the open end changes."""

from __future__ import annotations

from relay.live import Grown, LiveAnswer

ANSWER = "One.\n\n- a\n\n- b\n\n```python\nif x:\n\n    pass\n```\nTwo[^1].\n\n[^1]: Note"


def growing(text: str, *, size: int) -> list[Grown]:
    answer = LiveAnswer(run="r", exchange="e", n=0)
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    return [
        answer.advance({"n": n, "pieces": [["text", "p", piece]]}).grown[0] for n, piece in enumerate(pieces, start=1)
    ]


def test_a_list_and_code_are_one_block_each_however_they_come() -> None:
    for size in (1, 3, 1000):
        blocks = [block for grown in growing(ANSWER, size=size) for block in grown.blocks]
        assert blocks[0] == "<p>One.</p>"
        assert blocks[1].count("<li>") == 2
        assert '<span class="hl-keyword">if</span>' in blocks[2]
        assert blocks[3:] == ["<p>Two[^1].</p>"]


def test_an_open_end_is_shown_and_goes_when_its_block_is_finished() -> None:
    steps = growing("One.\n\nTwo", size=1)
    assert steps[3].tail_html == "<p>One.</p>"
    assert steps[5].blocks == ("<p>One.</p>",)
    assert steps[5].tail_html == ""
    assert steps[-1].tail_html == "<p>Two</p>"


def test_a_note_of_a_live_answer_has_an_id_that_no_finished_one_has() -> None:
    assert 'id="live-0-4-fn-1"' in growing(ANSWER, size=5)[-1].tail_html
