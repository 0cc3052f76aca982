"""Forks of sessions by staff, for sessions that the relay recognised wrongly."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.test import Client

from history.models import AuditEvent, Session
from tests.factories import create_chat
from tests.history.access.test_permissions import with_right

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(ada: Any) -> Session:
    return create_chat(ada, "Threads", "Threads, indeed.", "Cards", "Cards, indeed.", title="The loom")


def post_fork(client: Client, session: Session, **fields: Any) -> Any:
    return client.post(f"/admin/history/session/{session.pk}/fork/", {"reason": "two talks in one", **fields})


def test_session_page_shows_how_the_relay_recognised_it(client: Client, ada: Any, session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(recognised_by="fingerprint")
    client.force_login(ada)
    page = client.get(f"/s/{session.pk}/")
    assert "recognised by</dt><dd>earlier messages" in unescape(page.content.decode())


def test_staff_fork_a_session_for_its_owner(client: Client, staff: Any, ada: Any, session: Session) -> None:
    client.force_login(with_right(staff, "view_session", "change_session"))
    page = client.get(f"/admin/history/session/{session.pk}/change/")
    assert f"/admin/history/session/{session.pk}/fork/" in page.content.decode()
    assert post_fork(client, session, at=99).status_code == 422
    assert post_fork(client, session, at=2, reason="").status_code == 422
    assert post_fork(client, session, at=2).status_code == 302
    copy = Session.objects.get(forked_from=session)
    assert (copy.owner, copy.forked_at, copy.message_count) == (ada, 2, 2)
    event = AuditEvent.objects.get(action="fork")
    assert (event.session, event.reason) == (session.pk, "two talks in one")


@pytest.mark.parametrize("rights", [(), ("view_session",), ("change_session",)], ids=str)
def test_staff_who_may_not_change_sessions_fork_none(
    client: Client, staff: Any, session: Session, rights: tuple[str, ...]
) -> None:
    client.force_login(with_right(staff, *rights))
    assert post_fork(client, session).status_code == 404
