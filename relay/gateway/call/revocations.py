"""Running calls of keys that are revoked or expire meanwhile: each process ends them within a second.

A key is checked when a call begins, and a stream may run for many minutes. So the background looks twice a second
whether the keys of running calls still hold. Without the database nothing is ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from django.utils import timezone

from history.models import ApiKey
from relay.gateway.call.disconnects import CallCancellation

WHY = "The API key was revoked or has expired while the call was running."

_lock = threading.Lock()
_running: dict[int, set[CallCancellation]] = {}


def watch(key: int, call: CallCancellation) -> None:
    with _lock:
        _running.setdefault(key, set()).add(call)


def unwatch(key: int, call: CallCancellation) -> None:
    with _lock:
        calls = _running.get(key, set())
        calls.discard(call)
        if not calls:
            _running.pop(key, None)


def end_revoked() -> None:
    """The background's job."""
    with _lock:
        keys = list(_running)
    ended = set(keys) - _valid(keys) if keys else set()
    with _lock:
        calls = [call for key in ended for call in _running.get(key, ())]
    for call in calls:
        call.end_soon()


def _valid(keys: Iterable[int]) -> set[int]:
    now = timezone.now()
    rows = ApiKey.objects.filter(pk__in=keys, revoked_at=None, owner__is_active=True)
    return {pk for pk, expires_at in rows.values_list("pk", "expires_at") if expires_at is None or expires_at > now}
