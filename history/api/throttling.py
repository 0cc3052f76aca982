"""So many requests a minute for each person and for each key, counted in the shared cache.

By the minute of the clock: one counter that is added to, so that requests at the same time count, each of them. With
Redis all processes count together; without it there is one process.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from history.models import ApiKey

MINUTE = 60


class PerMinute(BaseThrottle):
    def allow_request(self, request: Request, view: Any) -> bool:
        return is_within_limit(_who(request))

    def wait(self) -> float:
        return MINUTE - time.time() % MINUTE


def is_within_limit(who: str) -> bool:
    """Count one more request of theirs."""
    most = settings.PARLEY_API_REQUESTS_PER_MINUTE
    return not most or _counted(who) <= most


def _who(request: Request) -> str:
    return f"key-{request.auth.pk}" if isinstance(request.auth, ApiKey) else f"user-{request.user.pk}"


def _counted(who: str) -> int:
    name = f"api-requests:{who}:{int(time.time() // MINUTE)}"
    cache.add(name, 0, timeout=2 * MINUTE)
    try:
        return cache.incr(name)
    except ValueError:  # a cache that was emptied in between has forgotten the others, too
        return 1
