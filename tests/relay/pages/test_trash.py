"""Recently deleted sessions: listed for their owner, restored until they are removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history.access import keys
from history.models import Session
from history.sessions import actions
from tests.factories import create_chat
from tests.history.access.test_permissions import with_right

pytestmark = pytest.mark.django_db
PAGE = "/history/deleted/"


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def restore(client: Client, session: Session) -> int:
    return client.post(f"{PAGE}restore/", {"session": str(session.pk)}).status_code


def test_a_session_deleted_hours_ago_is_restored(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one", title="The loom")
    actions.delete(session, by=ada)
    Session.objects.filter(pk=session.pk).update(hidden_at=timezone.now() - timedelta(hours=23))
    assert "The loom" in reader.get(PAGE).content.decode()
    assert restore(reader, session) == 302
    assert "The loom" not in reader.get(PAGE).content.decode().split("</h1>")[1]
    assert reader.get(f"/s/{session.pk}/").status_code == 200


def test_after_the_trash_hours_nothing_is_offered(reader: Client, ada: Any, settings: Any) -> None:
    settings.PARLEY_TRASH_HOURS = 2
    session = create_chat(ada, "one", title="The loom")
    actions.delete(session, by=ada)
    Session.objects.filter(pk=session.pk).update(hidden_at=timezone.now() - timedelta(hours=3))
    assert "The loom" not in reader.get(PAGE).content.decode()
    assert restore(reader, session) == 404


def test_other_people_see_and_restore_nothing(client: Client, ada: Any, bob: Any) -> None:
    session = create_chat(ada, "one", title="The loom")
    actions.delete(session, by=ada)
    client.force_login(bob)
    assert "The loom" not in client.get(PAGE).content.decode()
    assert restore(client, session) == 404


def test_what_staff_deleted_is_not_restored_by_its_owner(reader: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "one", title="The loom")
    actions.delete(session, by=with_right(staff, "view_session", "delete_session"), reason="asked to")
    assert "The loom" not in reader.get(PAGE).content.decode()
    assert restore(reader, session) == 404


def test_what_a_key_of_the_owner_deleted_is_restored(reader: Client, ada: Any) -> None:
    made = keys.create(name="laptop", owner=ada, scopes=["read", "delete"], owner_wide=True)
    session = create_chat(ada, "one", title="The loom")
    headers = {"Authorization": f"Bearer {made.secret}"}
    assert Client().delete(f"/api/history/sessions/{session.pk}", headers=headers).status_code == 204
    assert restore(reader, session) == 302


def test_sessions_opened_from_a_deleted_one_come_back_with_it(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one", title="The loom")
    below = create_chat(ada, "two", title="The spindle")
    Session.objects.filter(pk=below.pk).update(parent=session.pk)
    actions.delete(session, by=ada)
    html = reader.get(PAGE).content.decode()
    assert "The loom" in html
    assert "The spindle" not in html
    assert restore(reader, session) == 302
    assert not Session.objects.exclude(hidden_at=None).exists()


@pytest.mark.parametrize("wrong", ["", "nonsense", "00000000-0000-0000-0000-000000000000"])
def test_a_wrong_id_is_not_found(reader: Client, wrong: str) -> None:
    assert reader.post(f"{PAGE}restore/", {"session": wrong}).status_code == 404
