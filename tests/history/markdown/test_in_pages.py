"""Markdown as models write it, and as an attacker writes it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from history.markdown import MAX_CHARS, HtmlCache, cache, render
from history.markdown.html import ALLOWED_CLASSES, TAGS
from tests.factories import example_count

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
    "<kbd onclick=alert(1)>x</kbd><sup style='position:fixed'>x</sup>",
    "<br onload=alert(1)><br/onload=alert(1)/>",
    "<sub><script>alert(1)</script></sub>",
    "<kbd><img src=x onerror=alert(1)></kbd>",
    "> [!NOTE]<script>alert(1)</script>\n> x",
    "> [!NOTE onclick=alert(1)]\n> <iframe src=//evil.example>",
    "https://a.example/<script>alert(1)</script>",
    'https://a.example/"onmouseover=alert(1)//',
    "javascript://a.example/%0Aalert(1)",
    "www.a.example/'onmouseover='alert(1)",
    "data:text/html,<script>alert(1)</script>@a.example",
    '[x](https://a.example/"onclick=alert(1)")',
    "[x](<javascript:alert(1)>)",
    "[x](\x01javascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](//evil.example/x) [y](\\\\evil.example) [z](file:///etc/passwd)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=) ![y](javascript:alert(1))",
    "[![x](javascript:alert(1))](javascript:alert(2))",
    "[x]: <javascript:alert(1)> 'y'\n\n![x] [x][]",
    '|a|\n|:-:" style=x|\n|b|',
    '``` "><script>alert(1)</script>\nx\n```',
    "```mermaid\n</code></pre><script>alert(1)</script>\n```",
    "$\\href{javascript:alert(1)}{x}$ \\(<b onclick=alert(1)>\\)",
    "\\[<img src=x onerror=alert(1)>\\]",
    "[^1]: x\n\n[^1]<sup id=fnref-1 onclick=alert(1)>y</sup>",
    'x[^"onclick=alert(1)]\n\n[^"onclick=alert(1)]: y',
    '<a@b.example"onclick=alert(1)>',
    '<https://a.example/"onclick=alert(1)>',
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
    "<form action=//evil.example><button>x</button></form><base href=//evil.example>",
    "<object data=x></object><embed src=x><link rel=stylesheet href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<svg><style><img src=x onerror=alert(1)></style></svg><math><mtext><script>x</script></mtext></math>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "- <details open ontoggle=alert(1)>\n  <summary>x</summary>",
    "**<script>**alert(1)**</script>**",
    "[<script>alert(1)</script>](https://a.example '<img src=x onerror=alert(1)>')",
    "1. <video><source onerror=alert(1)>\n\n    <audio src=x onerror=alert(1)>",
]


def tags_in(html: str) -> set[str]:
    from html.parser import HTMLParser

    found: set[str] = set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.add(tag)
            for name, value in attrs:
                assert name in {"href", "title", "rel", "start", "class", "tabindex", "id", "align"}
                assert name != "align" or value in {"left", "center", "right"}
                assert name != "href" or (value or "").startswith(("http:", "https:", "mailto:", "#fn"))
                assert name != "id" or (value or "").startswith("fn")
                assert name != "class" or value in ALLOWED_CLASSES

    Reader().feed(html)
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_becomes_harmless_html(text: str) -> None:
    assert tags_in(render(text)) <= TAGS


def test_no_link_or_image_of_a_hostile_text_leads_to_a_script_or_a_foreign_picture() -> None:
    html = render("\n\n".join(HOSTILE)).lower()
    assert "<img" not in html
    assert 'href="javascript' not in html
    assert 'href="data' not in html


@given(st.text(alphabet="<>[]()!`*_~#|-\n \"'&;:/=axscript^$\\\\1@.brkdup", max_size=200))
@settings(max_examples=example_count(300), deadline=None)
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
    assert "<p>Look:</p>\n<ul>\n<li>one\n<ul>\n<li>deeper</li>" in html
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


def test_a_long_answer_is_rendered_to_its_end() -> None:
    """An answer of 200,000 characters is Markdown from the first line to the last."""
    section = "## Part\n\nSome **strong** words and a list:\n\n- one\n- two\n\n"
    text = section * (200_000 // len(section)) + "| a | b |\n|---|---|\n| the | end |\n"
    html = render(text)
    assert html.count("<h3>") == 200_000 // len(section)
    assert html.endswith("</table></div>")
    assert "**" not in html


def test_what_exceeds_the_longest_text_is_shown_as_typed() -> None:
    html = render("**a** b\n" * (MAX_CHARS // 8) + "**c**")
    assert html.endswith('<div class="plain">**c**</div>')
    assert html.count("<strong>a</strong>") == MAX_CHARS // 8


def test_a_nul_byte_is_shown_as_a_replacement_character() -> None:
    assert render("a\0b") == "<p>a\ufffdb</p>"


def test_a_long_list_of_names_in_backticks_is_still_a_list() -> None:
    names = "\n".join(f"- `file_{number}` holds `that` and `this`" for number in range(400))
    assert render(names).count("<li>") == 400


def test_quotes_and_lists_are_nested_up_to_a_limit_and_nothing_is_lost() -> None:
    assert render("> > > three deep").count("<blockquote>") == 3
    assert "&gt; too deep" in render("> " * 60 + "too deep")
    assert "too deep" in render("".join(f"{'  ' * depth}- item\n" for depth in range(60)) + "  " * 60 + "- too deep")
    assert "too deep" in render("1. " * 60 + "too deep")
    assert "<hr" in render("text\n\n" + "-" * 60)


def test_half_a_character_and_a_nul_are_shown_as_unknown_ones_and_a_whole_one_as_itself() -> None:
    assert "\ufffd" in render("a \ud800 b")
    assert "\ufffd" in render("a \0 b")
    assert "😀" in render("a \ud83d\ude00 b")


# Texts that leave state in the renderer: references, notes, code, formulas, lists, too much work.
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


@settings(max_examples=example_count(60))
@given(st.lists(st.sampled_from([*HOSTILE, *NOTES_AND_CODE]), min_size=1, max_size=6))
def test_nothing_of_one_text_is_left_when_the_next_one_is_rendered(texts: list[str]) -> None:
    cache.clear()
    one_after_the_other = [render(text, prefix="p-") for text in texts]
    for text, html in zip(texts, one_after_the_other, strict=True):
        cache.clear()
        assert render(text, prefix="p-") == html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("*b**b* d", "<p><em>b**b</em> d</p>"),
        ("***a** b*, __c__", "<p><em><strong>a</strong> b</em>, <strong>c</strong></p>"),
        ("**a*b*c**", "<p><strong>a<em>b</em>c</strong></p>"),
    ],
)
def test_emphasis_within_emphasis(text: str, html: str) -> None:
    assert render(text) == html


def test_the_same_block_is_rendered_once() -> None:
    cache.clear()
    block = "- *one* and [two](https://a.example)\n\n"
    render(block)
    assert cache.get(block.rstrip()) is not None
    assert render(f"{block}Then **another**.").startswith(str(render(block)))


def test_a_block_that_refers_to_a_definition_is_not_taken_from_another_text() -> None:
    assert 'href="https://a.example"' in render("See [it].\n\n[it]: https://a.example")
    assert 'href="https://b.example"' in render("See [it].\n\n[it]: https://b.example")
    assert "href" not in render("See [it].")


def test_the_cache_forgets_the_oldest_when_it_is_full() -> None:
    small = HtmlCache(max_chars=10)
    for name in ("a", "b", "c"):
        small.put(name, name * 4)
    assert [small.get(name) for name in ("a", "b", "c")] == [None, "bbbb", "cccc"]
    small.put("b", "B")
    assert (small.get("b"), small.get("c")) == ("B", "cccc")
