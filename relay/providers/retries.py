"""Retries: when to try again and how long to wait, before the first byte."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from relay.errors import ProviderError
from relay.providers.endpoints import Patience

FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds that the vendor wants us to wait; None where it says nothing that makes sense."""
    with suppress(ValueError):
        return _positive(float(headers.get("retry-after-ms", "")) / 1000)
    told = headers.get("retry-after", "")
    with suppress(ValueError):
        return _positive(float(told))
    with suppress(ValueError, OverflowError):
        at = parsedate_to_datetime(told)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max((at - (now or datetime.now(UTC))).total_seconds(), 0.0)
    return None


def _positive(seconds: float) -> float:
    if not 0 <= seconds < float("inf"):
        raise ValueError(seconds)
    return seconds


def obey(error: ProviderError, headers: Mapping[str, str]) -> ProviderError:
    """The vendor's own word on whether to try again corrects what the class of the error says."""
    word = headers.get("x-should-retry", "").lower()
    if word in ("true", "false"):
        error.retry_helps = word == "true"
    return error


def wait_after(error: ProviderError, *, attempt: int, spent: float, patience: Patience) -> float | None:
    """Seconds until the next attempt; None: there is none."""
    if not error.retry_helps or attempt >= patience.attempts:
        return None
    wait = error.retry_after
    if wait is None:
        # A little less at random, so that many who failed together do not come back together.
        wait = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) * random.uniform(0.75, 1.0)  # noqa: S311
    return wait if spent + wait <= patience.retry_within else None
