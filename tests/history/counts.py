"""Daily counts as they are stored, compared with a recount of every day."""

from __future__ import annotations

from history.models import DayTally
from history.record.daily_sums import COUNTS, Key, Numbers, Sums, days_with_rows, sums_of_day


def stored_counts() -> Sums:
    rows = DayTally.objects.values(*Key._fields, *COUNTS)
    return {Key(*(row[name] for name in Key._fields)): _numbers(row) for row in rows}


def assert_counts_equal_a_recount() -> None:
    expected = {key: numbers for day in days_with_rows() for key, numbers in sums_of_day(day).items()}
    stored = stored_counts()
    wrong = {key: (stored.get(key), expected.get(key)) for key in stored.keys() | expected.keys()}
    assert {key: pair for key, pair in wrong.items() if pair[0] != pair[1]} == {}


def _numbers(row: Numbers) -> Numbers:
    return {name: row[name] for name in COUNTS}
