"""GitHub Flavored Markdown, one example of our own for every construct; `make gfm` compares with the specification."""

from __future__ import annotations

import re

import pytest

from history.markdown import render

EXAMPLES = {
    # Blocks
    "heading": ("## Two ##\n\n#### Four", "<h3>Two</h3>\n<h4>Four</h4>"),
    "setext heading": ("Title\n=====\n\nSub\n---", "<h3>Title</h3>\n<h3>Sub</h3>"),
    "number sign without a space": ("#1 is first", "<p>#1 is first</p>"),
    "rule": ("a\n\n***\n\nb", "<p>a</p>\n<hr>\n<p>b</p>"),
    "paragraphs and lines": ("one\ntwo\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>"),
    "hard breaks": ("one  \ntwo\\\nthree", "<p>one<br>\ntwo<br>\nthree</p>"),
    "quote": ("> said\nlazily\n\nafter", "<blockquote>\n<p>said<br>\nlazily</p>\n</blockquote>\n<p>after</p>"),
    "list in a quote": ("> - a\n> - b", "<blockquote>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n</blockquote>"),
    "list in a quote under a sentence": (
        "> Look:\n> - a\n> - b",
        "<blockquote>\n<p>Look:</p>\n<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n</blockquote>",
    ),
    "bullets": ("* a\n* b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
    "loose list": ("- a\n\n- b", "<ul>\n<li>\n<p>a</p>\n</li>\n<li>\n<p>b</p>\n</li>\n</ul>"),
    "numbers from three": ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>'),
    "numbers with a bracket": ("1) a\n2) b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>"),
    "bullets under a number": ("1. a\n   - b\n2. c", "<ol>\n<li>a\n<ul>\n<li>b</li>\n</ul>\n</li>\n<li>c</li>\n</ol>"),
    "bullets under a number by two spaces": (
        "1. a\n  - b\n2. c",
        '<ol>\n<li>a</li>\n</ol>\n<ul>\n<li>b</li>\n</ul>\n<ol start="2">\n<li>c</li>\n</ol>',
    ),
    "list under a sentence": ("Look:\n- a", "<p>Look:</p>\n<ul>\n<li>a</li>\n</ul>"),
    "paragraph in an item": ("- a\n\n  b", "<ul>\n<li>\n<p>a</p>\n<p>b</p>\n</li>\n</ul>"),
    "tasks": ("- [ ] a\n- [x] b", '<ul>\n<li class="task">☐ a</li>\n<li class="task">☑ b</li>\n</ul>'),
    # Words
    "emphasis": ("*a* _b_ **c** __d__ ***e***", None),
    "emphasis in a word": ("snake_case_name and un*frigging*believable", None),
    "strikethrough": ("~~a~~ and ~b~ but not ~~~c~~~", "<p><del>a</del> and <del>b</del> but not ~~~c~~~</p>"),
    "a range is not struck out": ("3~5 or 6~7", "<p>3~5 or 6~7</p>"),
    "code": ("`a` and `` b`c ``", "<p><code>a</code> and <code>b`c</code></p>"),
    "escapes": (r"\*a\* \# \`b\`", "<p>*a* # `b`</p>"),
    "entities": ("&copy; &#35; &amp;nbsp; &nosuch;", "<p>© # &amp;nbsp; &amp;nosuch;</p>"),
    "raw HTML": ("a <b>c</b> <!-- d -->", "<p>a &lt;b&gt;c&lt;/b&gt; &lt;!-- d --&gt;</p>"),
    "allowed tags": ("H<sub>2</sub>O x<sup>2</sup> <kbd>Ctrl</kbd><br>b", None),
    "a tag without its end": ("a <sub>b", "<p>a &lt;sub&gt;b</p>"),
    "a tag across emphasis": ("*a <sub>b* c</sub>", "<p><em>a &lt;sub&gt;b</em> c&lt;/sub&gt;</p>"),
}
SEVERAL = {
    "emphasis": ["<em>a</em>", "<em>b</em>", "<strong>c</strong>", "<strong>d</strong>", "<em><strong>e</strong></em>"],
    "emphasis in a word": ["snake_case_name", "un<em>frigging</em>believable"],
    "allowed tags": ["H<sub>2</sub>O", "x<sup>2</sup>", "<kbd>Ctrl</kbd><br>\nb"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_construct_is_rendered_as_on_github(name: str) -> None:
    text, html = EXAMPLES[name]
    rendered = render(text)
    if html is not None:
        assert rendered == html
    for part in SEVERAL.get(name, ()):
        assert part in rendered


def test_every_line_break_of_a_paragraph_is_shown() -> None:
    assert render("one\ntwo  \nthree") == "<p>one<br>\ntwo<br>\nthree</p>"


class TestTables:
    def test_a_table_begins_right_under_a_line_of_text(self) -> None:
        html = render("The result:\n| a | b |\n|---|---|\n| 1 | 2 |\n\nDone.")
        assert html.startswith('<p>The result:</p>\n<div class="table-box" tabindex="0"><table>')
        assert html.endswith("</table></div>\n<p>Done.</p>")

    def test_columns_are_aligned(self) -> None:
        html = render("| a | b | c | d |\n|:--|:-:|--:|---|\n| 1 | 2 | 3 | 4 |")
        assert re.findall(r"<td[^>]*>", html) == [
            '<td align="left">',
            '<td align="center">',
            '<td align="right">',
            "<td>",
        ]
        assert '<th align="center">b</th>' in html

    def test_cells_hold_line_breaks_and_escaped_bars(self) -> None:
        html = render("| a | b |\n|---|---|\n| one<br>two | `x\\|y` \\| z |")
        assert "<td>one<br>\ntwo</td>" in html
        assert "<td><code>x|y</code> | z</td>" in html

    def test_missing_cells_are_empty_and_further_ones_are_dropped(self) -> None:
        html = render("| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | 3 |")
        assert html.count("<td>") == 4
        assert "<td></td>" in html

    def test_a_table_in_an_item_ends_with_the_item(self) -> None:
        html = render("- first\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n- second")
        assert html.count("<li>") == 2
        assert html.count("<tr>") == 2
        assert "second" in html.rpartition("</table>")[2]

    def test_a_head_and_a_line_of_other_widths_are_no_table(self) -> None:
        assert "<table" not in render("| a | b |\n|---|\n| 1 |")


class TestLinks:
    @pytest.mark.parametrize(
        ("text", "href", "words"),
        [
            ("[a b](https://a.example/x)", "https://a.example/x", "a b"),
            ('[a](<https://a.example/x y> "title")', "https://a.example/x%20y", "a"),
            ("[a][it]\n\n[it]: https://a.example 'title'", "https://a.example", "a"),
            ("[it][]\n\n[It]: https://a.example", "https://a.example", "it"),
            ("[it]\n\n[it]: https://a.example", "https://a.example", "it"),
            ("<https://a.example/?a=b&c=d>", "https://a.example/?a=b&amp;c=d", "https://a.example/?a=b&amp;c=d"),
            ("<ada@a.example>", "mailto:ada@a.example", "ada@a.example"),
            ("https://a.example/b_c_d", "https://a.example/b_c_d", "https://a.example/b_c_d"),
            ("http://localhost:8000/x", "http://localhost:8000/x", "http://localhost:8000/x"),
            ("see www.a.example/b", "http://www.a.example/b", "www.a.example/b"),
            ("(https://a.example/b_(c))", "https://a.example/b_(c)", "https://a.example/b_(c)"),
            ("**https://a.example**", "https://a.example", "https://a.example"),
            ("Ask ada@a.example.", "mailto:ada@a.example", "ada@a.example"),
            ("参见https://a.example/路径。然后", "https://a.example/%E8%B7%AF%E5%BE%84", "https://a.example/路径"),
            ("访问https://a.example这里", "https://a.example", "https://a.example"),
            ("https://a.example，然后", "https://a.example", "https://a.example"),
        ],
    )
    def test_an_address_is_a_link(self, text: str, href: str, words: str) -> None:
        html = render(text)
        assert f'href="{href}"' in html
        assert f">{words}</a>" in html
        assert html.count("<a ") == 1

    @pytest.mark.parametrize(
        ("text", "behind"),
        [
            ("https://a.example.", "."),
            ("https://a.example, b", ", b"),
            ("https://a.example/x?!", "?!"),
            ("(see https://a.example)", ")"),
            ("https://a.example/&copy; b", "© b"),
            ('"https://a.example"', '"'),
        ],
    )
    def test_punctuation_behind_an_address_is_not_part_of_it(self, text: str, behind: str) -> None:
        assert render(text).endswith(f"</a>{behind}</p>")

    @pytest.mark.parametrize(
        "text",
        [
            "xhttps://a.example", "https://", "www.", "www", "a@b", "@a.example", "http://a_b.c_d", "file.py",
            "README.md", "`https://a.example`", "foo://a.example", "a://b", "12:30://", "a@b-",
            "[a](/history/)", "[a](#top)",
        ],
    )  # fmt: skip
    def test_what_is_no_address_of_the_web_is_no_link(self, text: str) -> None:
        assert "href" not in render(text)

    def test_an_address_in_the_words_of_a_link_is_not_a_second_link(self) -> None:
        html = render("[www.a.example and https://b.example](https://c.example)")
        assert html.count("<a ") == 1

    def test_an_image_in_a_link_shows_its_words(self) -> None:
        html = render("[![the badge](https://a.example/x.svg)](https://b.example)")
        assert html == '<p><a href="https://b.example" rel="noopener nofollow">the badge</a></p>'


@pytest.mark.parametrize("kind", ["NOTE", "TIP", "IMPORTANT", "WARNING", "CAUTION"])
def test_an_alert_has_its_kind_as_title(kind: str) -> None:
    html = render(f"> [!{kind}]\n> Mind **this**.\n>\n> - a")
    assert html.startswith(f'<div class="alert alert-{kind.lower()}">\n<p class="alert-title">{kind.capitalize()}</p>')
    assert "<p>Mind <strong>this</strong>.</p>\n<ul>" in html


def test_a_quote_with_another_word_in_brackets_is_a_quote() -> None:
    assert render("> [!NONSENSE]\n> a").startswith("<blockquote>\n<p>[!NONSENSE]<br>")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**注意：**这里", "<p><strong>注意：</strong>这里</p>"),
        ("这是**“引用”**的话", "<p>这是<strong>“引用”</strong>的话</p>"),
        ("请*（务必）*阅读", "<p>请<em>（务必）</em>阅读</p>"),
        ("~~旧的。~~新的", "<p><del>旧的。</del>新的</p>"),
        ("これは**重要。**です", "<p>これは<strong>重要。</strong>です</p>"),
        ("**a:**b", "<p>**a:**b</p>"),
    ],
)
def test_emphasis_ends_between_chinese_punctuation_and_a_letter(text: str, html: str) -> None:
    assert render(text) == html
