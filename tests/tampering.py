"""Changes of stored rows that Parley refuses, as a tool outside of it would make them."""

from __future__ import annotations

from history.append_only import writable as by_hand

__all__ = ["by_hand"]
