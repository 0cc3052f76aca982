"""From Markdown to HTML that is safe to show: what models write, and what strangers make them write.

Two walls stand one behind the other. Raw HTML is never parsed as such, so `<b>` is shown as the three characters that
somebody typed; and whatever comes out of the renderer passes an allow-list of tags, attributes and classes. Pictures
from elsewhere would tell their server who reads what, so they become links. A text that is long, or made to be slow, is
shown as it is: the renderer's cost is not linear.
"""

from __future__ import annotations

import re
import threading
from functools import lru_cache, partial
from xml.etree import ElementTree

import markdown
import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown.extensions import Extension
from markdown.inlinepatterns import SimpleTagInlineProcessor
from markdown.treeprocessors import Treeprocessor

from history.bodies import clean
from history.markdown_blocks import normalised, split_blocks
from history.markdown_code import CLASSES
from history.markdown_emphasis import register_emphasis
from history.markdown_notes import Notes
from history.markdown_simple import simple_html
from history.markdown_syntax import TASKS, Fences, Lists, register_formulas
from history.markdown_work import TooMuchWork, Work, meter

RENDERED_CHARS = 20_000
"""Longer texts are shown as they are."""

TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "span",
    "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title"},
    "div": {"class", "tabindex"},
    "li": {"class", "id"},
    "ol": {"start"},
    "pre": {"class", "tabindex"},
    "span": {"class"},
    "sup": {"id"},
}
ALLOWED_CLASSES = {
    *CLASSES.values(), "code", "code-head", "code-lang", "footnotes", "math block", "math inline", "mermaid-source",
    "table-box", "task",
}  # fmt: skip
SCHEMES = {"http", "https", "mailto"}

# A line that opens more quotes and lists than anybody reads; the renderer would go down into each.
_BLANK = re.compile(r"^[^\S\n]+$", re.MULTILINE)
_DEEP = re.compile(r"^(?:[ \t]*+(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))){25}", re.MULTILINE)


def render(text: str, *, prefix: str = "") -> SafeString:
    """The text as HTML without scripts, styles, foreign pictures or handlers, however it was meant.

    Ids of footnotes begin with the prefix; a page that shows several texts gives each its own.
    """
    text = _BLANK.sub("", normalised(clean(text)))
    if (simple := simple_html(text)) is not None:
        return mark_safe(simple)  # noqa: S308  it has no character that HTML would read as anything but itself
    return plain(text) if len(text) > RENDERED_CHARS or _DEEP.search(text) else _rendered(text, prefix)


def render_blocks(text: str, *, prefix: str = "") -> tuple[list[SafeString], SafeString]:
    """Text that is still being written: its finished blocks, which will not change any more, and the rest of it."""
    split = split_blocks(text)
    *finished, tail = (render(block, prefix=f"{prefix}{n}-") for n, block in enumerate([*split.finished, split.tail]))
    return finished, tail


def plain(text: str) -> SafeString:
    """The text as it is, lines kept."""
    return format_html('<div class="plain">{}</div>', text)


@lru_cache(maxsize=256)
def _rendered(text: str, prefix: str) -> SafeString:
    renderer = _renderers.free.pop() if _renderers.free else _Renderer()
    try:
        html = renderer.html(text, prefix=prefix)
    except (RecursionError, TooMuchWork):
        return plain(text)  # and leave the renderer that is stuck in the middle of it behind
    _renderers.free.append(renderer)
    return _clean(html, prefix=prefix)


def _clean(html: str, *, prefix: str) -> SafeString:
    place = re.compile(rf"{re.escape(prefix)}fn(?:ref)?-\d+")
    safe = nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=partial(_attribute, place=place),
        url_schemes=SCHEMES,
        link_rel="noopener nofollow",
    )
    return mark_safe(safe)  # noqa: S308  nh3 has just been over it


def _attribute(tag: str, name: str, value: str, *, place: re.Pattern[str]) -> str | None:
    """No address without a scheme: a model has no business sending its reader to a page of this house."""
    if name == "href":
        allowed = value.lower().partition(":")[0] in SCHEMES or (value[:1] == "#" and place.fullmatch(value, 1))
    elif name == "id":
        allowed = place.fullmatch(value)
    else:
        allowed = name != "class" or value in ALLOWED_CLASSES
    return value if allowed else None


class _Renderers(threading.local):
    """Those of this thread that nobody uses just now."""

    def __init__(self) -> None:
        self.free: list[_Renderer] = []


_renderers = _Renderers()


class _Renderer:
    """Used again and again: to set one up takes longer than to render a paragraph with it."""

    def __init__(self) -> None:
        self.ours = _Ours()
        self.md = markdown.Markdown(extensions=["tables", "sane_lists", "nl2br", self.ours], output_format="html")

    def html(self, text: str, *, prefix: str) -> str:
        self.md.reset()
        self.ours.begin(prefix)
        return self.md.convert(text)


class _Ours(Extension):
    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802  their name
        self.work, self.notes = Work(), Notes()
        self.fences = Fences(md, self.work)
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")
        register_emphasis(md)
        md.inlinePatterns.register(SimpleTagInlineProcessor(r"(~~)(.+?)~~", "del"), "del", 40)
        md.preprocessors.register(self.fences, "fences", 25)
        self.notes.register(md)
        md.preprocessors.register(Lists(md), "lists", 15)
        register_formulas(md)
        md.treeprocessors.register(_ForReading(md), "for_reading", 5)
        meter(md, self.work)

    def begin(self, prefix: str) -> None:
        """Another text: nothing is left of the one before."""
        self.work.begin()
        self.fences.begin()
        self.notes.begin(prefix)


class _ForReading(Treeprocessor):
    """Headings step down under the page's own, pictures become links, code and wide tables get a box that scrolls."""

    def run(self, root: ElementTree.Element) -> None:
        for element in list(root.iter()):
            if element.tag in ("h1", "h2"):
                element.tag = "h3"
            elif element.tag == "img":
                _make_link(element)
            elif element.tag == "li":
                _mark_task(element)
        _box(root)


def _make_link(image: ElementTree.Element) -> None:
    address, words, tail = image.get("src", ""), image.get("alt", ""), image.tail
    image.clear()
    image.tag, image.text, image.tail = "a", words or address, tail
    image.set("href", address)


def _mark_task(item: ElementTree.Element) -> None:
    first = item[0] if len(item) and not (item.text or "").strip() else item
    if (first.text or "").startswith(tuple(TASKS.values())):
        item.set("class", "task")


def _box(parent: ElementTree.Element) -> None:
    for place, child in enumerate(list(parent)):
        if child.tag in ("table", "pre"):
            parent[place] = _boxed_table(child) if child.tag == "table" else _boxed_code(child)
            parent[place].tail, child.tail = child.tail, None
        else:
            _box(child)


def _boxed_table(table: ElementTree.Element) -> ElementTree.Element:
    box = ElementTree.Element("div", {"class": "table-box", "tabindex": "0"})
    box.append(table)
    return box


def _boxed_code(code: ElementTree.Element) -> ElementTree.Element:
    """As code between fences, which has come by another way and is here already."""
    box = ElementTree.Element("div", {"class": "code"})
    ElementTree.SubElement(box, "div", {"class": "code-head"}).text = ""
    code.set("tabindex", "0")
    box.append(code)
    return box
