"""Who does the work that must be done once, however many processes there are.

A lease is taken, kept and taken over by one UPDATE: the row count says who won, and the database's clock is the only
clock, so machines need not agree on the time. A holder that dies simply stops renewing.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from project.models import Lease


def name_of_process() -> str:
    return f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(4)}"


def take(name: str, *, holder: str, seconds: float) -> bool:
    """Take or renew; False if somebody else holds it."""
    if _claim(name, holder=holder, seconds=seconds):
        return True
    if Lease.objects.filter(name=name).exists():
        return False
    Lease.objects.bulk_create([Lease(name=name, holder="", expires_at=Now())], ignore_conflicts=True)
    return _claim(name, holder=holder, seconds=seconds)


def _claim(name: str, *, holder: str, seconds: float) -> bool:
    free_or_ours = Q(holder=holder) | Q(expires_at__lte=Now())
    claimed = Lease.objects.filter(free_or_ours, name=name).update(
        holder=holder, expires_at=Now() + timedelta(seconds=seconds)
    )
    return claimed == 1


def give_back(holder: str) -> None:
    """Let others go on at once instead of waiting until our leases expire."""
    Lease.objects.filter(holder=holder).update(expires_at=Now())


class Held:
    """What this process holds, as far as it can know without asking: until the lease it last took runs out."""

    def __init__(self, *, holder: str, seconds: float) -> None:
        self.holder = holder
        self.seconds = seconds
        self._until: dict[str, float] = {}

    def renew(self, name: str) -> None:
        # Measured from before the question, so that we let go a little early rather than a little late.
        asked = time.monotonic()
        if take(name, holder=self.holder, seconds=self.seconds):
            self._until[name] = asked + self.seconds
        else:
            self._until.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return time.monotonic() < self._until.get(name, 0.0)

    def give_back(self) -> None:
        if self._until:
            self._until.clear()
            give_back(self.holder)
