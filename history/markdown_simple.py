"""Ordinary writing by a short way: paragraphs and flat lists of words, with some of them strong or code.

This is most of what models write, and an answer on its way is rendered again and again. For such a text there is only
one reading, so its HTML can be written down in one pass; the real renderer takes twenty times as long for the same
characters. Whatever might mean something else is left to it: one character that is not known here is enough.
"""

from __future__ import annotations

import re

# Longer ones might be more work than the real renderer is allowed to do, and then it shows them as they were typed.
MOST_CHARS = 4_000

# Marks, controls, and spaces that are stripped in some places and kept in others.
_OTHER = (
    r"\\`*_\[\]<>&$|~^#\x00-\x1f\x7f-\xa0\xad\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff0-\uffff"
)
_WORDS = rf"[^{_OTHER}]"
_STRONG = rf"\*\*(?=\w){_WORDS}++(?<=\w)\*\*(?!\*)"
_CODE = r"`(?=[!-~])(?![*_ ])[\w .,:;=+/()*-]{1,80}(?<![ *_])`(?!`)"
_LINE = rf"(?=[^\W\d_]|\*\*\w|`)(?:{_WORDS}++|(?<!\*){_STRONG}|(?<!`){_CODE})++"
_PARAGRAPH = re.compile(rf"{_LINE}(?:(?<!  )\n{_LINE})*+")
_LIST = re.compile(rf"- {_LINE}(?:(?<!  )\n- {_LINE})*+")
_GAP = re.compile(r"\n\n+")
_MARKED = re.compile(r"`([^`]++)`|\*\*([^*]++)\*\*")


def simple_html(text: str) -> str | None:
    """The same HTML as the renderer's; None where the text is not as simple as that."""
    if len(text) > MOST_CHARS:
        return None
    blocks: list[str] = []
    for block in _GAP.split(text.strip("\n")):
        if _PARAGRAPH.fullmatch(block):
            blocks.append(_paragraph(block))
        elif _LIST.fullmatch(block) and not (blocks and blocks[-1].startswith("<ul>")):
            blocks.append(_list(block))
        else:
            return None
    return "\n".join(blocks)


def _paragraph(block: str) -> str:
    return f"<p>{_inline(block)}</p>".replace("\n", "<br>\n")


def _list(block: str) -> str:
    return f"<ul>\n<li>{_inline(block[2:])}</li>\n</ul>".replace("\n- ", "</li>\n<li>")


def _inline(words: str) -> str:
    return _MARKED.sub(_tagged, words) if "`" in words or "*" in words else words


def _tagged(found: re.Match[str]) -> str:
    return f"<code>{found[1]}</code>" if found[1] else f"<strong>{found[2]}</strong>"
