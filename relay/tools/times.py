"""Times in tools: in the zone of the person, and as people write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings

from history.models import ApiKey
from relay.tools.base import ToolError

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def zone_of(user: Any) -> ZoneInfo:
    """The zone that the person chose, or the owner of the key, or that of the server."""
    person = user.owner if isinstance(user, ApiKey) else user
    return ZoneInfo(getattr(person, "time_zone", "") or settings.TIME_ZONE)


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ToolError(f"There is no time zone called {name[:60]}: write a name such as Europe/Berlin.") from None


def moment(text: str, *, zone: ZoneInfo, is_end: bool = False) -> datetime:
    """2026-11-01 or 2026-11-01T14:00, in the person's zone where it names none; a day that ends counts as a whole."""
    try:
        at = datetime.fromisoformat(text.strip())
        if is_end and _DAY.fullmatch(text.strip()):
            at += timedelta(days=1)
    except (ValueError, OverflowError):
        raise ToolError(f"{text[:60]} is no time: write 2026-11-01 or 2026-11-01T14:00.") from None
    return at if at.tzinfo else at.replace(tzinfo=zone)
