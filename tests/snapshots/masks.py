"""Masks for what differs between two runs: ids, times, durations; and for sentences, which may be reworded."""

from __future__ import annotations

import re
from typing import Any

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")


class Masks:
    """Ids get numbers in the order in which they are seen, so that the same id is recognised."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __call__(self, value: Any, *, sentences: tuple[str, ...] = (), varying: tuple[str, ...] = ()) -> Any:
        """`sentences` and `varying` name fields whose values are not recorded, only that there is one."""
        if isinstance(value, dict):
            return {
                self.text(name): _masked(item) if name in (*sentences, *varying) else
                self(item, sentences=sentences, varying=varying)
                for name, item in value.items()
            }  # fmt: skip
        if isinstance(value, list):
            return [self(item, sentences=sentences, varying=varying) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        return _TIME.sub("<time>", _UUID.sub(self._numbered, text))

    def _numbered(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>")


def _masked(value: Any) -> Any:
    """The type stays, and whether there is a value at all."""
    return f"<{type(value).__name__}>" if value not in ("", None, [], {}) else value
