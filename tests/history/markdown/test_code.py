"""Code in colours: by class, never by style, readable in both themes, and within limits."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from django.conf import settings

from history.markdown import cache, html as html_module, render
from history.markdown.html import CLASSES, LANGUAGES, MAX_CODE_CHARS


@pytest.mark.parametrize(
    ("language", "code", "coloured"),
    [
        ("python", "def f(): return 1", '<span class="hl-keyword">def</span> <span class="hl-name">f</span>'),
        ("json", '{"a": [1, true]}', '<span class="hl-number">1</span>, <span class="hl-keyword">true</span>'),
        ("bash", "for f in *; do echo 'x'; done", "<span class=\"hl-string\">'x'</span>"),
        ("html", "<a href='x'>t</a>", '&lt;<span class="hl-known">a</span>'),
        ("javascript", "const a = 1; // x", '<span class="hl-comment">// x</span>'),
        ("sql", "SELECT 1 -- x", '<span class="hl-keyword">SELECT</span>'),
        (
            "diff",
            "-old\n+new\n same",
            '<span class="hl-deleted">-old</span>\n<span class="hl-inserted">+new</span>\n same',
        ),
    ],
)
def test_code_is_coloured_by_class(language: str, code: str, coloured: str) -> None:
    html = render(f"```{language}\n{code}\n```")
    assert coloured in html
    assert "style" not in html
    assert f'<span class="code-lang">{language}</span>' in html


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_is_known_to_the_lexers_and_shows_the_code_whole(language: str) -> None:
    code = "a = 'b' # c <d> &amp; 1\n\n    if (x) { y }  \n\u3000z"
    html = render(f"~~~~{language}\n{code}\n~~~~")
    assert text_of(html).partition("a =")[2] == code.partition("a =")[2].replace("\u3000z", "\u3000z\n")


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


@pytest.mark.parametrize("language", ["", "klingon", "../../etc/passwd", "PYTHON-ish"])
def test_code_in_an_unknown_language_is_plain(language: str) -> None:
    assert "<code>if x: 1\n</code>" in render(f"```{language}\nif x: 1\n```")


def test_the_language_is_the_first_word_after_the_fence_in_any_case() -> None:
    html = render("```Python title=x\nif x: 1\n```")
    assert '<span class="code-lang">Python</span>' in html
    assert "hl-keyword" in html


def test_very_much_code_and_very_long_lines_are_plain() -> None:
    assert "hl-" not in render("```python\n" + "if x: 1\n" * (MAX_CODE_CHARS // 8 + 1) + "```")
    assert "hl-" not in render("```python\nif x: " + "1 + " * 100 + "1\n```")


def test_every_code_block_of_a_long_text_is_highlighted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_module, "MIN_SECONDS", 60)
    piece = "```python\n" + "if x: 1\n" * 400 + "```\n\n"
    assert render(piece * 10).count('<span class="hl-keyword">if</span>') == 4_000


def test_of_many_pieces_of_code_in_one_list_the_first_are_highlighted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_module, "MIN_SECONDS", 60)
    piece = "- ```python\n" + "  if x: 1\n" * 400 + "  ```\n"
    assert render(piece * 4).count('<span class="hl-keyword">if</span>') == 800


def test_a_lexer_that_takes_its_time_is_stopped_and_the_rest_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(html_module, "MIN_SECONDS", 0)
    monkeypatch.setattr(html_module, "MAX_SECONDS_PER_CHAR", 0)
    source = "if x: 1\n" * 100
    html = render(f"```py\n{source}```")
    cache.clear()
    assert html.count("hl-keyword") < 20
    assert text_of(html).strip() == f"py{source.strip()}"


def test_code_has_a_head_for_the_copy_button_and_can_be_scrolled_by_keyboard() -> None:
    expected = '<div class="code"><div class="code-head">{}</div><pre tabindex="0"><code>x\n</code></pre></div>'
    assert render("```text\nx\n```") == expected.format('<span class="code-lang">text</span>')
    assert render("```\nx\n```") == render("    x") == expected.format("")


def test_a_diagram_is_marked_and_its_source_kept() -> None:
    html = render("```mermaid\ngraph TD\n  A-->B\n```")
    assert '<pre class="mermaid-source" tabindex="0"><code>graph TD\n  A--&gt;B\n</code></pre>' in html


STYLES = Path(settings.BASE_DIR) / "static" / "css"
TOKEN = re.compile(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)")
RULE = re.compile(r"((?:\.hl-[a-z]+,?\s+)+)\{([^}]*)\}")


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_every_class_has_a_rule_that_can_be_read_in_light_and_dark() -> None:
    tokens = {name: (light, dark) for name, light, dark in TOKEN.findall((STYLES / "tokens.css").read_text())}
    found = RULE.findall((STYLES / "components" / "prose.css").read_text())
    rules = {name.strip(" .\n"): rule for names, rule in found for name in names.split(",")}
    assert set(rules) == set(CLASSES.values())
    for name, rule in rules.items():
        uses = dict(re.findall(r"([a-z]+): var\(--([\w-]+)\)", rule))
        for ink, paper in zip(tokens[uses.get("color", "ink")], tokens[uses.get("background", "panel")], strict=True):
            assert contrast(ink, paper) >= 4.5, name
