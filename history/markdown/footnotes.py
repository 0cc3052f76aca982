"""Footnotes: `text[^1]` refers to `[^1]: note`; the notes are shown at the end, those without a reference last."""

import re
from dataclasses import dataclass, field

from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_DEFINITION = re.compile(r"\[\^([^\[\]\s]{1,50})\]:(?=[ \t\n]|$)")
_REFERENCE = re.compile(r"\[\^([^\[\]\s]{1,50})\]")
_CONTENT_INDENT = 4


@dataclass
class Footnotes:
    """The notes of one text: their tokens by label, and the numbers given so far (1 for the first of `labels`)."""

    prefix: str = ""
    bodies: dict[str, list[list[Token]]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)

    def number_of(self, label: str) -> int:
        if label not in self.numbers:
            self.labels.append(label)
            self.numbers[label] = len(self.labels)
        return self.numbers[label]

    def anchor(self, number: int) -> str:
        return f"{self.prefix}fn-{number}"

    def reference_anchor(self, number: int) -> str:
        return f"{self.prefix}fnref-{number}"

    @property
    def anchors(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(self.prefix)}fn(?:ref)?-\d+")


def parse_definition(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule: a note goes to the next empty line, and behind it as far as its lines are indented by four."""
    position = state.bMarks[start_line] + state.tShift[start_line]
    ends_note = silent and state.parentType == "paragraph" and state.env.get("is_in_note")
    if (state.level > 0 and not ends_note) or state.is_code_block(start_line):
        return False
    match = _DEFINITION.match(state.src, position, state.eMarks[start_line])
    if not match or (ends_note and state.sCount[start_line] >= state.blkIndent):
        return False
    if silent:
        return True
    opening = state.push("footnote_open", "", 1)
    opening.info = match[1]
    opening.map = lines = [start_line, 0]
    state.env["is_in_note"] = True
    _parse_body(state, start_line, end_line, body=match.end())
    state.env["is_in_note"] = False
    state.push("footnote_close", "", -1)
    lines[1] = state.line
    return True


def _parse_body(state: StateBlock, start_line: int, end_line: int, *, body: int) -> None:
    """Parse the lines of the note as blocks; its first line begins at `body`."""
    saved = state.bMarks[start_line], state.tShift[start_line], state.sCount[start_line], state.parentType
    text = state.skipSpaces(body)
    state.bMarks[start_line], state.tShift[start_line] = body, min(text, state.eMarks[start_line]) - body
    state.blkIndent += _CONTENT_INDENT
    state.sCount[start_line] = state.blkIndent
    state.parentType = "footnote"
    if text >= state.eMarks[start_line]:
        state.line = start_line + 1
        if state.line < end_line and state.sCount[state.line] >= state.blkIndent:
            state.md.block.tokenize(state, state.line, end_line)
    else:
        state.md.block.tokenize(state, start_line, end_line)
    state.blkIndent -= _CONTENT_INDENT
    state.bMarks[start_line], state.tShift[start_line], state.sCount[start_line], state.parentType = saved


def parse_reference(state: StateInline, silent: bool) -> bool:
    """Inline rule at `[^`; a label without a note stays text."""
    notes: Footnotes | None = state.env.get("footnotes")
    if notes is None or state.linkLevel > 0 or not state.src.startswith("[^", state.pos):
        return False
    match = _REFERENCE.match(state.src, state.pos, state.posMax)
    if not match or match[1] not in notes.bodies:
        return False
    if not silent:
        token = state.push("footnote_reference", "sup", 0)
        number = notes.number_of(match[1])
        token.meta = {"number": number, "is_first": match[1] not in notes.referenced}
        notes.referenced.add(match[1])
    state.pos = match.end()
    return True
