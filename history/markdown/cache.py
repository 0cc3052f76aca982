"""A cache of rendered HTML, limited by the number of characters that it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable


class HtmlCache:
    """The most recently used HTML. Safe to use from several threads."""

    def __init__(self, *, max_chars: int) -> None:
        self.max_chars = max_chars
        self._entries: OrderedDict[Hashable, str] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> str | None:
        with self._lock:
            html = self._entries.get(key)
            if html is not None:
                self._entries.move_to_end(key)
            return html

    def put(self, key: Hashable, html: str) -> None:
        with self._lock:
            self._chars += len(html) - len(self._entries.pop(key, ""))
            self._entries[key] = html
            while self._chars > self.max_chars:
                self._chars -= len(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._chars = 0
