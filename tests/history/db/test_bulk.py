"""Rows by SQL of our own are the rows that Django would write."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Model

from history.db import bulk
from history.models import ApiKey, Exchange, Message, SearchRow, Session

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
    prepare = bulk._preparation(field)
    assert prepare is not None
    assert prepare(value, connection) == field.get_db_prep_save(value, connection)


@pytest.mark.any_database
@pytest.mark.parametrize("model", [Session, Message, Exchange, SearchRow])
def test_a_new_row_is_what_the_model_itself_would_make(model: type[Model]) -> None:
    quick, own = bulk.new(model), model()
    made = {"_state", *(field.attname for field in model._meta.concrete_fields if "at" in field.attname), "id"}
    assert {name: quick.__dict__[name] for name in quick.__dict__.keys() - made} == {
        name: own.__dict__[name] for name in own.__dict__.keys() - made
    }
    assert quick.__dict__.keys() == own.__dict__.keys()


@pytest.mark.any_database
def test_a_new_row_knows_its_relations_and_refuses_what_it_does_not_know() -> None:
    key = ApiKey(pk=7)
    assert bulk.new(Session, api_key=key).api_key is key
    assert bulk.new(Session, api_key=key).api_key_id == 7
    with pytest.raises(TypeError, match="colour"):
        bulk.new(Session, colour="blue")


@pytest.mark.django_db
def test_many_rows_at_once_are_stored_as_they_are() -> None:
    """On PostgreSQL from a certain number on in another way than few."""
    owner = get_user_model().objects.create_user("many")
    odd = "a tab\t, a line\n, \\N, \\., quotes ' \" and 字"
    values = {"owner": owner, "title": odd, "metadata": {"said": odd, "none": None}, "last_seal": b"\x00\\\xff\n"}
    sessions = [bulk.new(Session, **values, version=number) for number in range(20)]
    bulk.insert(Session, sessions)
    times = {"created_at": MOMENTS[1], "role": "user", "kind": "model_input", "body": odd, "latency": 0.25}
    flags = {"on_path": True, "moved_head": False, "parent_seq": 0, "seq": 1}
    hashes = {"fingerprint": b"", "digest": b"1", "seal": b"2", "salt": None}
    messages = [bulk.new(Message, session=session, **times, **flags, **hashes) for session in sessions]
    bulk.insert(Message, messages)
    stored = [*Session.objects.order_by("version"), *Message.objects.order_by("pk")]
    for made, found in zip([*sessions, *messages], stored, strict=True):
        for field in type(made)._meta.concrete_fields:
            assert getattr(found, field.attname) == getattr(made, field.attname), field.name
