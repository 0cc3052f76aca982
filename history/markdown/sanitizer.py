"""The allow-list that all HTML made from Markdown passes: tags, attributes, classes and URL schemes.

The writer escapes what it is given; this is the second line of defence, by another program (nh3).
"""

from __future__ import annotations

import re
from functools import lru_cache, partial

import nh3

from history.markdown.code import CLASSES
from history.markdown.html import ALERTS

TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "kbd", "li", "ol", "p", "pre",
    "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title"},
    "div": {"class", "tabindex"},
    "li": {"class", "id"},
    "ol": {"start"},
    "p": {"class"},
    "pre": {"class", "tabindex"},
    "span": {"class"},
    "sup": {"id"},
    "td": {"align"},
    "th": {"align"},
}
ALLOWED_CLASSES = {
    *CLASSES.values(), *(f"alert alert-{kind.lower()}" for kind in ALERTS), "alert-title", "code", "code-head",
    "code-lang", "footnotes", "math block", "math inline", "mermaid-source", "plain", "table-box", "task",
}  # fmt: skip
SCHEMES = {"http", "https", "mailto"}
_ALIGNMENTS = {"left", "center", "right"}


def sanitize(html: str, *, anchors: re.Pattern[str] | None = None) -> str:
    """Remove everything that is not allowed. Ids, and links to a place on the page, have to match `anchors`."""
    return _cleaner(anchors).clean(html)


@lru_cache(maxsize=64)
def _cleaner(anchors: re.Pattern[str] | None) -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=partial(_attribute, anchors=anchors),
        url_schemes=SCHEMES,
        link_rel="noopener nofollow",
    )


def _attribute(tag: str, name: str, value: str, *, anchors: re.Pattern[str] | None) -> str | None:
    """No relative addresses: a model has no business sending its reader to a page of this server."""
    match name:
        case "href":
            is_anchor = value[:1] == "#" and anchors is not None and anchors.fullmatch(value, 1)
            allowed = value.lower().partition(":")[0] in SCHEMES or is_anchor
        case "id":
            allowed = anchors is not None and anchors.fullmatch(value)
        case "class":
            allowed = value in ALLOWED_CLASSES
        case "align":
            allowed = value in _ALIGNMENTS
        case _:
            allowed = True
    return value if allowed else None
