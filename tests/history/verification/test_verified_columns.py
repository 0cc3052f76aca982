"""Every column of the record: a change by hand is found by `verify`, or `docs/verification.md` says that it is not."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from history import verification
from history.access import audit, keys
from history.entries import Media, ModelInput, SystemInstructionSet, Text, Usage
from history.models import ApiKey, AuditEvent, Blob, Message, Session, ToolCall
from history.record import recorder
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results, without_guards

pytestmark = pytest.mark.django_db

PAGE = Path(__file__).parents[3] / "docs" / "verification.md"
TABLES: dict[str, Any] = {
    str(model._meta.model_name): model for model in (Session, Message, ToolCall, Blob, AuditEvent)
}
# Primary keys are left out: other rows refer to them, or they mean nothing.
COLUMNS = [
    f"{table}.{field.name}"
    for table, model in TABLES.items()
    for field in model._meta.concrete_fields
    if not field.primary_key
]


def not_verified() -> set[str]:
    """The columns that the table of the page names: `table.column`."""
    _, _, section = PAGE.read_text("utf-8").partition("## Columns that are not verified")
    return set(re.findall(r"`(\w+\.\w+)`", section.partition("\n## ")[0]))


@pytest.fixture
def session(ada: Any) -> Session:
    """An attachment, a call with its result, and an open call at the head."""
    session = recorder.start_session(owner=ada)
    picture = Media(media_type="image/png", sha256=recorder.store_blob(b"a picture", media_type="image/png"))
    opening = [SystemInstructionSet(instruction="be kind"), ModelInput(parts=(Text(text="one"), picture))]
    asked = [model_output("two", tool_request("a")), tool_results(tool_result("a", status="failed"))]
    used = model_output("three", tool_request("b"), usage=Usage(input_tokens=7, output_tokens=3))
    recorder.append_many(session, [*opening, *asked, used], after=0)
    audit.record("read", session=session.pk)
    session.refresh_from_db()
    return session


@pytest.fixture
def changed(ada: Any, bob: Any, session: Session) -> Any:
    """Change a column of a stored row. False: the database takes no other value."""
    other = create_chat(ada, "another session")
    key = keys.create(name="laptop", owner=ada).api_key
    assert list(verification.verify()) == []

    def change(column: str) -> bool:
        table, name = column.split(".")
        rows, field = TABLES[table].objects.order_by("pk"), TABLES[table]._meta.get_field(name)
        if table in ("session", "message", "toolcall"):
            rows = rows.filter(**{"pk" if table == "session" else "session": session.pk})
        row = rows.filter(seq=2).get() if table == "message" else rows.first()
        assert row is not None
        related: dict[Any, Any] = {
            Session: other.pk,
            ApiKey: key.pk,
            Message: Message.objects.filter(session=other).get().pk,
        }
        value = getattr(row, field.attname)
        others = [related.get(field.related_model, bob.pk)] if field.is_relation else list(_others(field, value))
        assert value not in others
        return any(_is_taken(TABLES[table].objects.filter(pk=row.pk), field.attname, other) for other in others)

    return change


def _is_taken(rows: Any, name: str, value: Any) -> bool:
    try:
        with transaction.atomic():
            return bool(without_guards(rows).update(**{name: value}))
    except IntegrityError:
        return False


def _others(field: Any, value: Any) -> Iterator[Any]:
    """Other values, of which constraints may refuse some."""
    match field:
        case models.BooleanField():
            yield not value
        case models.UUIDField():
            yield uuid.uuid4()
        case models.DateTimeField():
            yield (value or timezone.now()) - timedelta(hours=1)
        case models.BinaryField():
            known = bytes(value or bytes(16))
            yield bytes([known[0] ^ 1]) + known[1:]
        case models.JSONField():
            yield {**value, "other": 1}
        case models.DecimalField():
            yield value + Decimal(1)
        case models.FloatField():
            yield (value or 0) + 1.0
        case models.IntegerField():
            yield from (number for number in ((value or 0) + 2, (value or 0) + 1_000, 0) if number != value)
        case _:
            yield f"x{value or ''}"[: field.max_length or None]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_column_is_found_or_documented(changed: Any, column: str) -> None:
    is_found = not changed(column) or any(verification.verify())
    assert is_found != (column in not_verified()), f"{column}: {'found' if is_found else 'not found'} by verify"


def test_the_page_names_no_column_that_does_not_exist() -> None:
    assert not_verified() <= set(COLUMNS)
