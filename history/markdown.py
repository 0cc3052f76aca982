"""From Markdown to HTML that is safe to show: what models write, and what strangers make them write.

Two walls stand one behind the other. Raw HTML is never parsed as such, so `<b>` is shown as the three characters that
somebody typed; and whatever comes out of the renderer passes an allow-list of tags and attributes. Pictures from
elsewhere would tell their server who reads what, so they become links. A text that is long, or made to be slow, is
shown as it is: the renderer's cost is not linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from xml.etree import ElementTree

import markdown
import nh3
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from markdown.extensions import Extension
from markdown.inlinepatterns import SimpleTagInlineProcessor
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor

RENDERED_CHARS = 20_000
"""Longer texts are shown as they are."""

BRACKET_STEPS = 1_000_000
"""For every opening bracket, and after every heading, the renderer walks to the end of the paragraph; more steps than
this are not taken."""

BACKTICK_STEPS = 4_000_000
"""Likewise for backticks, which look no further than their own item of a list."""

LIST_DEPTH = 12
TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title"},
    "div": {"class", "tabindex"},
    "ol": {"start"},
    "pre": {"tabindex"},
}
SCHEMES = {"http", "https", "mailto"}

_ITEM = re.compile(r"(?P<indent> *)(?P<mark>[-*+]|\d{1,9}[.)])(?P<gap> +)(?=\S)")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})[^`]*$")


_HEADING = re.compile(r"^(?:#|[=-]+ *$)", re.MULTILINE)
_PIECE = re.compile(r"\n\s*\n|\n(?= *(?:[-*+]|\d{1,9}\.) )")


# A line that opens more quotes and lists than anybody reads; the renderer would go down into each.
_DEEP = re.compile(r"^(?:[ \t]*+(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))){25}", re.MULTILINE)


class TooMuchWork(Exception):
    """The text would keep the renderer busy for longer than anybody waits for a page."""


def render(text: str) -> SafeString:
    """The text as HTML without scripts, styles, foreign pictures or handlers, however it was meant."""
    text = text.replace("\0", "\ufffd")
    return plain(text) if len(text) > RENDERED_CHARS or _DEEP.search(text) else _rendered(text)


def plain(text: str) -> SafeString:
    """The text as it is, lines kept."""
    return format_html('<div class="plain">{}</div>', text)


@lru_cache(maxsize=256)
def _rendered(text: str) -> SafeString:
    try:
        html = _renderer().convert(text)
    except (RecursionError, TooMuchWork):
        return plain(text)
    clean = nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes=SCHEMES,
        link_rel="noopener nofollow",
    )
    return mark_safe(clean)  # noqa: S308  nh3 has just been over it


def _attribute(tag: str, name: str, value: str) -> str | None:
    """No address without a scheme: a model has no business sending its reader to a page of this house."""
    return value if name != "href" or value.lower().partition(":")[0] in SCHEMES else None


def _renderer() -> markdown.Markdown:
    """A fresh one each time: it keeps state between calls, and threads share this module."""
    return markdown.Markdown(extensions=["tables", "sane_lists", "nl2br", _Ours()], output_format="html")


class _Ours(Extension):
    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802  their name
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")
        md.inlinePatterns.register(SimpleTagInlineProcessor(r"(~~)(.+?)~~", "del"), "del", 40)
        md.preprocessors.register(_Fences(md), "fences", 25)
        md.preprocessors.register(_Lists(md), "lists", 15)
        md.preprocessors.register(_Limit(md), "limit", 10)
        md.treeprocessors.register(_ForReading(md), "for_reading", 5)


class _Fences(Preprocessor):
    """Takes code between fences out of the way, indented ones too; one that never ends, ends with the text."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        rest = iter(lines)
        for line in rest:
            if fence := _FENCE.match(line):
                out += ["", fence["indent"] + self._kept("\n".join(_code(rest, fence)).rstrip()), ""]
            else:
                out.append(line)
        return [*out, "", ""]

    def _kept(self, code: str) -> str:
        return self.md.htmlStash.store(f'<pre tabindex="0"><code>{escape(code)}\n</code></pre>')


def _code(lines: Iterator[str], fence: re.Match[str]) -> Iterator[str]:
    indent, end = len(fence["indent"]), fence["fence"]
    for line in lines:
        bare = line.strip()
        if bare.startswith(end) and not bare.strip(end[0]):
            return
        # Take the fence's own indentation off each line, as far as the line has it.
        yield line[min(indent, len(line) - len(line.lstrip(" "))) :]


class _Lists(Preprocessor):
    """Models begin a list right under its sentence, write `1)`, and indent by two, three or four.

    The renderer wants an empty line, `1.` and four; so depth is worked out here, from where the text of the item above
    begins.
    """

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        begins: list[int] = []  # where the text of each open item begins
        for line in lines:
            if item := _ITEM.match(line):
                out += self._item(line, item, begins, above=out[-1] if out else "")
            else:
                out.append(self._other(line, begins, after_blank=not out or not out[-1].strip()))
        return out

    def _item(self, line: str, item: re.Match[str], begins: list[int], *, above: str) -> list[str]:
        indent = len(item["indent"])
        if not begins and indent > 3:
            return [line]
        needs_space = above.strip() and (not begins or (above.startswith("    ") and not _ITEM.match(above)))
        while begins and indent < begins[-1]:
            begins.pop()
        depth = min(len(begins), LIST_DEPTH)
        begins.append(item.end())
        mark = item["mark"].replace(")", ".")
        written = f"{' ' * 4 * depth}{mark} {line[item.end() :]}"
        return ["", written] if needs_space else [written]

    def _other(self, line: str, begins: list[int], *, after_blank: bool) -> str:
        indent = len(line) - len(line.lstrip(" "))
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


class _Limit(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        paragraphs = re.split(r"\n\s*\n", text)
        steps = sum(
            (paragraph.count("[") + len(_HEADING.findall(paragraph))) * len(paragraph) for paragraph in paragraphs
        )
        ticks = sum(piece.count("`") * len(piece) for piece in _PIECE.split(text))
        if steps > BRACKET_STEPS or ticks > BACKTICK_STEPS:
            raise TooMuchWork
        return lines


class _ForReading(Treeprocessor):
    """Headings step down under the page's own, pictures become links, wide tables get a box that scrolls."""

    def run(self, root: ElementTree.Element) -> None:
        for element in list(root.iter()):
            if element.tag in ("h1", "h2"):
                element.tag = "h3"
            elif element.tag == "img":
                _make_link(element)
            elif element.tag == "pre":
                element.set("tabindex", "0")
        _box_tables(root)


def _make_link(image: ElementTree.Element) -> None:
    address, words, tail = image.get("src", ""), image.get("alt", ""), image.tail
    image.clear()
    image.tag, image.text, image.tail = "a", words or address, tail
    image.set("href", address)


def _box_tables(parent: ElementTree.Element) -> None:
    for place, child in enumerate(list(parent)):
        if child.tag == "table":
            box = ElementTree.Element("div", {"class": "table-box", "tabindex": "0"})
            box.append(child)
            box.tail, child.tail = child.tail, None
            parent[place] = box
        else:
            _box_tables(child)
