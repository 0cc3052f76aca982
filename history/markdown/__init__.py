"""Markdown to safe HTML: GitHub Flavored Markdown, footnotes and formulas, as people and models write them.

Two lines of defence follow each other: HTML in a text is shown as typed, except for four harmless tags, and all that is
made passes an allow-list of tags, attributes and classes. A text is rendered block by block; finished HTML is
remembered, so a block that was rendered while it was streamed costs nothing when its page is loaded.
"""

from __future__ import annotations

from django.utils.safestring import SafeString, mark_safe

from history.db.packing import clean
from history.markdown.blocks import BlockStream, normalize, split_blocks
from history.markdown.cache import HtmlCache
from history.markdown.html import HtmlWriter, plain_html
from history.markdown.parser import Document, MarkdownBlock, parse_blocks, parse_words
from history.markdown.prose import prose_html
from history.markdown.sanitizer import sanitize

__all__ = ["MAX_CHARS", "BlockStream", "plain", "render", "render_blocks", "split_blocks"]

MAX_CHARS = 1_000_000
"""What follows in a longer text is shown as typed."""

cache = HtmlCache(max_chars=4_000_000)


def render(text: str, *, prefix: str = "", soft_breaks: bool = True) -> SafeString:
    """Return the text as HTML without scripts, styles, foreign images or event handlers.

    Ids of footnotes begin with the prefix; a page that shows several texts gives each its own. With `soft_breaks`, a
    line break in a paragraph is shown as one, as in GitHub's comments; without, it is a space, as in GitHub's files.
    """
    text = normalize(clean(text))
    rest = text[MAX_CHARS:]
    if soft_breaks and (simple := prose_html(text[:MAX_CHARS])) is not None:
        html = simple
    else:
        html = _render(text[:MAX_CHARS], prefix, soft_breaks)
    return _safe(f"{html}\n{plain_html(rest)}" if rest else html)


def render_blocks(text: str, *, prefix: str = "") -> tuple[list[SafeString], SafeString]:
    """Text that is still being written: its finished blocks, which will not change any more, and the rest of it."""
    split = split_blocks(text)
    *finished, tail = (render(block, prefix=f"{prefix}{n}-") for n, block in enumerate([*split.finished, split.tail]))
    return finished, tail


def plain(text: str) -> SafeString:
    """The text as typed, lines kept."""
    return _safe(plain_html(text))


def _render(text: str, prefix: str, soft_breaks: bool) -> str:
    key = (text, prefix, soft_breaks)
    html = cache.get(key)
    if html is None:
        document = parse_blocks(text, prefix=prefix)
        lines = text.split("\n")
        shown = [block for block in document.blocks if block.kind != "footnote"]
        parts = [_render_block(block, lines, document, soft_breaks) for block in shown]
        if document.footnotes.bodies:
            parts.append(_render_notes(document, soft_breaks))
        html = "\n".join(part for part in parts if part)
        cache.put(key, html)
    return html


def _render_block(block: MarkdownBlock, lines: list[str], document: Document, soft_breaks: bool) -> str:
    """One block. What refers to a definition elsewhere in the text is not remembered by its own words alone."""
    if document.has_definitions:
        return _block_html(block, document, soft_breaks)
    source = "\n".join(lines[block.start : block.end])
    key = (source.rstrip("\n") if block.kind.endswith("list") else source, soft_breaks)
    html = cache.get(key)
    if html is None:
        html = _block_html(block, document, soft_breaks)
        cache.put(key, html)
    return html


def _block_html(block: MarkdownBlock, document: Document, soft_breaks: bool) -> str:
    parse_words(block.tokens, document.env)
    html = HtmlWriter(document.footnotes, soft_breaks=soft_breaks).write(block.tokens)
    return sanitize(html, anchors=document.footnotes.anchors if document.footnotes.bodies else None).rstrip("\n")


def _render_notes(document: Document, soft_breaks: bool) -> str:
    """The notes in the order of their references; those in notes count too, and the others follow."""
    notes, writer = document.footnotes, HtmlWriter(document.footnotes, soft_breaks=soft_breaks)
    unreferenced = (label for label in notes.bodies if label not in notes.numbers)
    items: list[str] = []
    while len(items) < len(notes.bodies):
        if len(items) == len(notes.labels):
            notes.number_of(next(unreferenced))
        label = notes.labels[len(items)]
        for body in notes.bodies[label]:
            parse_words(body, document.env)
        items.append(writer.write_note(label, notes.bodies[label]))
    return sanitize(f'<div class="footnotes"><ol>\n{"".join(items)}</ol></div>', anchors=notes.anchors)


def _safe(html: str) -> SafeString:
    return mark_safe(html)  # noqa: S308  it was sanitised, or escaped whole
