"""Markdown that is still being written: finished blocks stay as they are, and all of them make the whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from history.markdown import render, split_blocks
from tests.factories import example_count

PIECES = [
    "a", "word ", "*b*", "**c**", "`d`", "中文。", "<b>", "&amp;", "[l](http://a.example)", "$x$", "\\(", "\\)",
    "\n", "\n", "\n\n", "\n\n", "\r\n", "\t", " ", "  ", "    ", "\u3000", "\f", "\x02", "\r",
    "- ", "- x\n", "* ", "+ ", "1. ", "1. y\n", "2) z\n", "    - n\n", "- [ ] t\n", "-", "1",
    "> ", "> q\n", ">", "# h\n", "## ", "---\n", "===\n", "* * *\n", "\n    c\n",
    "```\n", "```py\n", "~~~\n", "   ```\n", "```", "$$", "$$\n", "\\[\n", "\\]\n", "| a | b |\n|---|---|\n| 1 | 2 |\n",
]  # fmt: skip
DEFINITIONS = ["[^1]", "[^1]: note\n", "[l]", "[l]: http://b.example\n"]

texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
texts_with_definitions = st.lists(st.sampled_from(PIECES + DEFINITIONS), max_size=25).map("".join)


class BlockStream:
    """Text that comes in pieces: `feed` returns the blocks that have become finished."""

    def __init__(self) -> None:
        self.tail = ""

    def feed(self, more: str) -> tuple[str, ...]:
        split = split_blocks(self.tail + more)
        self.tail = split.tail
        return split.finished


def render_blocks(text: str, *, prefix: str = "") -> tuple[Sequence[str], str]:
    """The HTML of the finished blocks, and of the rest."""
    split = split_blocks(text)
    *finished, tail = (render(block, prefix=f"{prefix}{n}-") for n, block in enumerate([*split.finished, split.tail]))
    return finished, tail


def looks(html: str) -> str:
    """What is seen of it: the space between two elements is not."""
    return re.sub(r"\s+", " ", html).replace("> ", ">").replace(" <", "<")


@given(texts)
@settings(max_examples=example_count(500), deadline=None)
def test_blocks_rendered_one_by_one_look_like_the_whole(text: str) -> None:
    finished, tail = render_blocks(text)
    assert looks("".join([*finished, tail])) == looks(render(text))


@given(texts_with_definitions, st.data())
@settings(max_examples=example_count(300), deadline=None)
def test_a_finished_block_never_changes(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    earlier, later = split_blocks(text[:cut]), split_blocks(text)
    assert later.finished[: len(earlier.finished)] == earlier.finished


@given(texts_with_definitions, st.integers(1, 7))
@settings(max_examples=example_count(300), deadline=None)
def test_pieces_of_any_size_give_the_same_blocks(text: str, size: int) -> None:
    stream = BlockStream()
    finished = [block for place in range(0, len(text), size) for block in stream.feed(text[place : place + size])]
    assert tuple(finished) == split_blocks(text).finished
    assert stream.tail == split_blocks(text).tail


@pytest.mark.parametrize(
    ("text", "finished", "tail"),
    [
        ("One\n", [], "One\n"),
        ("One\n\n", ["One"], ""),
        ("One\n\nTwo", ["One"], "Two"),
        ("One\n  \n", ["One"], ""),
        ("# One\n\n", ["# One"], ""),
        ("```py\nx\n", [], "```py\nx\n"),
        ("```py\nx\n\ny\n```\n", ["```py\nx\n\ny\n```"], ""),
        ("One\n```py\nx\n", ["One"], "```py\nx\n"),
        ("One\n- a\n", ["One"], "- a\n"),
        ("- a\n\n", [], "- a\n\n"),
        ("- a\n\n1", [], "- a\n\n1"),
        ("- a\n\nN", ["- a"], "N"),
        ("- a\n\n  more\n\n- b\n\nNext\n", ["- a\n\n  more\n\n- b"], "Next\n"),
        ("- a\n\n  ```\n  x\n  ```\n\n- b", [], "- a\n\n  ```\n  x\n  ```\n\n- b"),
        ("> a\n\n", [], "> a\n\n"),
        ("> a\n\n> b\n\nN", ["> a", "> b"], "N"),
        ("    a\n\n    b\n\nN", ["    a\n\n    b"], "N"),
        ("|a|b|\n|-|-|\n|1|2|\n\n", ["|a|b|\n|-|-|\n|1|2|"], ""),
        ("$$\na\n- b\n$$\n\n", ["$$\na\n- b\n$$"], ""),
        ("[^1]: a\n\n    more\n\nN", ["[^1]: a\n\n    more"], "N"),
        ("- a\n\n[x]: http://a\n\n- b\n", ["- a"], "[x]: http://a\n\n- b\n"),
        ("One\n#", [], "One\n#"),
        ("# One\nTwo", ["# One"], "Two"),
        ("$$\na\n- b\n", [], "$$\na\n- b\n"),
        ("One\r\n\r\nTwo\r", ["One"], "Two\r"),
    ],
)
def test_where_blocks_end(text: str, finished: list[str], tail: str) -> None:
    split = split_blocks(text)
    assert list(split.finished) == finished
    assert split.tail == tail


def test_an_open_fence_is_shown_as_code_already() -> None:
    finished, tail = render_blocks("So:\n\n```python\nif x:")
    assert finished == ["<p>So:</p>"]
    assert '<span class="hl-keyword">if</span> x:' in tail


def test_footnotes_of_different_blocks_have_different_ids() -> None:
    finished, tail = render_blocks("[^1]: a\n\nText\n\n[^1]: b", prefix="m7-")
    assert 'id="m7-0-fn-1"' in finished[0]
    assert 'id="m7-2-fn-1"' in tail


def test_a_long_answer_in_small_pieces_is_read_in_pieces_not_again_and_again() -> None:
    """What is fed never meets what is finished, so a block costs what it costs however much stands before it."""
    stream = BlockStream()
    longest = 0
    for _ in range(300):
        for piece in ["Some words ", "and more.\n", "\n- item\n", "- item\n\n", "```\ncode\n", "```\n"]:
            stream.feed(piece)
            longest = max(longest, len(stream.tail))
    assert longest < 60
