"""Sessions of other users: 404 for strangers, a 403 page for viewers who may list, a form for readers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history import retention
from history.access import audit
from history.access.permissions import Purpose, find
from history.access.reasons import HOLDS_FOR, who_read
from history.models import AuditEvent, Session
from history.transcripts.share_links import note_view, share
from tests.factories import create_chat, without_guards
from tests.history.access.test_permissions import key_of, with_right

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

HTMX = {"HX-Request": "true"}


@pytest.fixture
def session(ada: Any) -> Session:
    return create_chat(ada, "the secret", "the answer", title="Looms")


def enter(client: Client, person: Any) -> Client:
    client.force_login(person)
    return client


@pytest.fixture
def auditor(client: Client, staff: Any) -> Client:
    return enter(client, with_right(staff, "view_session", "read_session"))


def pages_of(session: Session) -> list[str]:
    """Every URL that shows texts of a session."""
    here = f"/s/{session.pk}/"
    return [here, f"{here}?before=2", f"{here}?at=1", f"{here}1/", f"{here}1/?as=text", f"{here}panel/"]


def statuses(client: Client, session: Session) -> set[int]:
    answers = [client.get(address) for address in pages_of(session)]
    assert not any(b"the secret" in answer.content for answer in answers if answer.status_code != 200)
    return {answer.status_code for answer in answers}


def say_why(client: Client, session: Session, reason: str = "ticket 7", **fields: str) -> Any:
    return client.post(f"/s/{session.pk}/open/", {"reason": reason, **fields})


def test_a_stranger_is_told_that_there_is_nothing(client: Client, bob: Any, staff: Any, session: Session) -> None:
    for person in (bob, staff):
        assert statuses(enter(client, person), session) == {404}
        assert client.get(f"/s/{session.pk}/open/").status_code == 404
        assert say_why(client, session).status_code == 404
    assert not AuditEvent.objects.exists()


def test_trap_11_staff_without_the_right_to_read_get_words_and_no_text(
    client: Client, staff: Any, session: Session
) -> None:
    enter(client, with_right(staff, "view_session"))
    assert statuses(client, session) == {403}
    html = client.get(f"/s/{session.pk}/").content.decode()
    assert "but you cannot read it" in html
    assert "history.read_session" in html
    assert client.get(f"/s/{session.pk}/open/").status_code == 403
    assert say_why(client, session).status_code == 403, "a reason does not replace the right"
    assert not AuditEvent.objects.exists()


def test_staff_with_the_right_say_why_first_and_then_read_everything(auditor: Client, session: Session) -> None:
    assert statuses(auditor, session) == {403}
    html = auditor.get(f"/s/{session.pk}/?at=1").content.decode()
    assert 'name="reason"' in html
    assert f'value="/s/{session.pk}/?at=1"' in html
    answer = say_why(auditor, session, next=f"/s/{session.pk}/?at=1")
    assert answer["Location"] == f"/s/{session.pk}/?at=1"
    assert statuses(auditor, session) == {200}
    assert [event.reason for event in AuditEvent.objects.all()] == ["ticket 7"]
    assert list(audit.flaws()) == []


def test_after_an_hour_they_are_asked_again_also_by_parts_of_a_page(auditor: Client, session: Session) -> None:
    say_why(auditor, session)
    without_guards(AuditEvent.objects.all()).update(at=timezone.now() - HOLDS_FOR - timedelta(seconds=1))
    assert statuses(auditor, session) == {403}
    headers = HTMX | {"HX-Target": "older", "HX-Current-URL": f"http://testserver/s/{session.pk}/?at=2"}
    answer = auditor.get(f"/s/{session.pk}/?before=2", headers=headers)
    assert answer["HX-Redirect"] == f"/s/{session.pk}/open/?next=%2Fs%2F{session.pk}%2F%3Fat%3D2"
    assert answer.content == b""


@pytest.mark.parametrize("reason", ["", "  ", "ab", "x" * 501])
def test_a_reason_that_says_nothing_is_not_taken(auditor: Client, session: Session, reason: str) -> None:
    answer = say_why(auditor, session, reason)
    assert answer.status_code == 422
    assert b"errorlist" in answer.content
    assert not AuditEvent.objects.exists()


def test_the_owner_is_not_asked(client: Client, ada: Any, session: Session) -> None:
    enter(client, ada)
    assert statuses(client, session) == {200}
    assert (
        client.get(f"/s/{session.pk}/open/")["Location"] == say_why(client, session)["Location"] == f"/s/{session.pk}/"
    )
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize("wanted", ["//evil.example/", "https://evil.example/", "javascript:alert(1)", ""])
def test_the_way_back_is_one_of_ours(auditor: Client, session: Session, wanted: str) -> None:
    assert say_why(auditor, session, next=wanted)["Location"] == f"/s/{session.pk}/"


def test_a_reason_comes_with_the_token_of_the_form(staff: Any, session: Session) -> None:
    client = enter(Client(enforce_csrf_checks=True), with_right(staff, "view_session", "read_session"))
    assert say_why(client, session).status_code == 403
    assert not AuditEvent.objects.exists()


# Who read this.


def test_only_the_owner_sees_who_read_it_when_and_why(auditor: Client, ada: Any, session: Session) -> None:
    say_why(auditor, session, "ticket <7>")
    assert "Who read this" not in auditor.get(f"/s/{session.pk}/").content.decode()
    html = enter(auditor, ada).get(f"/s/{session.pk}/").content.decode()
    assert "Who read this" in html
    assert "grace read this session" in html
    assert "ticket &lt;7&gt;" in html
    assert "Who read this" in auditor.get(f"/s/{session.pk}/panel/").content.decode()
    assert "Who read this" not in auditor.get(f"/s/{create_chat(ada, 'another').pk}/").content.decode()


def test_exports_links_and_keys_are_told_as_well_but_no_hold(ada: Any, staff: Any, session: Session) -> None:
    key = key_of(staff, scopes=["export", "admin"])
    audit.record("session.exported", key=key.pk, session=session.pk, reason="nightly audit")
    note_view(share(session, by=ada))
    retention.hold(session, actor=staff, reason="a dispute")
    audit.record("session.read", actor=4711, session=session.pk, reason="long ago")
    assert [(reading.words, reading.reason) for reading in who_read(session)] == [
        ("Deleted user read this session", "long ago"),
        ("A share link was opened", ""),
        ("ada created a share link", ""),
        (f"The key {key.prefix} of grace exported this session", "nightly audit"),
    ]


# Hold.


def test_trap_15_a_delete_under_hold_hides_the_session_from_its_owner(
    client: Client, ada: Any, staff: Any, session: Session
) -> None:
    retention.hold(session, actor=staff, reason="a dispute")
    enter(client, ada)
    assert client.post(f"/s/{session.pk}/delete/").status_code == 302
    assert statuses(client, session) == {404}
    retention.purge(dry_run=False)
    enter(client, with_right(staff, "view_session", "read_session"))
    assert statuses(client, session) == {404}, "the right to read is not the right to hold"
    keeper = with_right(staff, "view_session", "read_session", "hold_session")
    assert find(keeper, session.pk, Purpose.LIST) == session
    say_why(enter(client, keeper), session, "the dispute")
    html = client.get(f"/s/{session.pk}/").content.decode()
    assert "the secret" in html
    assert "deleted by its owner" in html
    assert "ada deleted this conversation" in html
    actions = list(AuditEvent.objects.order_by("seq").values_list("action", flat=True))
    assert actions == ["hold", "hide", "session.read"]


def test_no_cache_shows_a_page_to_anybody_but_its_reader(client: Client, ada: Any, session: Session) -> None:
    enter(client, ada)
    for address in ("/", *pages_of(session), f"/s/{session.pk}/1/edit/"):
        header = client.get(address)["Cache-Control"]
        assert "private" in header, address
        assert "no-cache" in header, address
