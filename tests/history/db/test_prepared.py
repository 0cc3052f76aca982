"""Prepared queries give the rows that their querysets give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from history.db.parameters import among
from history.db.prepared import prepared, prepared_delete, prepared_update
from history.models import Session
from history.record import recorder
from project.accounts.models import User
from relay.models import RecentMessage

pytestmark = pytest.mark.django_db


@prepared
def sessions_of(owner: int, title: str, since: datetime) -> QuerySet[Session]:
    return Session.objects.open().filter(owner=owner, title=title, created_at__gt=since).order_by("pk")


@prepared
def titles_of(ids: list[UUID]) -> QuerySet[Session, tuple[UUID, str]]:
    return Session.objects.filter(pk__in=among(ids)).order_by("title").values_list("pk", "title")


@prepared
def titles(session_id: UUID) -> QuerySet[Session, str]:
    return Session.objects.filter(pk=session_id).values_list("title", flat=True)


@prepared
def held_or_not(owner: int, is_held: bool, parent: UUID | None) -> QuerySet[Session]:
    return Session.objects.filter(owner=owner, hold=is_held, parent=parent)


@prepared_update
def set_title(session_id: UUID, title: str, now: datetime | None) -> tuple[QuerySet[Session], dict[str, Any]]:
    return Session.objects.filter(pk=session_id), {"title": title, "pinned_at": now}


@prepared_delete
def forget(user: int, before: datetime) -> QuerySet[RecentMessage]:
    return RecentMessage.objects.filter(user=user, at__lt=before)


def test_rows_have_all_fields_and_follow_the_arguments(ada: User, bob: User) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    mine = recorder.start_session(owner=ada, title="Plan", metadata={"model": "m"})
    recorder.start_session(owner=bob, title="Plan")
    for _ in range(2):
        (found,) = sessions_of(ada.pk, "Plan", long_ago)
        stored = Session.objects.get(pk=mine.pk)
        assert {field.attname: getattr(found, field.attname) for field in Session._meta.concrete_fields} == {
            field.attname: getattr(stored, field.attname) for field in Session._meta.concrete_fields
        }
    assert sessions_of(ada.pk, "Another", long_ago) == []
    assert sessions_of(ada.pk, "Plan", mine.created_at + timedelta(seconds=1)) == []


def test_values_and_lists_of_any_length(ada: User) -> None:
    rows = {title: recorder.start_session(owner=ada, title=title).pk for title in ("a", "b", "c")}
    assert titles(rows["b"]) == ["b"]
    assert titles_of([rows["c"]]) == [(rows["c"], "c")]
    assert titles_of([*rows.values(), uuid4()]) == [(pk, title) for title, pk in rows.items()]


def test_constants_have_statements_of_their_own(ada: User) -> None:
    parent = recorder.start_session(owner=ada)
    child = recorder.start_session(owner=ada, parent=parent)
    assert held_or_not(ada.pk, False, None) == [parent]
    assert held_or_not(ada.pk, False, parent.pk) == [child]
    assert held_or_not(ada.pk, True, None) == []


def test_updates_and_deletions_return_how_many_rows_there_were(ada: User, bob: User) -> None:
    session, now = recorder.start_session(owner=ada, title="old"), datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    assert set_title(session.pk, "100 % new's", now) == 1
    assert set_title(uuid4(), "none", None) == 0
    session.refresh_from_db()
    assert (session.title, session.pinned_at) == ("100 % new's", now)
    for user in (ada, bob):
        RecentMessage.objects.create(user=user, at=now)
    assert forget(ada.pk, now) == 0
    assert forget(ada.pk, now + timedelta(seconds=1)) == 1
    assert RecentMessage.objects.get().user == bob


def test_the_second_call_takes_one_statement_and_no_compiler(ada: User) -> None:
    def refuse_to_build(session_id: UUID) -> QuerySet[Session, str]:
        assert not built, "the queryset is built once"
        built.append(session_id)
        return Session.objects.filter(pk=session_id).values_list("title", flat=True)

    built: list[UUID] = []
    read, session = prepared(refuse_to_build), recorder.start_session(owner=ada, title="x")
    with CaptureQueriesContext(connection) as queries:
        assert read(session.pk) == read(session.pk) == ["x"]
    assert len(queries) == 2


def test_an_argument_that_is_computed_with_is_refused(ada: User) -> None:
    @prepared
    def before(owner: int, moment: datetime) -> QuerySet[Session]:
        return Session.objects.filter(owner=owner, created_at__lt=moment - timedelta(days=1))

    with pytest.raises(TypeError, match="does not use its argument 1"):
        before(ada.pk, datetime(2026, 1, 1, tzinfo=UTC))


def test_without_rows_first_is_none_and_get_raises(ada: User) -> None:
    mine = recorder.start_session(owner=ada, title="Plan")
    assert titles.first(mine.pk) == titles.get(mine.pk) == "Plan"
    assert titles.first(uuid4()) is None
    with pytest.raises(Session.DoesNotExist):
        titles.get(uuid4())
