"""Ids of exchanges and sessions: unique, not secret, ordered by time for the indexes."""

from __future__ import annotations

import time
from random import getrandbits
from uuid import UUID

# Version 7 of UUIDs: the moment in milliseconds first, the rest chance but for what says so.
_VERSION_7 = 7 << 76 | 2 << 62
_CHANCE = (1 << 80) - 1 & ~(0xF << 76 | 3 << 62)


def new_exchange_id() -> UUID:
    """In the order of time. No secret, so the system need not be asked for chance each time, which takes far longer."""
    return UUID(int=int(time.time() * 1000) << 80 | getrandbits(80) & _CHANCE | _VERSION_7)


# Version 8: whatever somebody likes.
_VERSION_8 = 8 << 76 | 2 << 62
_REST = (1 << 116) - 1 & ~(0xF << 76 | 3 << 62)
_SECONDS_TOGETHER = 16


def new_session_id() -> UUID:
    """Of chance but for its first three letters, which all that begins within a few seconds has in common: so it lies
    together in every index, too, and people still tell sessions apart by the first eight."""
    moment = int(time.time()) // _SECONDS_TOGETHER % 4096
    return UUID(int=moment << 116 | getrandbits(116) & _REST | _VERSION_8)
