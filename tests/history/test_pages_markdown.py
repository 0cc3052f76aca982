"""Markdown as models write it, and as somebody writes it who means harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.markdown import ALLOWED_CLASSES, RENDERED_CHARS, TAGS, _rendered, _renderers, plain, render
from tests.examples import examples

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
    "$<script>alert(1)</script>$ and $$<img src=x onerror=alert(1)>$$",
    "$$\n</div><script>alert(1)</script>\n$$",
    '```<b>"x\n</pre><script>alert(1)</script>\n```',
    "```html\n<script>alert(1)</script><a onclick=x>\n```",
    '```mermaid\nclick A href "javascript:alert(1)"\n```',
    "- [x] <input onfocus=alert(1) autofocus>",
    "x[^1] [^<script>]\n\n[^1]: <script>alert(1)</script>\n[^<script>]: [x](javascript:alert(1))",
    '[x](#fn-1" onclick=alert(1)) [y](#elsewhere)',
]


def tags_in(html: str) -> set[str]:
    from html.parser import HTMLParser

    found: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add(tag)
            for name, value in attrs:
                assert name in {"href", "title", "rel", "start", "class", "tabindex", "id"}
                assert name != "href" or (value or "").startswith(("http:", "https:", "mailto:", "#fn"))
                assert name != "id" or (value or "").startswith("fn")
                assert name != "class" or value in ALLOWED_CLASSES

    Reader().feed(html)
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_becomes_harmless_html(text: str) -> None:
    assert tags_in(render(text)) <= TAGS


@given(st.text(alphabet="<>[]()!`*_~#|-\n \"'&;:/=axscript^$\\\\1", max_size=200))
@settings(max_examples=examples(300), deadline=None)
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
    assert '<code><span class="hl-keyword">if</span> a &lt; b:\n    - x\n</code>' in html


@pytest.mark.parametrize("indent", [2, 3, 4])
def test_lists_nest_however_far_they_are_indented(indent: int) -> None:
    pad = " " * indent
    assert render(f"- a\n{pad}- b\n{pad}{pad}- c\n- d").count("<ul>") == 3


def test_code_inside_a_list_item_stays_code_and_keeps_its_own_indentation() -> None:
    html = render("1. Run\n\n   ```\n   if true; then\n     ls\n   ```\n2. Look")
    assert "<code>if true; then\n  ls\n</code>" in html
    assert html.count("<ol>") == 1


def test_an_unfinished_code_block_ends_with_the_text() -> None:
    html = render("So:\n\n```\nhalf an ans")
    assert html.startswith("<p>So:</p>")
    assert '<pre tabindex="0"><code>half an ans\n</code></pre>' in html


def test_headings_step_down_under_the_title_of_the_page() -> None:
    assert render("# Title") == "<h3>Title</h3>"


def test_a_long_text_is_shown_as_it_is() -> None:
    assert render("<i>" * RENDERED_CHARS).startswith('<div class="plain">&lt;i&gt;')


def test_a_nul_byte_is_shown_as_a_replacement_character() -> None:
    assert render("a\0b") == "<p>a\ufffdb</p>"


def test_a_long_list_of_names_in_backticks_is_still_a_list() -> None:
    names = "\n".join(f"- `file_{number}` holds `that` and `this`" for number in range(400))
    assert render(names).count("<li>") == 400


SLOW = [
    "[", "[a](b", "![a](", "> ", "*a ", "**a*", "`", "<", "&", "\\", "- a\n", "  - a\n", "|a", "~~", "a\n", "```\n",
    "``a`", "# a\n", "a\n===\n", "a|b\n-|-\n", "1. ", "\\``", "  \n***", "a\n\n", "<a@b>", "|a|b|\n|-|-|\n",
    "[a]: 'x' ", "\\[\n", "$x$ ", "[^1]: a\n", "a[^1]\n", "#。9\n>", "`a`|", "- **", "1. \x031. ", "a\r", "_*",
    "```python\n1\n```\n",
]  # fmt: skip


@pytest.mark.parametrize("piece", SLOW)
def test_text_made_to_be_slow_is_not(piece: str) -> None:
    """`bench/rendering.py` says how slow exactly; this would only notice seconds."""
    began = time.process_time()  # not the clock on the wall: others may be at work too
    render((piece * RENDERED_CHARS)[:RENDERED_CHARS])
    assert time.process_time() - began < 2


@pytest.mark.parametrize("piece", ["**a** ", "[a]", "a\n\n", "- a\n", "`a`|", "a\n===\n"])
def test_work_is_given_up_by_count_and_the_text_shown_as_it_is(piece: str) -> None:
    text = piece * (RENDERED_CHARS // len(piece))
    assert render(text) == plain(text)


@pytest.mark.parametrize(
    "line",
    [
        "- [Title](https://example.org/page): a short text about it, and `code` for **it**\n",
        "| 12 | 34.5 | `yes` | a few words |\n",
        "A claim[^1], another one, and a third [with a link](https://example.org) and *stress*. ",
        "服务器**空闲**,所以构建在等待,而不是在计算。参见 `iostat`。\n\n",
        "2026-11-16 08:00:00 INFO my_module.sub_module: did <thing> in 3 ms [ok]\n",
        "The value $x_i$ of $\\alpha$ follows from \\(y = x^2\\).\n",
    ],
)
def test_ordinary_text_of_any_length_that_is_rendered_at_all_is_rendered(line: str) -> None:
    head = "| a | b | c | d |\n|--|--|--|--|\n" if line.startswith("|") else ""
    text = head + line * ((RENDERED_CHARS - len(head)) // len(line))
    assert not render(text).startswith('<div class="plain">')


def test_quotes_in_quotes_are_shown_as_far_as_anybody_reads() -> None:
    assert render("> > > three deep").count("<blockquote>") == 3
    assert render("> " * 25 + "too deep").startswith('<div class="plain">')
    assert "<hr" in render("text\n\n" + "-" * 60)


def test_half_a_character_and_a_nul_are_shown_as_unknown_ones_and_a_whole_one_as_itself() -> None:
    assert "\ufffd" in render("a \ud800 b")
    assert "\ufffd" in render("a \0 b")
    assert "😀" in render("a \ud83d\ude00 b")


# Texts that leave something behind in whoever renders them: references, notes, code, formulas, lists, too much work.
NOTES_AND_CODE = [
    "[a]: https://a.example\n\n[a]",
    "[a]",
    "One[^1].\n\n[^1]: Note",
    "Two[^1].",
    "```python\nif x:\n    pass\n```",
    "```python\nnever ended",
    "$$\nx = 1",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "- a\n  - b\n\n1. c",
    "*" * 300,
    "[" * 3000,
    "plain",
]


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from([*HOSTILE, *NOTES_AND_CODE]), min_size=1, max_size=6))
def test_nothing_of_one_text_is_left_when_the_next_one_is_rendered(texts: list[str]) -> None:
    _rendered.cache_clear()
    one_after_the_other = [render(text, prefix="p-") for text in texts]
    for text, html in zip(texts, one_after_the_other, strict=True):
        _rendered.cache_clear()
        _renderers.free.clear()
        assert render(text, prefix="p-") == html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*b**b*x y", "<p>*b**b*x y</p>"),
        ("*b**b*`d`", "<p>*b**b*<code>d</code></p>"),
        ("*b**b*`d``", "<p>*b**b*`d``</p>"),
        ("*b**b* d", "<p><em>b**b</em> d</p>"),
        ("***a** b*, __c__", "<p><em><strong>a</strong> b</em>, <strong>c</strong></p>"),
        ("**a*b*c**", "<p><strong>a<em>b</em>c</strong></p>"),
    ],
)
def test_emphasis_eats_nothing_that_stands_behind_it(text: str, html: str) -> None:
    assert render(text) == html
