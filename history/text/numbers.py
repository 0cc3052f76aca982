"""Numbers as addresses, forms and sockets carry them: what is none asks for nothing."""

from __future__ import annotations


def whole_number(text: str | None) -> int | None:
    """Of an entry, a row or a place; shorter than anything that a database could not hold."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
