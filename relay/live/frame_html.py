"""How the text of an answer on its way looks on the page, as far as it changes with every frame.

Plain strings and no templates: with hundreds of answers at once, a template would cost more than what it says. Blocks
and open ends come from the renderer and are safe, names of elements are ours; only words are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

# The last of it is a paragraph or an item of a list, alone or within quotations and lists, or code.
_OPEN_END = re.compile(r"(?:\n?</code></pre></div>|</(?:p|li)>(?:\s*</(?:p|li|ul|ol|blockquote|div)>)*)\s*$")


@dataclass(frozen=True, slots=True)
class Tail:
    """The open end as HTML. Where it `is_open`, more words can be put between `before` and `after`, behind `space`."""

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
        """`added` are the words that were put behind it since."""
        end = f'<span id="{element}-end">{self.space}{escape(added)}</span>{self.after}' if self.is_open else ""
        return mark_safe(f'<div class="tail" id="{element}-tail">{self.before}{end}</div>')  # noqa: S308  see above


def prose(element: str, blocks: Iterable[str], tail: Tail, added: str = "") -> SafeString:
    """A part that is text: what is finished, and the open end."""
    inner = f'<div class="blocks" id="{element}-blocks">{"".join(blocks)}</div>\n{tail.html(element, added)}'
    return mark_safe(f'<div class="prose" id="{element}">{inner}</div>')  # noqa: S308  see above


def new_part(parts: str, html: str) -> str:
    return f'<div hx-swap-oob="beforeend:#{parts}">{html}</div>'


def more_words(element: str, text: str) -> str:
    if not text:
        return ""
    return f'<span hx-swap-oob="beforeend:#{element}-end">{escape(text)}</span>'


def open_end(element: str, blocks: Iterable[str], tail: Tail) -> str:
    """What is finished goes behind what was finished before, and the open end is another one."""
    finished = "".join(blocks)
    added = f'<div hx-swap-oob="beforeend:#{element}-blocks">{finished}</div>' if finished else ""
    return f"{added}\n{tail.html(element)}"
