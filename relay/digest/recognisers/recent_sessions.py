"""The conversations of a key that went on last: among them one is looked for that a request does not name.

Not among copies, of which the program knows nothing.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet

from history.models import Session
from relay.digest.requests import RelayedRequest

MOST, WITHIN = 20, timedelta(days=1)


def recent_sessions(asked: RelayedRequest) -> QuerySet[Session]:
    """The newest first."""
    recent = Session.objects.not_hidden().filter(
        api_key_id=asked.record.key, forked_from=None, last_activity_at__gte=asked.at - WITHIN
    )
    return recent.order_by("-last_activity_at", "-pk")[:MOST]
