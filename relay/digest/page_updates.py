"""Open pages hear of what was relayed: through Redis where there is one, else each process looks for itself.

Without Redis only this process could be told, and the digester is mostly a process of its own:
`relay.live.relayed_updates` looks once a second, for sessions that are open and for lists that are shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from asgiref.sync import async_to_sync
from django.conf import settings

from relay.live import groups

logger = logging.getLogger(__name__)


def tell(sessions: Mapping[UUID, int]) -> None:
    """These sessions have changed, and whose they are. Not to be heard must not undo anything."""
    if settings.REDIS_URL and sessions:
        async_to_sync(_tell)(sessions)


async def _tell(sessions: Mapping[UUID, int]) -> None:
    for session_id, owner in sessions.items():
        await groups.tell_session(session_id, groups.CHANGED)
        await groups.tell_person(owner, {"type": "rail.changed", "session": str(session_id)})
