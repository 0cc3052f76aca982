"""Markdown as models write it, brought into the shape that the renderer reads.

Each of these goes over the lines of a text before it is parsed. Code and formulas are taken out of the way, so that
nobody finds emphasis in them; lists get the indentation that the renderer wants.
"""

from __future__ import annotations

import re
from html import escape
from xml.etree import ElementTree

import markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

from history.markdown_code import Colours, code_block
from history.markdown_work import Work

LIST_DEPTH = 12
TASKS = {" ": "☐", "x": "☑", "X": "☑"}

ITEM = re.compile(r"(?P<indent> *)(?P<mark>[-*+]|\d{1,9}[.)])(?P<gap> +)(?=\S)")
FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")

_TASK = re.compile(r"\[([ xX])\](?= +\S)")
FORMULA = re.compile(r" *(?P<begin>\$\$|\\\[)")
_FORMULA_ENDS = {"$$": "$$", "\\[": "\\]"}

# Between two words, dollars are prices: a formula begins and ends at something, and no digit follows it. What is inside
# never holds the mark that ends it, so each of these goes over a text once.
_INLINE_FORMULAS = {
    r"\$\$([^$]++)\$\$": "math block",
    r"(?<!\\)\\\[((?:[^\\]|\\[^\[\]])++)\\\]": "math block",
    r"(?<!\\)\\\(((?:[^\\]|\\[^()])++)\\\)": "math inline",
    r"(?<![0-9A-Za-z\\$])\$(?!\s)((?:\\.|[^$\\\n])++)(?<!\s)\$(?![0-9A-Za-z$])": "math inline",
}

Taken = tuple[str, int]
"""HTML to put in the place of so many lines."""


class Fences(Preprocessor):
    """Takes code between fences out of the way, indented ones too; one that never ends, ends with the text.

    Formulas that have lines to themselves go the same way.
    """

    def __init__(self, md: markdown.Markdown, work: Work) -> None:
        super().__init__(md)
        self.work = work
        self.begin()

    def begin(self) -> None:
        self.colours, self.formulas = Colours(self.work), FormulaLines()

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        place = 0
        while place < len(lines):
            if taken := self._code(lines, place) or self._formula(lines, place):
                html, length = taken
                indent = indent_of(lines[place])
                out += ["", " " * indent + self.md.htmlStash.store(html), ""]
                place += length
            else:
                out.append(lines[place])
                place += 1
        return [*out, "", ""]

    def _code(self, lines: list[str], place: int) -> Taken | None:
        fence = FENCE.match(lines[place])
        if not fence:
            return None
        self.work.spend(40)
        last = place + 1
        while last < len(lines) and not ends_fence(lines[last], fence["fence"]):
            last += 1
        indent = len(fence["indent"])
        # Take the fence's own indentation off each line, as far as the line has it.
        code = "\n".join(line[min(indent, indent_of(line)) :] for line in lines[place + 1 : last]).rstrip()
        return code_block(code, info=fence["info"], colours=self.colours), last + 1 - place

    def _formula(self, lines: list[str], place: int) -> Taken | None:
        behind = self.formulas.end_of(lines, place)
        if behind is None:
            return None
        tex = "\n".join(lines[place:behind]).strip()[2:-2]
        return f'<div class="math block">{escape(tex.strip())}</div>', behind - place


class FormulaLines:
    """Finds formulas that have lines to themselves. One that does not end before an empty line is none."""

    def __init__(self) -> None:
        self._none_before = dict.fromkeys(_FORMULA_ENDS, 0)

    def end_of(self, lines: list[str], place: int) -> int | None:
        """The place behind the formula that begins here, if one does. To be asked from the first line to the last."""
        begin = FORMULA.match(lines[place])
        if not begin or place < self._none_before[begin["begin"]]:
            return None
        end, line, behind = _FORMULA_ENDS[begin["begin"]], lines[place][begin.end() :], place + 1
        while end not in line and behind < len(lines) and lines[behind].strip():
            line, behind = lines[behind], behind + 1
        if line.rstrip().endswith(end) and line.count(end) == 1:
            return behind
        # There is no end in between, so there is none for those that begin in between.
        self._none_before[begin["begin"]] = behind - (end in line)
        return None


def ends_fence(line: str, fence: str) -> bool:
    bare = line.strip()
    return bare.startswith(fence) and not bare.strip(fence[0])


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class Formula(InlineProcessor):
    """A formula inside a line: the TeX as it was written, marked so that the page can typeset it."""

    def __init__(self, pattern: str, kind: str) -> None:
        super().__init__(pattern)
        self.kind = kind

    def handleMatch(  # type: ignore[override]  # noqa: N802  their name
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element, int, int]:
        formula = ElementTree.Element("span", {"class": self.kind})
        formula.text = AtomicString(m[1].strip())
        return formula, m.start(), m.end()


def register_formulas(md: markdown.Markdown) -> None:
    """After code in backticks, before everything else."""
    for number, (pattern, kind) in enumerate(_INLINE_FORMULAS.items()):
        md.inlinePatterns.register(Formula(pattern, kind), f"formula-{number}", 189 - number)
    md.ESCAPED_CHARS.append("$")


class Lists(Preprocessor):
    """Models begin a list right under its sentence, write `1)`, and indent by two, three or four.

    The renderer wants an empty line, `1.` and four; so depth is worked out here, from where the text of the item above
    begins. Tasks get a box.
    """

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        begins: list[int] = []  # where the text of each open item begins
        for line in lines:
            if item := ITEM.match(line):
                out += self._item(line, item, begins, above=out[-1] if out else "")
            else:
                out.append(self._other(line, begins, after_blank=not out or not out[-1].strip()))
        return out

    def _item(self, line: str, item: re.Match[str], begins: list[int], *, above: str) -> list[str]:
        indent = len(item["indent"])
        if not begins and indent > 3:
            return [line]
        needs_space = above.strip() and (not begins or (above.startswith("    ") and not ITEM.match(above)))
        while begins and indent < begins[-1]:
            begins.pop()
        depth = min(len(begins), LIST_DEPTH)
        begins.append(item.end())
        mark = item["mark"].replace(")", ".")
        written = f"{' ' * 4 * depth}{mark} {_with_box(line[item.end() :])}"
        return ["", written] if needs_space else [written]

    def _other(self, line: str, begins: list[int], *, after_blank: bool) -> str:
        indent = indent_of(line)
        if not begins or not line.strip():
            return line
        if indent == 0:
            if after_blank:
                begins.clear()
            return line
        if not after_blank:
            return line.lstrip(" ")
        depth = min(max(1, sum(begin <= indent for begin in begins)), LIST_DEPTH)
        more = max(0, indent - begins[min(depth, len(begins)) - 1])
        return " " * (4 * depth + more) + line.lstrip(" ")


def _with_box(text: str) -> str:
    task = _TASK.match(text)
    return TASKS[task[1]] + text[task.end() :] if task else text
