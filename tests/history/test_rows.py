"""Rows by SQL of our own are the rows that Django would write."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from history import rows
from history.models import Exchange

MOMENTS = [
    None,
    datetime(2026, 11, 16, 15, 0, 1, 250, tzinfo=UTC),
    datetime(2026, 11, 16, 15, 0, tzinfo=timezone(timedelta(hours=8))),
]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "value"),
    [*(("ended_at", moment) for moment in MOMENTS), ("id", uuid4()), ("session", uuid4()), ("session", None)],
)
def test_a_quick_conversion_comes_to_the_same_as_the_fields_own(name: str, value: UUID | datetime | None) -> None:
    field: Any = Exchange._meta.get_field(name)
    prepare = rows._preparation(field)
    assert prepare is not None
    assert prepare(value, connection) == field.get_db_prep_save(value, connection)
