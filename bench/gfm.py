"""`python -m bench.gfm <folder>`: how many examples of GitHub's Markdown specification Parley renders as specified.

The folder holds `spec.txt` and, if wanted, `extensions.txt` of cmark-gfm. They are not part of this repository (their
licence is CC BY-SA). Exits with 1 below 97 %.

Not counted are examples with raw HTML and with images, which Parley shows as text and as links. Of a relative link, all
but its address is compared. What Parley adds around the specified HTML is taken away before the comparison: the head of
a code block, the box of a table, `rel`; headings are compared as one or two levels lower, and ☐ as a checkbox.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

GOAL = 97.0
_FENCE = "`" * 32
_RAW_TAG = re.compile(r"<(?:/?[A-Za-z][A-Za-z0-9-]*|!|\?)")
_AUTOLINK = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>|<[^\s<>]+@[^\s<>]+>")
_SCHEMES = ("http:", "https:", "mailto:")
_BLOCKS = {
    "blockquote", "br", "div", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "section", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
}  # fmt: skip


def examples_in(path: Path) -> Iterator[tuple[int, str, str]]:
    """Number, Markdown and HTML of each example."""
    number = 0
    lines = iter(path.read_text(encoding="utf-8").split("\n"))
    for line in lines:
        if not line.startswith(f"{_FENCE} example"):
            continue
        parts: list[list[str]] = [[]]
        for inner in lines:
            if inner == _FENCE:
                break
            if inner == ".":
                parts.append([])
            else:
                parts[-1].append(inner)
        number += 1
        source, html, *_ = (["\n".join(part) for part in parts] + [""])[:2]
        if "disabled" not in line:
            yield number, source.replace("→", "\t"), html.replace("→", "\t")


def is_applicable(source: str, html: str) -> bool:
    raw = _RAW_TAG.findall(_AUTOLINK.sub("", source))
    return "<img" not in html and html != "<IGNORE>" and not any(tag in html for tag in raw)


class _Comparable(HTMLParser):
    """HTML as a list of what matters in it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.kept: list[bool] = []
        self.in_head = self.in_pre = False
        self.language = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        css = given.get("class", "")
        if tag == "input":
            self.found.append("☑" if "checked" in given else "☐")
            return
        if tag not in ("br", "hr"):
            is_ours = css in ("code", "code-head", "code-lang", "table-box") or css.startswith("hl-")
            self.kept.append(not is_ours)
            if is_ours:
                self.in_head = self.in_head or css == "code-lang"
                return
        if tag == "code" and self.in_pre:
            self.language = css.removeprefix("language-") or self.language
            self.found.append(f"<code {self.language}>")
            return
        self.in_pre = self.in_pre or tag == "pre"
        self.found.append(f"<{_level(tag)} {sorted(_compared(given))}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("br", "hr", "input"):
            return
        is_kept = self.kept.pop() if self.kept else True
        self.in_head = False
        if tag == "pre":
            self.in_pre, self.language = False, ""
        if is_kept:
            self.found.append(f"</{_level(tag)}>")

    def handle_data(self, data: str) -> None:
        if self.in_head:
            self.language = data
        else:
            self.found.append(data if self.in_pre else re.sub(r"[ \n\t]+", " ", data))


def _level(tag: str) -> str:
    return "h3" if tag in ("h1", "h2") else tag


def _compared(given: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        is_shown = name in ("title", "start", "align") or (name == "href" and value.lower().startswith(_SCHEMES))
        if is_shown:
            yield name, value


def comparable(html: str) -> str:
    reader = _Comparable()
    reader.feed(html)
    reader.close()
    text = "".join(reader.found)
    names = "|".join(_BLOCKS)
    return re.sub(rf"\s*(</?(?:{names})(?: [^>]*)?>)\s*", r"\1", text) if "<pre" not in text else _outside_code(text)


def _outside_code(text: str) -> str:
    """The same where there is code, whose spaces count."""
    parts = re.split(r"(<pre .*?</pre>)", text, flags=re.DOTALL)
    names = "|".join(_BLOCKS)
    tidy = (
        part if part.startswith("<pre ") else re.sub(rf"\s*(</?(?:{names})(?: [^>]*)?>)\s*", r"\1", part)
        for part in parts
    )
    return "".join(part.strip() if not part.strip() else part for part in tidy)


def measure(folder: Path, *, show: bool) -> float:
    """Render as GitHub renders files, where a line break in a paragraph is a space."""
    with (
        patch("history.markdown.prose_html", return_value=None),
        patch.dict("history.markdown.html._FIXED", softbreak="\n"),
    ):
        return _measure(folder, show=show)


def _measure(folder: Path, *, show: bool) -> float:
    from history.markdown import render

    passed = counted = 0
    for path in (folder / "spec.txt", folder / "extensions.txt"):
        if not path.exists():
            continue
        for number, source, html in examples_in(path):
            if not is_applicable(source, html):
                continue
            ours = render(source)
            is_same = comparable(ours) == comparable(html)
            counted, passed = counted + 1, passed + is_same
            if show and not is_same:
                print(f"--- {path.name} {number}\n{source}\n... expected\n{html}\n... rendered\n{ours}\n")
    if not counted:
        sys.exit(f"No examples in {folder}: it should hold spec.txt of cmark-gfm.")
    percent = 100 * passed / counted
    print(f"{passed} of {counted} examples: {percent:.1f} %")
    return percent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gfm", description="Compare with GitHub's specification.")
    parser.add_argument("folder", type=Path, help="where spec.txt and extensions.txt are")
    parser.add_argument("--show", action="store_true", help="print the examples that differ")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp") as data:
        os.environ |= {"PARLEY_DATA_DIR": data, "DJANGO_SETTINGS_MODULE": "project.settings"}
        import django

        django.setup()
        return 0 if measure(given.folder, show=given.show) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
