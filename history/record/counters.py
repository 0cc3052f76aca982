"""Counters of this process for /metrics: numbers that no row holds."""

from collections import Counter

ended: Counter[tuple[str, str]] = Counter()  # ended calls to models, by source (chat, relay) and end reason
now: Counter[str] = Counter()  # what is open at the moment
