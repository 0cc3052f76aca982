"""Tools about the server: the time, and the load of processor, memory and disk."""

from datetime import UTC, datetime
from typing import Annotated, Literal

import psutil
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from relay.tools.base import ToolContext, find_zone, tool, zone_of


@tool(summary=_("Shows the current time"))
def current_time(
    context: ToolContext,
    zone: Annotated[str | None, "An IANA time zone such as Europe/Berlin; default: the user's time zone."] = None,
) -> str:
    """Get the current date, day of the week and time."""
    place = find_zone(zone) if zone else zone_of(context.user)
    here = datetime.now(UTC).astimezone(place)
    return f"{here:%A} {here.isoformat(sep=' ', timespec='seconds')} ({place.key})"


MEASURED_SECONDS = 0.2
GB = 1024**3


def panel(context: ToolContext) -> str:
    """Without waiting: how busy it was since it was looked at last."""
    return "\n".join([_cpu(interval=None), _memory(), _disk()])


@tool(summary=_("Shows how busy the server is"), panel=panel)
def sys_monitor(
    context: ToolContext, metric: Annotated[Literal["cpu", "memory", "disk", "all"], "What to show."] = "all"
) -> str:
    """Show how busy the server is: processor and load, memory, and the disk with the data."""
    lines = {"cpu": _cpu, "memory": _memory, "disk": _disk}
    return "\n".join(line() for name, line in lines.items() if metric in (name, "all"))


def _cpu(*, interval: float | None = MEASURED_SECONDS) -> str:
    busy = psutil.cpu_percent(interval=interval)
    load = " ".join(f"{average:.2f}" for average in psutil.getloadavg())
    cores = psutil.cpu_count() or 1
    return f"CPU {busy:.1f} %   load {load}   {cores} {'core' if cores == 1 else 'cores'}"


def _memory() -> str:
    memory = psutil.virtual_memory()
    used = memory.total - memory.available
    return f"Memory {memory.percent:.1f} %   {used / GB:.1f} of {memory.total / GB:.1f} GB used"


def _disk() -> str:
    disk = psutil.disk_usage(str(settings.PARLEY_DATA_DIR))
    return f"Disk {disk.percent:.1f} %   {disk.used / GB:.1f} of {disk.total / GB:.1f} GB used"
