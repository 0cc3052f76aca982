"""How much one socket may say: so many intents in so many seconds, none of them too long."""

from __future__ import annotations

import time
from collections import deque

MAX_MESSAGE_CHARS = 1_000_000
MAX_MESSAGES, PERIOD_SECONDS = 30, 10.0


class MessageRate:
    """True as long as no more than `MAX_MESSAGES` came within the last `PERIOD_SECONDS`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MAX_MESSAGES)

    def allows_one_more(self) -> bool:
        now = time.monotonic()
        if len(self._times) == MAX_MESSAGES and now - self._times[0] < PERIOD_SECONDS:
            return False
        self._times.append(now)
        return True
