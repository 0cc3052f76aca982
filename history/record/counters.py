"""Counters of this process for /metrics: numbers that no row holds."""

from collections import Counter

# Ended calls to models, by source (chat, relay) and end reason.
ended: Counter[tuple[str, str]] = Counter()
# What is open at the moment.
now: Counter[str] = Counter()
