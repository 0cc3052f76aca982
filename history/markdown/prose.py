"""A short way to HTML for plain prose: paragraphs and flat lists of words, some of them strong or code.

This is most of what models write, and an answer on its way is rendered again and again. Such a text has only one
reading, so its HTML is written in one pass, many times faster than by the parser. One character that might mean
something else is enough to leave the text to the parser.
"""

from __future__ import annotations

import re

# Marks, controls, and spaces that are stripped in some places and kept in others.
_OTHER = (
    r"\\`*_\[\]<>&$|~^#@\x00-\x1f\x7f-\xa0\xad\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff0-\uffff"
)
_WORDS = rf"[^{_OTHER}]"
_STRONG = rf"\*\*(?=\w){_WORDS}++(?<=\w)\*\*(?!\*)"
_CODE = r"`(?=[!-~])(?![*_ ])[\w .,:;=+/()*-]{1,80}(?<![ *_])`(?!`)"
_LINE = rf"(?=[^\W\d_]|\*\*\w|`)(?:{_WORDS}++|(?<!\*){_STRONG}|(?<!`){_CODE})++"
_PARAGRAPH = re.compile(rf"{_LINE}(?:(?<!  )\n{_LINE})*+")
_LIST = re.compile(rf"- {_LINE}(?:(?<!  )\n- {_LINE})*+")
_END_SPACE = re.compile(r" +$", re.MULTILINE)
_GAP = re.compile(r"\n\n+")
_ADDRESS = re.compile(r"://|www\.")
_MARKED = re.compile(r"`([^`]++)`|\*\*([^*]++)\*\*")


def prose_html(text: str) -> str | None:
    """Return the same HTML as the parser's; None for a text that is more than plain prose."""
    if _ADDRESS.search(text):
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
    return f"<p>{_inline(_END_SPACE.sub('', block))}</p>".replace("\n", "<br>\n")


def _list(block: str) -> str:
    return f"<ul>\n<li>{_inline(_END_SPACE.sub('', block[2:]))}</li>\n</ul>".replace("\n- ", "</li>\n<li>")


def _inline(words: str) -> str:
    return _MARKED.sub(_tagged, words) if "`" in words or "*" in words else words


def _tagged(found: re.Match[str]) -> str:
    return f"<code>{found[1]}</code>" if found[1] else f"<strong>{found[2]}</strong>"
