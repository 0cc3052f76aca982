"""Check of the daily counts: finished days that have changed are compared with a recount of their rows."""

import logging
from collections.abc import Mapping
from datetime import UTC, date, timedelta

from django.db import connection
from django.db.models import F
from django.utils import timezone

from history.db.transactions import writing
from history.models import DayTally, StaleDay
from history.record.daily_sums import COUNTS, NAMES, Key, Numbers, days_with_rows, sums_of_day

logger = logging.getLogger(__name__)

_TRIES = 3


def check() -> int:
    """Compare each finished day that has changed with a recount of its rows. The server runs it every hour.

    Returns the number of wrong days, which are logged and corrected.
    """
    for day in StaleDay.objects.values_list("day", flat=True).distinct():
        recount(day)
    today = _today()
    changed = DayTally.objects.exclude(revision=F("checked_revision")).filter(day__lt=today)
    days = {*changed.values_list("day", flat=True).distinct(), today - timedelta(days=1)}
    return sum(not _is_right(day) for day in sorted(days))


def _is_right(day: date) -> bool:
    """Reads without a lock: if the counts are unchanged after the recount, the two belong together."""
    for _ in range(_TRIES):
        stored = _stored(day)
        counted = sums_of_day(day)
        if stored != _stored(day):
            continue
        kept = {key: numbers for key, (_revision, numbers) in stored.items()}
        wrong = {key for key in kept.keys() | counted.keys() if kept.get(key) != counted.get(key)}
        if not wrong:
            _note_checked(day, stored)
            return True
        logger.error("The counts of %s were wrong in %d rows and are made anew.", day, len(wrong))
        recount(day)
        return False
    return True  # another process writes into this day: it stays marked for the next run


def _note_checked(day: date, stored: Mapping[Key, tuple[int, Numbers]]) -> None:
    revisions = {revision for revision, _numbers in stored.values()}
    with writing():
        for revision in revisions:
            DayTally.objects.filter(day=day, revision=revision).update(checked_revision=revision)


def recount(day: date) -> None:
    """Replace the counts of a day. Writers wait, so that none adds to the rows that are being replaced."""
    with writing():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("LOCK TABLE history_daytally IN SHARE ROW EXCLUSIVE MODE")
        StaleDay.objects.filter(day=day).delete()
        DayTally.objects.filter(day=day).delete()
        DayTally.objects.bulk_create(DayTally(**key._asdict(), **numbers) for key, numbers in sums_of_day(day).items())


def rebuild() -> int:
    """Recount every day. Returns the number of days."""
    days = {*days_with_rows(), *DayTally.objects.values_list("day", flat=True).distinct()}
    for day in sorted(days):
        recount(day)
    return len(days)


def _stored(day: date) -> dict[Key, tuple[int, Numbers]]:
    rows = DayTally.objects.filter(day=day).values(*NAMES, *COUNTS, "day", "revision")
    return {
        Key(*(row[name] for name in Key._fields)): (row["revision"], {name: row[name] for name in COUNTS})
        for row in rows
    }


def _today() -> date:
    return timezone.now().astimezone(UTC).date()
