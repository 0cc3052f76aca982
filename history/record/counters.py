"""What this process has done and is doing, for /metrics: numbers that no row holds. One addition each."""

from __future__ import annotations

from collections import Counter

ended: Counter[tuple[str, str]] = Counter()
"""Calls to models by where they came from (chat, relay) and how they ended, since the process began."""

now: Counter[str] = Counter()
"""What is open at this moment."""
