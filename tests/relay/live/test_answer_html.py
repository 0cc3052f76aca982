"""The text of an answer on its way: finished blocks are rendered once and stay, only the open end changes."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any
from uuid import uuid4

import pytest
from django.utils.html import escape
from hypothesis import given, strategies as st

from bench.growth import assert_linear
from history.markdown import cache, render, split_blocks
from relay.live import answer_html
from relay.live.answer_html import LONG_TAIL, MAX_CHARS_ON_LOOP, AnswerCursor, LivePart, PartUpdate, render_block

ANSWER = "One.\n\n- a\n\n- b\n\n```python\nif x:\n\n    pass\n```\nTwo[^1].\n\n[^1]: Note"


def growing(text: str, *, size: int) -> list[PartUpdate]:
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    return asyncio.run(written(pieces))[1]


async def written(pieces: list[str]) -> tuple[LivePart | None, list[PartUpdate]]:
    answer = AnswerCursor(uuid4(), exchange="e", n=0)
    grown: list[PartUpdate] = []
    for n, piece in enumerate(pieces, start=1):
        change = await answer.apply({"n": n, "pieces": [["text", "p", piece]]})
        assert change is not None
        grown += change.updates
    return next(iter(answer.parts.values()), None), grown


def html_of(grown: PartUpdate) -> str:
    assert grown.tail is not None
    return grown.tail.before + grown.tail.after


def test_a_list_and_code_are_one_block_each_however_they_come() -> None:
    for size in (1, 3, 1000):
        blocks = [block for grown in growing(ANSWER, size=size) for block in grown.blocks]
        assert blocks[0] == "<p>One.</p>"
        assert blocks[1].count("<li>") == 2
        assert '<span class="hl-keyword">if</span>' in blocks[2]
        assert blocks[3:] == ["<p>Two[^1].</p>"]


def test_an_open_end_is_shown_and_goes_when_its_block_is_finished() -> None:
    steps = growing("One.\n\nTwo", size=1)
    assert html_of(steps[3]) == "<p>One.</p>"
    assert steps[5].blocks == ("<p>One.</p>",)
    assert html_of(steps[5]) == ""
    assert html_of(steps[-1]) == "<p>Two</p>"


def test_a_note_of_a_live_answer_has_an_id_that_no_finished_one_has() -> None:
    assert 'id="live-0-4-fn-1"' in html_of(growing(ANSWER, size=5)[-1])


PROSE = [
    "Some plain words that go on and on, (in brackets), until the end of the line.",
    "Words with **bold ones** and `code` and [a link](https://a.example) and then more plain words.",
    "- an item of a list that goes on\n- another one **here**\n  1. and a nested one with words",
    "> a quotation of several words\n> and its second line of words\n\nand what follows it",
    "# A heading of some words\nand text right under it, a bit longer",
    "| a | b |\n|---|---|\n| one cell | another cell of words |\n",
    "```python\nif this_is_code:\n    pass with many words in it\n```\nand then words again",
    "A formula $x + y$ and a price of $5 and more words, and 2 < 3 & more of them",
    "中文的句子也一样，一个字一个字地来，直到这一行的末尾。",
]


class Shown:
    """What a page has of one text: blocks, and an open end that is replaced or written behind."""

    def __init__(self) -> None:
        self.blocks, self.before, self.words, self.after = "", "", "", ""
        self.rendered = 0

    def put(self, grown: PartUpdate) -> None:
        if grown.tail is None:
            self.words += escape(grown.text)
            return
        self.rendered += 1
        self.blocks += "".join(grown.blocks)
        self.before, self.words, self.after = grown.tail.before, grown.tail.space, grown.tail.after

    @property
    def html(self) -> str:
        return self.before + self.words + self.after


def without_gaps(html: str) -> str:
    """As a browser shows it: no space at the end of a paragraph or an item. Code may still be without highlighting."""
    plain = re.sub(r'<span class="hl-[a-z]+">([^<]*)</span>', r"\1", html)
    return re.sub(r"\s*(</(?:p|li|code)>)", r"\1", plain)


@pytest.mark.parametrize("text", PROSE)
@pytest.mark.parametrize("size", [1, 4, 9])
def test_words_that_are_put_behind_the_open_end_look_as_if_all_of_it_was_rendered(text: str, size: int) -> None:
    shown, so_far = Shown(), ""
    for grown in growing(text, size=size):
        shown.put(grown)
        so_far += text[len(so_far) : len(so_far) + size]
        split = split_blocks(so_far)
        number = len(split.finished)
        whole = render(split.tail, prefix=f"live-0-{number}-") if split.tail.strip() else ""
        assert without_gaps(shown.html) == without_gaps(whole), so_far


def test_most_words_are_not_rendered_again_and_again() -> None:
    shown = Shown()
    for grown in growing("plain words and **some** bold ones in between, and more plain ones. " * 20, size=5):
        shown.put(grown)
    assert shown.rendered < 90


@given(
    st.lists(
        st.sampled_from([*" \n*_`#>-1.)([]|~$\\&ab中:/@", "word ", "another ", "\n\n", "http", "www."]), max_size=60
    )
)
def test_the_last_rendering_of_a_block_is_complete(pieces: list[str]) -> None:
    part, _ = asyncio.run(written(pieces))
    whole = split_blocks("".join(pieces))
    assert part is None or (tuple(part.blocks), part.text) == (
        tuple(render_block(block, index=0, number=number) for number, block in enumerate(whole.finished)),
        whole.tail,
    )


@given(st.lists(st.sampled_from([*"*_`[]()$\\&;:/@.x中", "word", " ", "http", "www.", "**", "amp"]), max_size=40))
def test_words_put_behind_a_paragraph_look_as_if_it_was_rendered_whole(pieces: list[str]) -> None:
    shown, text = Shown(), "This is a paragraph "
    for grown in asyncio.run(written([text, *pieces]))[1]:
        shown.put(grown)
    assert without_gaps(shown.html) == without_gaps(render(text + "".join(pieces), prefix="live-0-0-"))


LONG_BLOCKS = {
    "list": "- an item with **strong** words and `code`\n",
    "table": "| one | **two** | three |\n",
    "code": "    return value + 1  # and so on\n",
    "paragraph": "words and **strong** words, and more of them. ",
    "quote": "> quoted *words* and more\n",
}
STARTS = {"table": "| a | b | c |\n|---|---|---|\n", "code": "```python\n"}


@pytest.mark.parametrize("kind", LONG_BLOCKS)
def test_the_cost_of_a_long_open_block_grows_with_its_length(kind: str) -> None:
    def watch(text: str) -> None:
        cache.clear()
        growing(text, size=80)

    line = LONG_BLOCKS[kind]
    assert_linear(watch, lambda n: STARTS.get(kind, "") + line * (n // len(line)), size=8_000, runs=2)


def test_long_texts_are_rendered_in_a_thread_and_short_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that watches an answer of 100,000 characters never has the event loop render more than a little."""
    on_loop: list[int] = []
    elsewhere: list[int] = []
    loop_thread = threading.get_ident()

    def rendered(text: str, **given: Any) -> Any:
        (on_loop if threading.get_ident() == loop_thread else elsewhere).append(len(text))
        return render_text(text, **given)

    render_text = answer_html.render_text
    monkeypatch.setattr(answer_html, "render_text", rendered)
    for kind, line in LONG_BLOCKS.items():
        text = STARTS.get(kind, "") + line * (100_000 // len(line))
        growing(text[:20_000], size=200)
        growing(text, size=50_000)
    assert on_loop
    assert max(on_loop) <= MAX_CHARS_ON_LOOP
    assert max(elsewhere) > 90_000


async def test_a_page_that_comes_later_gets_all_that_was_written_so_far() -> None:
    pieces = ["Some words that begin a paragraph ", "and more of them", "\n\n```py\nif x:\n", "    pass\n", "    more"]
    part, _ = await written(pieces)
    assert part is not None
    words = re.sub(r"<[^>]*>", "", part.prose)
    assert "begin a paragraph and more of them" in words
    assert words.endswith("if x:\n    pass\n    more")


def test_a_long_open_block_is_rendered_again_when_it_has_grown_enough() -> None:
    shown = Shown()
    line = LONG_BLOCKS["table"]
    for grown in growing(STARTS["table"] + line * (40_000 // len(line)), size=100):
        shown.put(grown)
    assert shown.rendered < LONG_TAIL / 100 + 30
    assert shown.html.count("<tr>") > 0.85 * (40_000 // len(line))
