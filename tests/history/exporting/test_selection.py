"""Who gets what: the owner, staff with and without the right to export, a key, a stranger; and what is written down."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from io import BytesIO
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
from django.contrib.auth.models import Permission

from history import retention
from history.access import keys
from history.access.reasons import NotPermitted, ReasonNeeded
from history.exporting import CannotExport, NothingSelected, Selection, begin
from history.models import AuditEvent, Exchange, Session
from history.record import exchanges
from history.search import SessionQuery
from project.accounts.models import User
from relay.models import Agent
from tests.factories import create_chat, without_guards
from tests.history.formats.exported import restored

pytestmark = pytest.mark.django_db


def lines(viewer: Any, selection: Selection = Selection(), **how: Any) -> list[dict[str, Any]]:  # noqa: B008
    return [json.loads(line) for line in b"".join(begin(viewer, selection, "jsonl", **how).pieces()).splitlines()]


def exported(viewer: Any, selection: Selection = Selection(), **how: Any) -> set[str]:  # noqa: B008
    return {line["title"] for line in lines(viewer, selection, **how) if line["type"] == "session"}


def allow(user: User, *names: str) -> User:
    user.user_permissions.add(*Permission.objects.filter(codename__in=names, content_type__app_label="history"))
    return User.objects.get(pk=user.pk)


def test_an_owner_exports_their_own_and_a_stranger_nothing_of_it(ada: User, bob: User) -> None:
    session = create_chat(ada, "Ada's words", "yes")
    create_chat(bob, "Bob's words", "yes")
    assert exported(ada) == {"Ada's words"}
    assert exported(bob) == {"Bob's words"}
    with pytest.raises(NothingSelected):
        begin(bob, Selection(sessions=(session.pk,)), "jsonl")
    with pytest.raises(NothingSelected):
        begin(ada, Selection(sessions=(uuid4(),)), "jsonl")


def test_staff_without_the_right_see_that_it_is_there_and_do_not_get_it(ada: User, staff: User) -> None:
    session = create_chat(ada, "Ada's words", "yes")
    lister = allow(staff, "view_session", "read_session")
    with pytest.raises(NotPermitted):
        begin(lister, Selection(sessions=(session.pk,)), "jsonl", reason="curious")
    assert exported(lister) == set()


def test_staff_say_why_and_the_owner_can_read_it(ada: User, staff: User) -> None:
    session = create_chat(ada, "Ada's words", "yes")
    exporter = allow(staff, "view_session", "export_session")
    with pytest.raises(ReasonNeeded):
        begin(exporter, Selection(), "jsonl")
    with pytest.raises(ReasonNeeded):
        begin(exporter, Selection(), "jsonl", reason="no")
    assert exported(exporter, reason="a court order") == {"Ada's words"}
    told = AuditEvent.objects.get(action="session.exported")
    assert (told.session, told.actor, told.reason) == (session.pk, staff.pk, "a court order")
    assert exported(exporter) == {"Ada's words"}  # within the hour


def test_every_export_is_an_event(ada: User) -> None:
    create_chat(ada, "one", "two")
    exported(ada)
    event = AuditEvent.objects.get(action="export")
    assert (event.actor, json.loads(event.details)) == (ada.pk, {"count": 1, "format": "jsonl"})
    assert not AuditEvent.objects.filter(action="session.exported").exists()


def test_a_key_exports_what_was_recorded_under_it_if_it_may(ada: User) -> None:
    key = keys.create(name="k", owner=ada, scopes=["export"]).api_key
    other = keys.create(name="o", owner=ada, scopes=["read"]).api_key
    create_chat(ada, "by the key", "yes", api_key=key, source="relay")
    create_chat(ada, "in the chat", "yes")
    assert exported(key) == {"by the key"}
    assert exported(other) == set()


def test_a_selection_is_narrowed_by_owner_and_filters(ada: User, bob: User) -> None:
    create_chat(ada, "a chat", "yes")
    create_chat(ada, "relayed", "yes", source="relay")
    create_chat(bob, "Bob's", "yes")
    root = User.objects.create_superuser("root")
    create_chat(root, "root's own", "yes")
    assert exported(root, reason="backup") == {"a chat", "relayed", "Bob's", "root's own"}
    assert exported(root, Selection(mine=True)) == {"root's own"}
    assert exported(None, Selection(filters=SessionQuery(owner=(ada.pk,), source=("relay",)))) == {"relayed"}


def test_calls_that_belong_to_no_session_go_with_what_is_narrowed_by_nothing_else(ada: User, bob: User) -> None:
    key = keys.create(name="k", owner=ada, recording="metadata").api_key
    exchange = exchanges.open_exchange(None, owner=ada, api_key=key, model="m")
    exchanges.finish(exchange, None, end_reason="done")
    calls = [line for line in lines(ada) if line["type"] == "exchange"]
    assert [(call["owner"], call["key"], call["session"]) for call in calls] == [("ada", key.prefix, None)]
    assert [line for line in lines(bob) if line["type"] == "exchange"] == []
    assert [
        line for line in lines(ada, Selection(filters=SessionQuery(source=("chat",)))) if line["type"] == "exchange"
    ] == []
    file = b"".join(begin(ada, Selection(), "jsonl").pieces())
    without_guards(Exchange.objects.all()).delete()
    assert restored(file) == []
    assert b"".join(begin(ada, Selection(), "jsonl").pieces()) == file
    assert restored(file) == []


def test_what_is_deleted_is_not_exported(ada: User) -> None:
    session = create_chat(ada, "hidden", "yes")
    retention.hide(session, actor=ada)
    assert exported(ada) == set()


def test_only_an_export_of_everything_has_server_data(ada: User) -> None:
    Agent.objects.get_or_create(name="assistant")
    create_chat(ada, "one", "two")
    assert "agent" not in {line["type"] for line in lines(ada)}
    assert "agent" in {line["type"] for line in lines(None)}


def test_unknown_formats_and_cursors_are_refused_with_words(ada: User) -> None:
    with pytest.raises(CannotExport, match="choose from"):
        begin(ada, Selection(), "docx")
    with pytest.raises(CannotExport, match="not a valid cursor"):
        begin(ada, Selection(), "jsonl", since="yesterday")


def test_gzip_is_the_same_bytes_inside_and_every_time(ada: User) -> None:
    create_chat(ada, "one", "two")
    plain = b"".join(begin(ada, Selection(), "jsonl").pieces())
    export = begin(ada, Selection(), "jsonl", compress=True)
    packed = b"".join(export.pieces())
    assert gzip.decompress(packed) == plain
    assert export.file_name.endswith(".jsonl.gz")
    assert packed == b"".join(begin(ada, Selection(), "jsonl", compress=True).pieces())


def test_a_time_that_no_zip_knows_breaks_no_archive(ada: User) -> None:
    for year in (1979, 2150):
        session = create_chat(ada, f"of {year}")
        Session.objects.filter(pk=session.pk).update(last_activity_at=datetime(year, 1, 1, tzinfo=UTC))
    archive = ZipFile(BytesIO(b"".join(begin(None, Selection(), "markdown").pieces())))
    assert sorted(info.date_time[0] for info in archive.infolist())[0] == 1980
    assert sum(info.date_time[0] == 2107 for info in archive.infolist()) == 1
