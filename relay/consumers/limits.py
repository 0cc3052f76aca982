"""How much one socket may say: so many intents in so many seconds, none of them too long."""

from __future__ import annotations

import time
from collections import deque

MOST_FRAME_CHARS = 1_000_000
INTENTS, SECONDS = 30, 10.0


class Rate:
    """True as long as no more than `INTENTS` came within the last `SECONDS`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=INTENTS)

    def allows_one_more(self) -> bool:
        now = time.monotonic()
        if len(self._times) == INTENTS and now - self._times[0] < SECONDS:
            return False
        self._times.append(now)
        return True
