"""Emphasis that eats no letters.

Python-Markdown pairs a closing mark with a longer opening one where an emphasis begins between the two (`*b**b*c`), and
takes whatever stands behind the closing mark for the rest of it: a letter, or half of a placeholder for code. Such a
pair is none: its marks are shown as they were typed.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import markdown
from markdown.inlinepatterns import DelimiterProcessor


class Emphasis(DelimiterProcessor):
    text = ""

    def handleMatch(  # type: ignore[override]  # noqa: N802  their name
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element | None, int | None, int | None]:
        self.text = data
        return super().handleMatch(m, data)

    def add_region(self, delim: Any, a: int, b: int, c: int, d: int, size: int) -> None:
        """The marks from `a` to `b` open what those from `c` to `d` close."""
        if self.text[a:b] == self.text[c:d]:
            super().add_region(delim, a, b, c, d, size)


def register_emphasis(md: markdown.Markdown) -> None:
    emphasis = Emphasis("*", "strong,em", md)
    emphasis.add("_", "strong,em", smart=True)
    md.inlinePatterns.register(emphasis, "em_strong", 60)
