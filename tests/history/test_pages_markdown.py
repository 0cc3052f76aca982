"""Markdown as models write it, and as somebody writes it who means harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.markdown import RENDERED_CHARS, TAGS, render

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)><a xlink:href=javascript:alert(1)>x</a></svg>",
    "<iframe src='https://evil.example'></iframe>",
    "<style>*{display:none}</style>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    "<javascript:alert(1)>",
    "![x](https://evil.example/pixel.png)",
    '[x](https://a.example "\\" onmouseover=alert(1) x=\\"")',
    "[x]: javascript:alert(1)\n\n[x]",
    "```<script>\nalert(1)\n```",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "`</code><script>alert(1)</script>`",
    "| <script>a</script> |\n|--|\n| <img src=x onerror=a> |",
    "<div\n onclick=alert(1)>x</div>",
    "<!-- --><script>alert(1)</script>",
    "\x02wzxhzdk:0\x03",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
]


def tags_in(html: str) -> set[str]:
    from html.parser import HTMLParser

    found: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add(tag)
            for name, value in attrs:
                assert name in {"href", "title", "rel", "start", "class", "tabindex"}
                assert name != "href" or (value or "").partition(":")[0] in {"http", "https", "mailto"}

    Reader().feed(html)
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_becomes_harmless_html(text: str) -> None:
    assert tags_in(render(text)) <= TAGS


@given(st.text(alphabet="<>[]()!`*_~#|-\n \"'&;:/=axscript", max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_text_at_all_brings_other_tags_or_attributes(text: str) -> None:
    assert tags_in(render(text)) <= TAGS


def test_raw_html_is_shown_as_the_characters_that_were_typed() -> None:
    assert render("a <b>bold</b> claim") == "<p>a &lt;b&gt;bold&lt;/b&gt; claim</p>"


def test_a_picture_from_elsewhere_is_a_link_and_is_not_loaded() -> None:
    html = render("![the plan](https://elsewhere.example/plan.png)")
    assert "<img" not in html
    assert '<a href="https://elsewhere.example/plan.png" rel="noopener nofollow">the plan</a>' in html


def test_code_tables_and_lists_read_as_what_they_are() -> None:
    html = render("Look:\n- one\n    - deeper\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n```python\nif a < b:\n    - x\n```\n")
    assert "<p>Look:</p>\n<ul>\n<li>one<ul>\n<li>deeper</li>" in html
    assert "<td>2</td>" in html
    assert "<code>if a &lt; b:\n    - x\n</code>" in html


@pytest.mark.parametrize("indent", [2, 3, 4])
def test_lists_nest_however_far_they_are_indented(indent: int) -> None:
    pad = " " * indent
    assert render(f"- a\n{pad}- b\n{pad}{pad}- c\n- d").count("<ul>") == 3


def test_code_inside_a_list_item_stays_code_and_keeps_its_own_indentation() -> None:
    html = render("1. Run\n\n   ```sh\n   if true; then\n     ls\n   ```\n2. Look")
    assert "<code>if true; then\n  ls\n</code>" in html
    assert html.count("<ol>") == 1


def test_an_unfinished_code_block_ends_with_the_text() -> None:
    html = render("So:\n\n```\nhalf an ans")
    assert html == '<p>So:</p>\n<pre tabindex="0"><code>half an ans\n</code></pre>'


def test_headings_step_down_under_the_title_of_the_page() -> None:
    assert render("# Title") == "<h3>Title</h3>"


def test_a_long_text_is_shown_as_it_is() -> None:
    assert render("<i>" * RENDERED_CHARS).startswith('<div class="plain">&lt;i&gt;')


def test_a_nul_byte_is_shown_as_a_replacement_character() -> None:
    assert render("a\0b") == "<p>a\ufffdb</p>"


def test_a_long_list_of_names_in_backticks_is_still_a_list() -> None:
    names = "\n".join(f"- `file_{number}` holds `that` and `this`" for number in range(400))
    assert render(names).count("<li>") == 400


@pytest.mark.parametrize(
    "piece",
    [
        "[", "[a](b", "![a](", "> ", "*a ", "**a*", "`", "<", "&", "\\", "- a\n", "  - a\n", "|a", "~~", "a\n", "```\n",
        "``a`", "# a\n", "a\n===\n", "a|b\n-|-\n", "1. ",
    ],
)  # fmt: skip
def test_text_made_to_be_slow_is_not(piece: str) -> None:
    began = time.process_time()  # not the clock on the wall: others may be at work too
    render((piece * RENDERED_CHARS)[:RENDERED_CHARS])
    assert time.process_time() - began < 5


def test_quotes_in_quotes_are_shown_as_far_as_anybody_reads() -> None:
    assert render("> > > three deep").count("<blockquote>") == 3
    assert render("> " * 25 + "too deep").startswith('<div class="plain">')
    assert "<hr" in render("text\n\n" + "-" * 60)
