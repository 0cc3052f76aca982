"""Accounts of keys and owners: what they used in the present minute and day, as this process knows it."""

import time
from dataclasses import dataclass, field
from datetime import date
from typing import Generic, TypeVar

from history.models import ApiKey
from relay.usage.allowances import UserLimits
from relay.usage.prices import NO_USE, Use

ACTIVE_SECONDS = 120.0  # accounts that were not used for this time are dropped
# Accounts that were not used for this time are not kept up to date: the next call reads what others have counted.
BUSY_SECONDS = 5.0
NEVER = float("-inf")
P = TypeVar("P", int, date)


@dataclass(slots=True)
class Count(Generic[P]):
    """Use in one minute or day: counted by all processes (`known`), being written, and new since."""

    period: P
    known: Use = NO_USE
    writing: Use = NO_USE
    new: Use = NO_USE

    @property
    def unwritten(self) -> Use:
        return self.writing + self.new

    @property
    def used(self) -> Use:
        return self.known + self.unwritten

    def begin_writing(self) -> None:
        self.writing, self.new = self.unwritten, NO_USE

    def end_writing(self) -> None:
        self.known, self.writing = self.known + self.writing, NO_USE


@dataclass(slots=True, kw_only=True)
class Account:
    """`reserved` is what running calls of this process may still use, by name, `settling` what Redis is being told."""

    day: Count[date]
    month_before: Use = NO_USE
    reserved: dict[str, Use] = field(default_factory=dict)
    settling: Use = NO_USE
    last_used: float = 0.0

    def was_used_within(self, seconds: float) -> bool:
        return time.monotonic() - self.last_used < seconds

    def is_in_use(self) -> bool:
        return bool(self.reserved or self.settling or self.day.unwritten) or self.was_used_within(ACTIVE_SECONDS)


@dataclass(slots=True, kw_only=True)
class KeyAccount(Account):
    """`elsewhere` is the number of calls in other processes; `is_limited` includes the limits of the owner."""

    minute: Count[int]
    running: set[str] = field(default_factory=set)
    elsewhere: int = 0
    key: ApiKey | None = None
    has_limits: bool = False
    is_limited: bool = False
    is_loaded: bool = False

    @property
    def owner(self) -> int:
        return self.key.owner_id if self.key else 0

    def is_busy(self) -> bool:
        return bool(self.running or self.minute.unwritten) or self.was_used_within(BUSY_SECONDS)

    def is_in_use(self) -> bool:
        return bool(self.running) or Account.is_in_use(self)


@dataclass(slots=True, kw_only=True)
class OwnerAccount(Account):
    """`chats_writing` counts chats that are storing their use; `chats_written` changes when one begins or ends that."""

    limits: UserLimits = field(default_factory=UserLimits)
    read_at: float = NEVER
    chats_writing: int = 0
    chats_written: int = 0

    @property
    def is_limited(self) -> bool:
        return self.limits.has_budget

    @property
    def is_stale(self) -> bool:
        """Before the first call, and after a pause if there is a budget. Otherwise `sync` reads it."""
        is_old = time.monotonic() - self.read_at >= BUSY_SECONDS
        return is_old and (self.is_limited or self.read_at == NEVER)

    def is_busy(self) -> bool:
        return bool(self.reserved) or self.was_used_within(BUSY_SECONDS)
