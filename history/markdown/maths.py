r"""Formulas: `$…$`, `\(…\)` in a line, `$$…$$`, `\[…\]` in a line or on lines of their own.

The TeX stays as it was written, marked by a class, and a script of the page typesets it. Dollars between words are
prices: a formula begins and ends at a character that is not a space, and no digit or letter follows its last dollar.
"""

import re

from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

_CLOSINGS = {"$$": "$$", "\\[": "\\]"}

# The content never holds the closing mark, so a search from each opening mark ends at the next mark: linear.
_INLINE = {
    "$$": (re.compile(r"\$\$([^$]++)\$\$"), "math block"),
    "\\[": (re.compile(r"\\\[((?:[^\\]|\\[^\[\]])++)\\\]"), "math block"),
    "\\(": (re.compile(r"\\\(((?:[^\\]|\\[^()])++)\\\)"), "math inline"),
    "$": (re.compile(r"(?<![0-9A-Za-z\\$])\$(?!\s)((?:\\.|[^$\\\n])++)(?<!\s)\$(?![0-9A-Za-z$])"), "math inline"),
}


def parse_inline_formula(state: StateInline, silent: bool) -> bool:
    """Inline rule at `$`, `\\(` and `\\[`."""
    opening = state.src[state.pos : state.pos + 2]
    pattern, kind = _INLINE.get(opening) or _INLINE.get(opening[:1]) or (None, "")
    match = pattern.match(state.src, state.pos, state.posMax) if pattern else None
    if not match:
        return False
    if not silent:
        token = state.push("math", "span", 0)
        token.content, token.info = match[1].strip(), kind
    state.pos = match.end()
    return True


def parse_formula_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule: a formula with lines to itself, which ends before the next empty line.

    With `env["is_partial"]` the text is still being written. Then a formula without an end, and without an empty line
    behind it, takes all remaining lines: more text may still turn them into a formula.
    """
    position = state.bMarks[start_line] + state.tShift[start_line]
    opening = state.src[position : position + 2]
    if opening not in _CLOSINGS or state.is_code_block(start_line):
        return False
    line = _find_end(state, start_line, end_line, opening)
    if line is None:
        return False
    if silent:
        return True
    token = state.push("math_block", "div", 0)
    lines = state.getLines(start_line, line, state.blkIndent, False).strip()
    token.content = lines[2:-2].strip() if lines.endswith(_CLOSINGS[opening]) else lines[2:].strip()
    token.map = [start_line, line]
    token.info = "" if lines.endswith(_CLOSINGS[opening]) and len(lines) > 2 else "open"
    state.line = line
    return True


def _find_end(state: StateBlock, start_line: int, end_line: int, opening: str) -> int | None:
    """Return the line behind the formula; None where there is no formula.

    A search that failed is remembered, because each line of a paragraph may begin another one.
    """
    closing, indent = _CLOSINGS[opening], min(state.blkIndent, state.sCount[start_line])
    without_end: dict[tuple[str, int], int] = state.env.setdefault("formulas_without_end", {})
    if start_line < without_end.get((opening, indent), 0):
        return None
    position = state.bMarks[start_line] + state.tShift[start_line] + 2
    line = start_line
    while closing not in (text := state.src[position : state.eMarks[line]]):
        line += 1
        if line >= end_line or state.isEmpty(line) or state.sCount[line] < indent:
            if line >= end_line and state.env.get("is_partial"):
                return line
            without_end[opening, indent] = line
            return None
        position = state.bMarks[line] + state.tShift[line]
    if text.rstrip().endswith(closing) and text.count(closing) == 1:
        return line + 1
    without_end[opening, indent] = line
    return None
