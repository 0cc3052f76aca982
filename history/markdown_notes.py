"""Footnotes: `text[^1]` here, `[^1]: note` anywhere, the notes at the end in the order in which they are asked for.

A note that nobody asks for is shown after the others: what was said is shown. Ids begin with a prefix that the page
chooses, because a page shows many texts and an id is one place.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

from history.markdown_syntax import Lists, indent_of

NOTE = re.compile(r" {0,3}\[\^(?P<label>[^\[\]\s]{1,50})\]:(?: +|$)")
_ASKED = re.compile(r"\[\^([^\[\]\s]{1,50})\]")


class Notes:
    """The notes of one text, and what refers to them."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, prefix: str) -> None:
        self.prefix = prefix
        self.bodies: dict[str, list[str]] = {}
        self.numbers: dict[str, int] = {}
        self.asked: set[str] = set()
        self.shown: set[str] = set()

    def register(self, md: markdown.Markdown) -> None:
        md.preprocessors.register(_Collect(md, self), "notes", 20)
        md.inlinePatterns.register(_Refer(md, self), "notes", 175)
        md.treeprocessors.register(_Show(md, self), "notes", 30)

    def number(self, text: str) -> None:
        self.asked = {*_ASKED.findall(text)} & {*self.bodies}
        for label in [*_ASKED.findall(text), *self.bodies]:
            if label in self.bodies:
                self.numbers.setdefault(label, len(self.numbers) + 1)

    def place_of(self, label: str) -> str:
        return f"{self.prefix}fn-{self.numbers[label]}"

    def place_of_reference(self, label: str) -> str:
        return f"{self.prefix}fnref-{self.numbers[label]}"


class _Collect(Preprocessor):
    """Takes the notes out of the text. One goes on to the next empty line, and behind it as long as it is indented."""

    def __init__(self, md: markdown.Markdown, notes: Notes) -> None:
        super().__init__(md)
        self.notes = notes

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        body: list[str] | None = None
        for line in lines:
            if note := NOTE.match(line):
                body = self.notes.bodies.setdefault(note["label"], [])
                body += ["", line[note.end() :]]
                out.append("")
            elif body is not None and _goes_on(line, body):
                body.append(line[min(4, indent_of(line)) :])
            else:
                body = None
                out.append(line)
        self.notes.number("\n".join(out))
        return out


def _goes_on(line: str, body: list[str]) -> bool:
    return not line.strip() or bool(body[-1].strip()) or indent_of(line) >= 4


class _Refer(InlineProcessor):
    def __init__(self, md: markdown.Markdown, notes: Notes) -> None:
        super().__init__(_ASKED.pattern, md)
        self.notes = notes

    def handleMatch(  # type: ignore[override]  # noqa: N802
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element | None, int | None, int | None]:
        label = m[1]
        if label not in self.notes.numbers:
            return None, None, None
        raised = ElementTree.Element("sup")
        link = ElementTree.SubElement(raised, "a", {"href": f"#{self.notes.place_of(label)}"})
        link.text = markdown.util.AtomicString(str(self.notes.numbers[label]))
        if label not in self.notes.shown:  # the way back leads to the first place
            self.notes.shown.add(label)
            raised.set("id", self.notes.place_of_reference(label))
        return raised, m.start(), m.end()


class _Show(Treeprocessor):
    """Before the texts are looked into, so that notes are written like everything else."""

    def __init__(self, md: markdown.Markdown, notes: Notes) -> None:
        super().__init__(md)
        self.notes = notes

    def run(self, root: ElementTree.Element) -> None:
        if not self.notes.numbers:
            return
        box = ElementTree.SubElement(root, "div", {"class": "footnotes"})
        every = ElementTree.SubElement(box, "ol")
        for label in self.notes.numbers:
            item = ElementTree.SubElement(every, "li", {"id": self.notes.place_of(label)})
            self.md.parser.parseChunk(item, "\n".join(Lists(self.md).run(self.notes.bodies[label])).strip())
            if label in self.notes.asked:
                self._lead_back(item, label)

    def _lead_back(self, item: ElementTree.Element, label: str) -> None:
        last = item[-1] if len(item) and item[-1].tag == "p" else ElementTree.SubElement(item, "p")
        last.text = f"{last.text or ''} "
        back = ElementTree.SubElement(last, "a", {"href": f"#{self.notes.place_of_reference(label)}"})
        back.text = markdown.util.AtomicString("↩")
