"""Titles of other users' sessions are text: staff see a neutral name until they have given a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.test import Client

from history.access import keys, permissions
from history.access.permissions import Purpose
from history.access.reasons import open_for_reading
from history.models import Session
from history.record import recorder
from history.search import search
from tests.factories import create_chat

pytestmark = pytest.mark.django_db

WORDS = "mybloodtestresults"
Grant = Callable[..., Any]


@pytest.fixture
def session(ada: Any) -> Session:
    key = keys.create(name="laptop", owner=ada, recording="full").api_key
    return create_chat(ada, f"{WORDS} are bad", "I see.", source="relay", api_key=key, client="claude-code")


@pytest.fixture
def grant(staff: Any) -> Grant:
    def grant(*rights: str) -> Any:
        names = [f"{right}_session" for right in rights] + ["view_message", "view_toolcall", "view_exchange"]
        staff.user_permissions.set(Permission.objects.filter(codename__in=names))
        return type(staff).objects.get(pk=staff.pk)

    return grant


@pytest.mark.parametrize("granted", [("view",), ("view", "read"), ("view", "hold", "delete"), ("view", "export")])
def test_no_page_shows_the_title_to_staff_without_a_reason(
    client: Client, session: Session, grant: Grant, granted: tuple[str, ...]
) -> None:
    client.force_login(grant(*granted))
    pages = [
        "/history/",
        "/history/?source=relay",
        f"/history/?q={WORDS}",
        f"/s/{session.pk}/",
        f"/s/{session.pk}/timeline/",
        f"/s/{session.pk}/whole/",
        "/charts/",
        "/admin/history/session/",
        f"/admin/history/session/{session.pk}/change/",
        f"/admin/history/session/{session.pk}/transcript/",
        f"/admin/history/session/?q={WORDS}",
        "/admin/history/message/",
        f"/admin/history/message/?q={WORDS}",
        "/admin/history/exchange/",
        "/api/history/sessions",
        f"/api/history/sessions/{session.pk}",
        f"/api/history/search?q={WORDS}",
    ]
    answers = {page: client.get(page, follow=True) for page in pages}
    shown = {
        page: answer.content.decode().replace(f"q={WORDS}", "").replace(f'value="{WORDS}"', "")
        for page, answer in answers.items()
    }
    assert [page for page, html in shown.items() if f"{WORDS} are" in html] == []
    assert "Session of" in shown["/history/"]
    assert "claude-code" in shown["/history/"]
    assert "Session of" in shown["/admin/history/session/"]
    assert "Session of" in shown["/api/history/sessions"]


def test_who_has_given_a_reason_sees_the_title_for_an_hour(client: Client, session: Session, grant: Grant) -> None:
    reader = grant("view", "read")
    [listed] = permissions.sessions_for(reader, Purpose.LIST)
    assert WORDS not in listed.title
    open_for_reading(reader, listed, reason="a complaint about it")
    assert listed.title == session.title
    [listed] = permissions.sessions_for(reader, Purpose.LIST)
    assert listed.title == session.title
    client.force_login(reader)
    assert WORDS in client.get("/history/").content.decode()
    assert WORDS in client.get(f"/history/?q={WORDS}").content.decode()


def test_a_reason_counts_as_long_as_the_right_to_read(session: Session, grant: Grant) -> None:
    open_for_reading(grant("view", "read"), session, reason="a complaint about it")
    [listed] = permissions.sessions_for(grant("view"), Purpose.LIST)
    assert WORDS not in listed.title


def test_owners_and_their_keys_see_their_titles(client: Client, ada: Any, session: Session) -> None:
    client.force_login(ada)
    assert WORDS in client.get("/history/").content.decode()
    viewers: list[Any] = [ada, session.api_key]
    viewers.append(keys.create(name="wide", owner=ada, scopes=["read"], owner_wide=True).api_key)
    for viewer in viewers:
        assert [row.title for row in permissions.sessions_for(viewer, Purpose.LIST)] == [session.title]


def test_titles_are_hidden_in_every_way_of_reading_rows(session: Session, grant: Grant) -> None:
    viewer = grant("view")
    rows = permissions.sessions_for(viewer, Purpose.LIST)
    ways = [
        rows.get(pk=session.pk),
        rows.first(),
        *rows.filter(source="relay").order_by("pk")[:5],
        *rows.iterator(),
        *rows.only("title"),
        *rows.defer("title"),
        *rows.in_bulk([session.pk]).values(),
        permissions.find(viewer, session.pk, Purpose.LIST),
    ]
    assert [row for row in ways if row is None or WORDS in row.title] == []


def test_search_finds_no_title_of_others_and_shows_none(session: Session, grant: Grant) -> None:
    reader = grant("view", "read")
    [hit] = [hit for hit in search(reader, WORDS).hits if hit.seq == 1]
    assert hit.title.startswith("Session of")
    open_for_reading(reader, session, reason="a complaint about it")
    assert search(reader, WORDS).hits[0].title == session.title


@pytest.mark.parametrize(
    "page",
    ["/history/", "/rail/", "/palette/", "/admin/history/session/", "/api/history/sessions", "/api/history/search"],
)
def test_no_search_tells_whether_a_hidden_title_has_a_word(
    client: Client, session: Session, grant: Grant, page: str
) -> None:
    """The same answer for a word of the title as for a word of no title."""
    client.force_login(grant("view"))
    right, wrong = (client.get(page, {"q": word}).content.decode() for word in (WORDS, "nosuchwordanywhere"))
    ids = [str(session.pk) in answer for answer in (right, wrong)]
    assert ids[0] == ids[1]
    assert right.count("Session of") == wrong.count("Session of")


def test_a_session_is_called_by_no_words_of_its_own(session: Session) -> None:
    """Its name is used wherever rows refer to it."""
    assert WORDS not in str(session)
    assert WORDS in session.title


def test_a_fork_by_staff_keeps_the_real_title(ada: Any, session: Session, grant: Grant) -> None:
    [listed] = permissions.sessions_for(grant("view"), Purpose.LIST)
    copy = recorder.fork(listed, at=2, owner=ada)
    assert Session.objects.get(pk=copy.pk).title == session.title


def test_the_command_line_hides_them_from_a_user_who_only_lists(
    session: Session, grant: Grant, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("history", "list", "--as", grant("view").username)
    assert WORDS not in capsys.readouterr().out
    call_command("history", "list")
    assert WORDS in capsys.readouterr().out
