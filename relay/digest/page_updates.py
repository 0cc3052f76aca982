"""Notifications of open pages about sessions that were relayed, sent through Redis.

Without Redis a message reaches only its own process, and the digester is mostly a process of its own. Then each web
process polls the database (`relay.live.relayed_updates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.conf import settings

from relay.live import groups


def tell(sessions: Mapping[UUID, int]) -> None:
    """These sessions have changed; the values are the ids of their owners."""
    if settings.REDIS_URL:
        for session_id, owner in sessions.items():
            groups.notify_session(session_id)
            groups.notify_sidebar(owner, session_id)
