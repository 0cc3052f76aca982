"""Template tags of repeated HTML: icons, and a cache of fragments whose key holds everything that they show.

    {% cached "sidebar row" row.cache_key undated %} … {% endcached %}

The key consists of values that were just read from the database, so a fragment is never outdated: other values are
another key. Language, time zone and day are always part of it, because the same time reads differently tomorrow. A
fragment with a key of None is not cached.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from django import template
from django.conf import settings
from django.template.base import FilterExpression, NodeList, Parser, Token
from django.template.loader import render_to_string
from django.urls import get_script_prefix
from django.utils import timezone, translation
from django.utils.safestring import SafeString, mark_safe

register = template.Library()

MOST_CHARS = 4_000_000
OVERHEAD = 500  # of a key and its place, as characters


@register.simple_tag
@lru_cache(maxsize=100)
def icon(name: str) -> SafeString:
    return mark_safe(render_to_string("partials/icon.html", {"name": name}))  # noqa: S308 - rendered


@register.filter
def fields(row: object, names: str) -> tuple[Any, ...]:
    """The values of these attributes, as a part of a key. Nothing has none."""
    return tuple(getattr(row, name) for name in names.split()) if row else ()


class FragmentCache:
    """Fragments of this process, the least recently used dropped first."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self.most_chars = most_chars
        self.chars = 0
        self._kept: OrderedDict[Hashable, SafeString] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> SafeString | None:
        with self._lock:
            html = self._kept.get(key)
            if html is not None:
                self._kept.move_to_end(key)
            return html

    def set(self, key: Hashable, html: SafeString) -> None:
        with self._lock:
            if key in self._kept or len(html) > self.most_chars // 20:
                return
            self._kept[key] = html
            self.chars += len(html) + OVERHEAD
            while self.chars > self.most_chars:
                _, dropped = self._kept.popitem(last=False)
                self.chars -= len(dropped) + OVERHEAD

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.chars = 0


fragments = FragmentCache()


class CachedNode(template.Node):
    def __init__(self, name: str, parts: list[FilterExpression], nodelist: NodeList) -> None:
        self.name, self.parts, self.nodelist = name, parts, nodelist

    def render(self, context: template.Context) -> SafeString:
        values = tuple(part.resolve(context) for part in self.parts)
        if settings.DEBUG or None in values:
            return self.nodelist.render(context)
        key = (self.name, values, _surroundings(context))
        html = fragments.get(key)
        if html is None:
            html = self.nodelist.render(context)
            fragments.set(key, html)
        return html


def _surroundings(context: template.Context) -> tuple[Any, ...]:
    """Read once per page: it takes as long as ten fragments."""
    known: tuple[Any, ...] | None = getattr(context, "_surroundings", None)
    if known is None:
        zone = timezone.get_current_timezone()
        known = (translation.get_language(), str(zone), timezone.localdate(timezone=zone), get_script_prefix())
        context._surroundings = known  # type: ignore[attr-defined]
    return known


@register.tag
def cached(parser: Parser, token: Token) -> CachedNode:
    _, name, *parts = token.split_contents()
    nodelist = parser.parse(("endcached",))
    parser.delete_first_token()
    return CachedNode(name.strip("\"'"), [parser.compile_filter(part) for part in parts], nodelist)
