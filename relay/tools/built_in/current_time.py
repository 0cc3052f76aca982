"""What time it is, which no model knows by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from django.utils.translation import gettext_lazy as _

from relay.tools.base import ToolContext, tool
from relay.tools.times import zone_named, zone_of


@tool(summary=_("What time it is"))
def current_time(
    context: ToolContext,
    zone: Annotated[str | None, "An IANA time zone such as Europe/Berlin; left out: the person's own."] = None,
) -> str:
    """Tell the date, the day of the week and the time now."""
    place = zone_named(zone) if zone else zone_of(context.user)
    here = datetime.now(UTC).astimezone(place)
    return f"{here:%A} {here.isoformat(sep=' ', timespec='seconds')} ({place.key})"
