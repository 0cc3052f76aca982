"""Leases that decide which process does a job that runs once per installation.

One UPDATE takes or renews a lease, and its row count says who won. The database's clock is the only clock.
"""

import os
import secrets
import socket
import time
from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now

from project.models import Lease


def process_name() -> str:
    return f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(4)}"


def take_lease(name: str, *, holder: str, seconds: float) -> bool:
    """Take or renew a lease. False if another holder has it."""
    if _claim(name, holder=holder, seconds=seconds):
        return True
    if Lease.objects.filter(name=name).exists():
        return False
    Lease.objects.bulk_create([Lease(name=name, holder="", expires_at=Now())], ignore_conflicts=True)
    return _claim(name, holder=holder, seconds=seconds)


def _claim(name: str, *, holder: str, seconds: float) -> bool:
    claimable = Lease.objects.filter(Q(holder=holder) | Q(expires_at__lte=Now()), name=name)
    return claimable.update(holder=holder, expires_at=Now() + timedelta(seconds=seconds)) == 1


def release_leases(holder: str) -> None:
    """Let other processes continue at once instead of waiting until the leases expire."""
    Lease.objects.filter(holder=holder).update(expires_at=Now())


class Leases:
    """The leases of this process, as far as it knows without a query: each until it runs out."""

    def __init__(self, *, holder: str, seconds: float) -> None:
        self.holder, self.seconds = holder, seconds
        self._until: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return time.monotonic() < self._until.get(name, 0.0)

    def renew(self, name: str) -> None:
        # Counted from before the query, so that this process lets go a little early rather than a little late.
        start = time.monotonic()
        if take_lease(name, holder=self.holder, seconds=self.seconds):
            self._until[name] = start + self.seconds
        else:
            self._until.pop(name, None)

    def release(self) -> None:
        if self._until:
            self._until.clear()
            release_leases(self.holder)
