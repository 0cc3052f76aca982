"""HTML snippets of a live answer that change with every frame.

Strings instead of templates, because with hundreds of answers at once templates take most of the CPU time. Blocks and
open ends come from the Markdown renderer and are safe, ids of elements are ours; only plain text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

# The HTML ends with a paragraph, a list item (also nested) or a code block.
_OPEN_END = re.compile(r"(?:\n?</code></pre></div>|</(?:p|li)>(?:\s*</(?:p|li|ul|ol|blockquote|div)>)*)\s*$")


@dataclass(frozen=True, slots=True)
class Tail:
    """HTML of the open end. If it `is_open`, text can be inserted between `before` and `after`, after `space`."""

    before: str = ""
    space: str = ""
    after: str = ""
    is_open: bool = False

    @classmethod
    def of(cls, text: str, html: str, *, is_code: bool = False) -> Tail:
        end = _OPEN_END.search(html, max(0, len(html) - 500))
        if end is None or is_code != html.endswith("</code></pre></div>"):
            return cls(html)
        before, after = html[: end.start()], html[end.start() :]
        if is_code:
            return cls(before, "\n" if text.endswith("\n") and after[0] == "\n" else "", after.lstrip("\n"), True)
        space = " " if text[-1:].isspace() and not before[-1:].isspace() else ""
        return cls(before, space, after, True)

    def html(self, element: str, added: str = "") -> SafeString:
        """`added` is the text that was appended since."""
        end = f'<span id="{element}-end">{self.space}{escape(added)}</span>{self.after}' if self.is_open else ""
        return mark_safe(f'<div class="tail" id="{element}-tail">{self.before}{end}</div>')  # noqa: S308  see above


def text_part_html(element: str, blocks: Iterable[str], tail: Tail, added: str = "") -> SafeString:
    """A text part: finished blocks and the open end."""
    inner = f'<div class="blocks" id="{element}-blocks">{"".join(blocks)}</div>\n{tail.html(element, added)}'
    return mark_safe(f'<div class="prose" id="{element}">{inner}</div>')  # noqa: S308  see above


def new_part_html(parts: str, html: str) -> str:
    return f'<div hx-swap-oob="beforeend:#{parts}">{html}</div>'


def append_text_html(element: str, text: str) -> str:
    if not text:
        return ""
    return f'<span hx-swap-oob="beforeend:#{element}-end">{escape(text)}</span>'


def replace_tail_html(element: str, blocks: Iterable[str], tail: Tail) -> str:
    """Append finished blocks and replace the open end."""
    finished = "".join(blocks)
    added = f'<div hx-swap-oob="beforeend:#{element}-blocks">{finished}</div>' if finished else ""
    return f"{added}\n{tail.html(element)}"
