r"""The Markdown parser: markdown-it-py with GitHub's extensions and formulas, and the blocks of a text.

A text is parsed in two steps. The first finds its blocks (paragraphs, lists, tables, …) and the definitions of links
and footnotes. The second reads the words inside one block, so that blocks can be rendered and cached one by one.

Formulas are `$…$` and `\(…\)` in a line, `$$…$$` and `\[…\]` in a line or on lines of their own. The TeX stays as it
was written, marked by a class, and a script of the page typesets it. Dollars between words are prices: a formula begins
and ends at a character that is not a space, and no digit or letter follows its last dollar.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType

from history.markdown import rules

_CLOSINGS = {"$$": "$$", "\\[": "\\]"}

# The content never holds the closing mark, so a search from each opening mark ends at the next mark: linear.
_INLINE = {
    "$$": (re.compile(r"\$\$([^$]++)\$\$"), "math block"),
    "\\[": (re.compile(r"\\\[((?:[^\\]|\\[^\[\]])++)\\\]"), "math block"),
    "\\(": (re.compile(r"\\\(((?:[^\\]|\\[^()])++)\\\)"), "math inline"),
    "$": (re.compile(r"(?<![0-9A-Za-z\\$])\$(?!\s)((?:\\.|[^$\\\n])++)(?<!\s)\$(?![0-9A-Za-z$])"), "math inline"),
}


def parse_inline_formula(state: StateInline, silent: bool) -> bool:
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


MAX_BLOCK_LEVEL = 24  # a quote is one level and a list two; deeper content is shown as plain text
MAX_INLINE_LEVEL = 10  # brackets within brackets: each level costs time

# Where a rule may match; the parser's own list stops at many more characters, which costs time.
_TERMINATORS = re.compile(r"[\n$&*<\[\]\\_`~]|!(?=\[)|:(?=//)|@|w(?=ww\.)")

LOOKS_PER_LINE = 8  # ordinary text looks at each of its lines about as often as quotes are nested in it
MIN_LOOKS = 200


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """One top-level block: its tokens, its first line and the line behind it."""

    tokens: list[Token]
    start: int
    end: int

    @property
    def kind(self) -> str:
        return self.tokens[0].type.removesuffix("_open")


@dataclass(frozen=True, slots=True)
class Document:
    """The blocks of a text, and the definitions that words in them refer to."""

    blocks: list[MarkdownBlock]
    env: EnvType
    footnotes: rules.Footnotes = field(default_factory=rules.Footnotes)

    @property
    def has_definitions(self) -> bool:
        return bool(self.env.get("references") or self.footnotes.bodies)


def parse_blocks(text: str, *, prefix: str = "", is_partial: bool = False) -> Document:
    """Find the blocks of a text. A partial text is still being written: see `parse_formula_block`."""
    env: EnvType = {"is_partial": is_partial}
    tokens: list[Token] = []
    _BLOCK_PARSER.block.parse(text, _BLOCK_PARSER, env, tokens)
    starts = [place for place, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0]
    parts = (tokens[start:end] for start, end in pairwise([*starts, len(tokens)]))
    blocks = [MarkdownBlock(part, *(part[0].map or (0, 0))) for part in parts]
    document = Document(blocks, env, rules.Footnotes(prefix))
    for block in blocks:
        if block.kind == "footnote":
            document.footnotes.bodies.setdefault(block.tokens[0].info, []).append(block.tokens[1:-1])
    env["footnotes"] = document.footnotes
    return document


def parse_words(tokens: list[Token], env: EnvType) -> None:
    for token in tokens:
        if token.type == "inline":
            token.children = []
            _INLINE_PARSER.inline.parse(token.content, _INLINE_PARSER, env, token.children)
            for children in _nested(token.children):
                rules.pair_tags(children)
    for item, opening, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if item.type == "list_item_open" and "checked" in item.meta and opening.type == "paragraph_open":
            box = Token("text", "", 0, content="☑ " if item.meta["checked"] else "☐ ")
            inline.children = [box, *(inline.children or [])]


def _nested(children: list[Token]) -> Iterator[list[Token]]:
    yield children
    for child in children:
        if child.children:
            yield from _nested(child.children)


def _stop_nesting(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule: show what is nested too deeply as text, where the parser would drop it."""
    if silent or state.level < MAX_BLOCK_LEVEL:
        return False
    line = start_line
    while line < end_line and not state.isEmpty(line) and not 0 <= state.sCount[line] < state.blkIndent:
        line += 1
    line = max(line, start_line + 1)
    token = state.push("plain", "", 0)
    token.content = state.getLines(start_line, line, state.blkIndent, False).strip()
    token.map = [start_line, line]
    state.line = line
    return True


def parse_quote(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule at `>`: a quote, with a limit on the lines that are read.

    The library's rule looks for the end of a quote down to the next empty line, and each quote begins the search anew:
    text like `> # a` and `b` in turns takes quadratic time. So the lines are counted; quotes beyond the limit are text.
    """
    if silent or state.src[state.bMarks[start_line] + state.tShift[start_line]] != ">":
        return blockquote(state, start_line, end_line, silent)
    if "quote_looks" not in state.env:
        state.env["quote_looks"] = MIN_LOOKS + LOOKS_PER_LINE * state.lineMax
        state.env["paragraph_ends"] = _paragraph_ends(state)
    state.env["quote_looks"] -= min(end_line, state.env["paragraph_ends"][start_line]) - start_line
    return state.env["quote_looks"] > 0 and blockquote(state, start_line, end_line, silent)


def _paragraph_ends(state: StateBlock) -> list[int]:
    ends = [state.lineMax] * (state.lineMax + 1)
    for line in range(state.lineMax - 1, -1, -1):
        ends[line] = line if state.isEmpty(line) else ends[line + 1]
    return ends


def _make_parser(max_nesting: int) -> MarkdownIt:
    options = {"tasklists": True, "alerts": True, "strikethrough_single_tilde": True, "maxNesting": max_nesting}
    parser = MarkdownIt("commonmark", {"html": False, **options}).enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline"])
    block, inline = parser.block.ruler, parser.inline.ruler
    block.before("table", "nesting", _stop_nesting)
    block.at("blockquote", parse_quote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    block.before("fence", "formula", parse_formula_block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    block.before("reference", "footnote", rules.parse_definition, {"alt": ["paragraph", "reference"]})
    inline.disable("strikethrough")
    inline.at("emphasis", rules.parse_emphasis)
    inline.before("escape", "formula", parse_inline_formula)
    inline.before("link", "footnote", rules.parse_reference)
    inline.before("autolink", "tag", rules.parse_tag)
    inline.push("web_address", rules.parse_web_address)
    inline.push("email_address", rules.parse_email_address)
    parser.inline.terminator_re = _TERMINATORS
    return parser


# The parser drops blocks beyond its own limit, so that has to be higher than ours.
_BLOCK_PARSER = _make_parser(MAX_BLOCK_LEVEL + 5)
_INLINE_PARSER = _make_parser(MAX_INLINE_LEVEL)
