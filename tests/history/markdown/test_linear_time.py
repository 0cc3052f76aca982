"""Hostile Markdown of twice the length takes about twice the time: no text holds a worker for long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.growth import assert_linear
from history.markdown import cache, render, split_blocks

pytestmark = pytest.mark.any_database

REPEATED = {
    "brackets": "[",
    "image brackets": "![",
    "brackets and stars": "[*",
    "closing brackets": "a](",
    "half a link": "[a](b",
    "half a link with a title": '[a](<b "c',
    "links": "[a](https://b.example) ",
    "links to a name": "[a][b] ",
    "bare addresses": "https://a.example/b ",
    "addresses one in another": "http://",
    "address ends": "https://a.example/))).., ",
    "at signs": "a@",
    "e-mail addresses": "a@b.example ",
    "autolinks": "<a@b.example>",
    "stars": "*a ",
    "stars and underscores": "*a_ ",
    "strong in strong": "**a*",
    "tildes": "~a ~~b",
    "backticks": "``a`",
    "escapes": "\\`\\*",
    "dollars": "$a ",
    "formulas": "$a$ \\(b\\) ",
    "half a formula": "\\(a",
    "display formulas": "\\[a $$",
    "formula lines": "\\[\n",
    "dollar lines": "$$ a\n",
    "entities": "&a&#x",
    "tags": "<kbd><sup>",
    "tags and stars": "<sub>*",
    "angle brackets": "<a ",
    "long line": "word ",
    "lines": "a\n",
    "hard breaks": "a\\\n",
    "quotes": "> a\n",
    "quotes and text": "> a\nb\n",
    "quotes in quotes": "> > > > > a\n",
    "alerts": "> [!NOTE]\n> a\n\n",
    "items": "- a\n",
    "tasks": "- [ ] a\n",
    "loose numbers": "1) a\n\n",
    "two lists": "1. a\n   - b\n",
    "lists in quotes": "> - ",
    "headings": "# a\n",
    "underlined headings": "a\n===\n",
    "underlines": "=\n",
    "rules": "***\n",
    "indented code": "    a\n",
    "fences": "```\n",
    "fences of two kinds": "```a\n~~~\n",
    "highlighted code": "```python\nif a: 1\n```\n",
    "tables": "a|b\n-|-\n1|2\n\n",
    "rows that are no table": "|a|b|\n",
    "definitions": "[a]: b 'c\n",
    "notes": "[^1]: a\n",
    "half a note": "[^",
}


def make_repeated(piece: str) -> Callable[[int], str]:
    return lambda n: (piece * (n // len(piece) + 1))[:n]


def lines_of(make: Callable[[int], str], each: int) -> Callable[[int], str]:
    return lambda n: "".join(make(number) for number in range(n // each))


MADE: dict[str, Callable[[int], str]] = {
    "nested quotes": lambda n: ("> " * 30 + "a\n") * (n // 62),
    "quotes that end early": make_repeated("> # a\nb\n"),
    "deep quotes that end early": make_repeated(">" * 50 + "\nb\n"),
    "one line of quotes": lambda n: "> " * (n // 2) + "a",
    "one line of bullets": lambda n: "- " * (n // 2) + "a",
    "lists deeper and deeper": lines_of(lambda number: "  " * (number % 25) + "- a\n", 28),
    "wide table": lambda n: "".join(f"{cell * (n // 8)}|\n" for cell in ("|a", "|-", "|b", "|c")),
    "rows shorter than their head": lambda n: f"{'|a' * 50}|\n{'|-' * 50}|\n" + "|\n" * (n // 100),
    "an open fence": lambda n: "```text\n" + "a `` b\n" * (n // 7),
    "an open formula": lambda n: "$$\n" + "a\n" * (n // 2),
    "longer and longer backticks": lambda n: "".join("`" * size + " " for size in range(1, int((2 * n) ** 0.5))),
    "references to one definition": lambda n: "[a]: https://a.example\n\n" + "[a] " * (n // 4),
    "many definitions": lines_of(lambda number: f"[a{number}]: /b\n", 10),
    "references to one note": lambda n: "[^1]: a\n\n" + "a[^1]\n" * (n // 6),
    "half references": lambda n: "[^1]: a\n\n" + "[^" * (n // 2),
    "notes that refer to notes": lines_of(lambda number: f"a[^{number}]\n\n[^{number}]: b[^{number + 1}]\n\n", 25),
    "notes without references": lines_of(lambda number: f"[^{number}]: a\n", 10),
}


TEXTS = {name: make_repeated(piece) for name, piece in REPEATED.items()} | MADE


@pytest.mark.parametrize("name", TEXTS)
def test_twice_the_text_takes_about_twice_the_time(name: str) -> None:
    def render_anew(text: str) -> None:
        cache.clear()
        render(text)

    assert_linear(render_anew, TEXTS[name], size=5_000, runs=2)


@pytest.mark.parametrize("name", ["lines", "items", "formula lines", "dollar lines", "an open fence", "definitions"])
def test_looking_for_finished_blocks_takes_twice_the_time_for_twice_the_text(name: str) -> None:
    assert_linear(split_blocks, TEXTS[name], size=5_000, runs=2)
