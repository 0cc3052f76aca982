"""So many requests a minute for each person and for each key, counted in the shared cache.

By the minute of the clock: one counter that is added to, so that requests at the same time count, each of them. With
Redis all processes count together. Without it, or while it is away, each process counts for itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from history.models import ApiKey

logger = logging.getLogger(__name__)

MINUTE = 60

_here: Counter[str] = Counter()  # the current minute, while the shared cache is away
_lock = threading.Lock()


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
    minute = f":{int(time.time() // MINUTE)}"
    name = f"api-requests:{who}{minute}"
    try:
        cache.add(name, 0, timeout=2 * MINUTE)
        return cache.incr(name)
    except ValueError:  # a cache that was emptied in between has forgotten the others, too
        return 1
    except Exception as error:  # noqa: BLE001 - each cache has errors of its own; all mean that it does not count
        logger.warning("The shared cache does not count requests (%s); this process does.", type(error).__name__)
        return _counted_here(name, minute)


def _counted_here(name: str, minute: str) -> int:
    with _lock:
        for old in [one for one in _here if not one.endswith(minute)]:
            del _here[old]
        _here[name] += 1
        return _here[name]
