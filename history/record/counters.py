"""Counters of this process for /metrics: numbers that no row holds."""

from collections import Counter

ended: Counter[tuple[str, str]] = Counter()
"""Ended calls to models, by source (chat, relay) and end reason, since the process started."""

now: Counter[str] = Counter()
"""What is open at the moment."""
