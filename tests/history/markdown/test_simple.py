"""Plain prose takes a fast path to the same HTML."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings, strategies as st

from history import markdown
from history.markdown import prose_html, render
from tests.factories import example_count

pytestmark = pytest.mark.any_database

ORDINARY = [
    "word", "a", "Über", "中文", "，", "。", "i.e.", "1", "12.", "٣", "ⅷ", "e\u0301", "😀",
    " ", " ", "  ", ". ", ", ", ": ", "(", ")", ";", "'", '"', "!", "?", "=", "+", "{", "}", "%", "@", "/",
    "http://a.b", "I. ", "a) ",
    "**b**", "**b c**", "**中**", "**1**", "`x`", "`a_b`", "`a-b()`", "`a*b`", "**", "`", "*",
    "\n", "\n", "\n\n", "\n- ", "\n- a", "- ", "-", "\n* ", "\n1. ", "\n---", "\n===",
]  # fmt: skip
OTHER = [
    "\t", "\r", "\xa0", "\u3000", "\u200b", "\u2028", "\ufeff", "\ufffe", "\x02", "\x07", "☐", "[x]", "[", "]", "|",
    "~", "#", "\\", "<", ">", "&", "&amp;", "$", "_", "^", "\ud800", "> ", "# ", "    ", "```", "$$",
]  # fmt: skip

texts = st.tuples(
    st.sampled_from(["", "a", "- a", "word **b** c\n", "- "]),
    st.lists(st.sampled_from(ORDINARY), max_size=14) | st.lists(st.sampled_from(ORDINARY + OTHER), max_size=14),
).map(lambda drawn: drawn[0] + "".join(drawn[1]))


def the_long_way(text: str) -> str:
    with patch.object(markdown, "prose_html", return_value=None):
        return render(text)


@given(texts)
@settings(max_examples=example_count(200), deadline=None)
def test_the_short_way_leads_where_the_long_one_does(text: str) -> None:
    assert render(text) == the_long_way(text)


@pytest.mark.parametrize(
    "text",
    [
        "A sentence, with `code()` and **strong words**: 1 + 1 = 2, isn't it?",
        "一句话，其中有**重点**内容。\n第二行。",
        "Some words \nin lines.\n\n- one **thing** \n- another `thing`\n\nAnd the end. ",
    ],
)
def test_what_models_mostly_write_goes_the_short_way(text: str) -> None:
    assert prose_html(text) == the_long_way(text)


@pytest.mark.parametrize(
    "text",
    [
        "a <b>",
        "a & b",
        "a [b](http://c.example)",
        "1. a",
        "# a",
        "a\n===",
        "see https://a.example",
        "a@b.example",
        "www.a.example",
    ],
)
def test_ambiguous_markdown_takes_the_full_parser(text: str) -> None:
    assert prose_html(text) is None
