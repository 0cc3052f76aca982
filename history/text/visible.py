"""Visible text: whether a reader would see anything."""

from __future__ import annotations


def has_visible_text(text: str) -> bool:
    """False for spaces, zero-width and control characters alone; models send them as whole answers."""
    return any(char.isprintable() and not char.isspace() for char in text)
