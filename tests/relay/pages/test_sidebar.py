"""The list of one's own sessions: what is in it, in which order, and what its owner can do from there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.utils import timezone, translation
from pytest_django.asserts import assertRedirects

from history import retention
from history.models import AuditEvent, Session
from history.pages.browse.views import UNDO
from history.record import recorder
from history.record.listing import find_by_title
from history.templatetags.lists import origin, short_day, short_time
from relay.models import Run
from relay.pages.sidebar.sessions import (
    PAGE,
    address_with,
    day_label,
    just_deleted,
    read_sidebar_page,
    search_sidebar,
    sidebar_sessions,
)
from tests.factories import create_chat

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)  # a Wednesday


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def at(session: Session, moment: datetime) -> Session:
    Session.objects.filter(pk=session.pk).update(last_activity_at=moment)
    return session


def page(reader: Client, **asked: str) -> str:
    response = reader.get("/rail/", asked, headers=HTMX)
    assert response.status_code == 200
    return response.content.decode()


def listed(html: str) -> list[str]:
    return re.findall(r'<li class="sidebar-session" id="sidebar-([0-9a-f-]{36})"', html)


def headings(html: str) -> list[str]:
    return re.findall(r'<li class="sidebar-day"><h2>(.*?)</h2>', html)


def do(reader: Client, session: Session, verb: str, **fields: Any) -> str:
    response = reader.post(f"/s/{session.pk}/{verb}/", fields, headers=HTMX)
    assert response.status_code == 200
    return response.content.decode()


# What is in it.


def test_only_my_sessions_are_listed(reader: Client, ada: Any, bob: Any) -> None:
    mine, theirs = create_chat(ada, "my loom"), create_chat(bob, "his loom")
    html = page(reader)
    assert listed(html) == [str(mine.pk)]
    assert str(theirs.pk) not in html


def test_staff_who_may_read_everything_have_only_their_own_in_the_sidebar(client: Client, ada: Any, staff: Any) -> None:
    create_chat(ada, "my loom")
    staff.user_permissions.add(Permission.objects.get(codename="view_session", content_type__app_label="history"))
    client.force_login(staff)
    assert listed(page(client)) == []
    assert listed(page(client, q="loom")) == []
    assert "loom</mark>" not in page(client, q="loom")


def test_anonymous_users_are_asked_to_sign_in(client: Client) -> None:
    assert client.get("/rail/").status_code == 302


def test_subagents_notebooks_hidden_archived_and_expired_sessions_are_not_listed(reader: Client, ada: Any) -> None:
    shown = create_chat(ada, "shown")
    create_chat(ada, "of an agent", parent=shown)
    create_chat(ada, "notes", source="notebook")
    retention.hide(create_chat(ada, "hidden"), actor=ada)
    recorder.archive(create_chat(ada, "archived"), archived=True)
    Session.objects.filter(pk=create_chat(ada, "expired").pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert listed(page(reader)) == [str(shown.pk)]


def test_what_was_spoken_in_last_comes_first_and_pinned_ones_before_everything(reader: Client, ada: Any) -> None:
    now = timezone.now()
    old, new, pinned = (create_chat(ada, text) for text in ("old", "new", "pinned"))
    at(old, now - timedelta(minutes=2))
    at(new, now - timedelta(minutes=1))
    at(pinned, now - timedelta(days=400))
    recorder.pin(pinned, pinned=True)
    html = page(reader)
    assert listed(html) == [str(session.pk) for session in (pinned, new, old)]
    assert headings(html)[0] == "Pinned"


@pytest.mark.parametrize(
    ("hours_ago", "label"),
    [
        (-3, "Today"),
        (0, "Today"),
        (12, "Today"),
        (13, "Yesterday"),
        (36, "Yesterday"),
        (37, "Monday"),
        (24 * 6, "Thursday"),
        (24 * 7, "November 2026"),
        (24 * 30, "October 2026"),
        (24 * 400, "October 2025"),
    ],
)
def test_days_are_named_as_people_name_them(hours_ago: int, label: str) -> None:
    with translation.override("en"):
        assert day_label(NOON - timedelta(hours=hours_ago), now=NOON) == label


def test_a_day_begins_where_its_reader_lives(reader: Client, ada: Any) -> None:
    late = datetime(2026, 11, 17, 20, tzinfo=UTC)
    assert day_label(late, now=NOON) == "Yesterday"
    with timezone.override("Asia/Shanghai"):
        assert day_label(late, now=NOON) == "Today"


def test_the_list_is_endless_and_meets_every_session_once_with_each_heading_once(reader: Client, ada: Any) -> None:
    sessions = [create_chat(ada, f"number {number}") for number in range(2 * PAGE + 5)]
    # All at one moment: the id decides.
    Session.objects.update(last_activity_at=timezone.now() - timedelta(days=40))
    seen: list[str] = []
    days: list[str] = []
    link: str | None = "/rail/"
    while link:
        html = reader.get(link, headers=HTMX).content.decode()
        seen += listed(html)
        days += headings(html)
        found = re.search(r'hx-get="(/rail/\?[^"]*before=[^"]*)" hx-trigger="intersect once', html)
        link = found[1].replace("&amp;", "&") if found else None
    assert sorted(seen) == sorted(str(session.pk) for session in sessions)
    assert len(days) == 1


@pytest.mark.parametrize("before", ["x", "2026", "_", "9" * 40, "2026-01-01_" + "0" * 36])
def test_nonsense_in_the_address_asks_for_the_beginning(reader: Client, ada: Any, before: str) -> None:
    session = create_chat(ada, "one")
    assert listed(page(reader, before=before, current="unknown")) == [str(session.pk)]


def test_without_a_script_the_list_is_a_page_with_a_link_to_older_ones(reader: Client, ada: Any) -> None:
    for number in range(PAGE + 1):
        create_chat(ada, f"number {number}")
    html = reader.get("/rail/").content.decode()
    assert "<html" in html
    older = re.search(r'<a href="(/rail/\?before=[^"]*)"', html)
    assert older
    assert len(listed(reader.get(older[1]).content.decode())) == 1


@pytest.mark.parametrize("number", [3, PAGE])
def test_a_page_takes_as_many_queries_however_many_it_shows(
    reader: Client, ada: Any, number: int, django_assert_max_num_queries: Any
) -> None:
    for place in range(number):
        recorder.pin(create_chat(ada, f"number {place}"), pinned=place % 2 == 0)
    with django_assert_max_num_queries(7):  # the signed-in user (2), list, pinned, deleted, just archived, runs
        page(reader)


def test_the_current_session_is_marked(reader: Client, ada: Any) -> None:
    one, two = create_chat(ada, "one"), create_chat(ada, "two")
    html = page(reader, current=str(one.pk))
    assert re.search(rf'href="/s/{one.pk}/" aria-current="page"', html)
    assert not re.search(rf'href="/s/{two.pk}/" aria-current', html)


def test_a_title_cannot_smuggle_markup(reader: Client, ada: Any) -> None:
    create_chat(ada, "hello", title="<script>alert(1)</script>")
    assert "<script>" not in page(reader)


@pytest.mark.parametrize(
    ("fields", "mark", "name"),
    [
        ({}, "", "Chat"),
        ({"source": "relay", "client": "Claude Code"}, "CC", "Claude Code"),
        ({"source": "relay", "client": "Codex"}, "CX", "Codex"),
        ({"source": "relay", "client": "a user's script"}, "API", "a user's script"),
        ({"source": "relay"}, "API", "API"),
        ({"source": "import", "client": "ChatGPT"}, "IM", "Import from ChatGPT"),
    ],
)
def test_every_session_says_where_it_came_from_in_a_mark_and_in_words(
    reader: Client, ada: Any, fields: dict[str, str], mark: str, name: str
) -> None:
    session = create_chat(ada, "hello", **fields)
    with translation.override("en"):
        assert (origin(session).mark, origin(session).name) == (mark, name)
    html = page(reader).replace("&#x27;", "'")
    assert f'title="{name}"><span aria-hidden="true">{mark}</span><span class="visually-hidden">{name}' in html


# Answering.


def test_a_session_that_is_being_answered_says_so_in_a_word(reader: Client, ada: Any) -> None:
    busy, quiet = create_chat(ada, "one"), create_chat(ada, "two")
    Run.objects.create(session=busy, owner=ada)
    Run.objects.create(session=quiet, owner=ada, ended_at=timezone.now(), outcome="done")
    html = page(reader)
    assert html.count('class="sidebar-answering"') == 1
    assert Run.objects.sessions_running([busy.pk, quiet.pk, uuid4()]) == {busy.pk}


def test_an_empty_request_asks_no_model(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert Run.objects.sessions_running([]) == set()


# Search.


def test_titles_and_messages_are_found_and_the_words_are_marked(reader: Client, ada: Any) -> None:
    said = create_chat(ada, "The disk of the server is full.", "Then empty it.", title="About Monday")
    titled = create_chat(ada, "hello", title="A Server of our own")
    html = page(reader, q="serv")
    assert listed(html) == [str(titled.pk)]
    assert "<mark>server</mark>" in html
    assert f'href="/s/{said.pk}/?at=1&amp;q=serv#m1"' in html
    assert "About Monday" in html


def test_a_time_under_no_heading_says_which_day_it_is_of() -> None:
    now = timezone.now()
    with translation.override("en"):
        assert short_day(now) == short_time(now)
        assert short_day(now - timedelta(days=2)) == timezone.localtime(now - timedelta(days=2)).strftime("%a")
        assert re.fullmatch(r"\d\d:\d\d", short_time(now - timedelta(days=2)))
        assert short_day(now - timedelta(days=800)) == short_time(now - timedelta(days=800))


def test_only_what_is_mine_is_found(client: Client, ada: Any, bob: Any) -> None:
    create_chat(ada, "my loom is broken", title="loom")
    client.force_login(bob)
    html = page(client, q="loom")
    assert "Nothing found for “loom”." in html
    assert "broken" not in html


def test_a_deleted_session_is_not_found_even_by_staff_who_see_held_ones(client: Client, staff: Any) -> None:
    rights = ("view_session", "hold_session")
    staff.user_permissions.set(Permission.objects.filter(codename__in=rights, content_type__app_label="history"))
    session = create_chat(staff, "my loom", title="loom")
    retention.hold(session, actor=staff, reason="a dispute")
    retention.hide(session, actor=staff)
    client.force_login(staff)
    html = page(client, q="loom")
    assert "Nothing found" in html


@pytest.mark.parametrize(
    "words", ['"', "'", "*", "OR", "-", "a OR", '"a* -', "%", "_", "\0", "（", "x" * 3000, ":m", "NEAR("]
)
def test_no_text_is_an_error(reader: Client, ada: Any, words: str) -> None:
    create_chat(ada, "one")
    assert reader.get("/rail/", {"q": words}, headers=HTMX).status_code == 200
    assert reader.get("/rail/", {"q": words}).status_code == 200


def test_hits_go_on_where_the_page_ended(reader: Client, ada: Any) -> None:
    create_chat(ada, *[f"loom number {number}" for number in range(50)])
    seen: list[str] = []
    link: str | None = "/rail/?q=loom"
    while link:
        html = reader.get(link, headers=HTMX).content.decode()
        seen += re.findall(r"\?at=(\d+)&amp;q=loom", html)
        found = re.search(r'hx-get="(/rail/\?[^"]*before=[^"]*)"', html)
        link = found[1].replace("&amp;", "&") if found else None
    assert seen == [str(number) for number in range(50, 0, -1)]


def test_a_search_is_part_of_the_address_of_the_page(reader: Client, ada: Any) -> None:
    headers = HTMX | {"HX-Current-URL": "http://testserver/s/x/?at=4&q=old"}
    assert reader.get("/rail/", {"q": "new words"}, headers=headers)["HX-Replace-Url"] == "/s/x/?at=4&q=new+words"
    assert reader.get("/rail/", {"q": ""}, headers=headers)["HX-Replace-Url"] == "/s/x/?at=4"


@pytest.mark.parametrize("address", ["http://evil.example//other/?a=1", "//evil.example/x", "javascript:alert(1)"])
def test_the_address_shown_is_always_one_of_ours(address: str) -> None:
    shown = address_with(address, words="a b")
    assert shown.startswith("/")
    assert not shown.startswith("//")
    assert "evil.example" not in shown


# What its owner can do.


def test_pinning_and_unpinning_give_the_list_in_its_new_order(reader: Client, ada: Any) -> None:
    old, new = create_chat(ada, "old"), create_chat(ada, "new")
    assert listed(do(reader, old, "pin")) == [str(old.pk), str(new.pk)]
    assert listed(do(reader, old, "unpin")) == [str(new.pk), str(old.pk)]


def test_an_archived_session_leaves_the_list_is_in_the_archive_and_comes_back(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    html = do(reader, session, "archive")
    assert "Archived" in html
    assert f'hx-post="/s/{session.pk}/unarchive/"' in html
    assert listed(page(reader)) == []
    assert listed(page(reader, archived="1")) == [str(session.pk)]
    assert listed(do(reader, session, "unarchive", undo="1")) == [str(session.pk)]
    assert listed(page(reader)) == [str(session.pk)]


def test_the_menu_of_the_open_session_says_what_became_of_it(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    html = do(reader, session, "archive", **{"from": "head"})
    assert re.search(r'id="session-changed"[^>]*>\s*Archived', html)
    assert f'hx-post="/s/{session.pk}/unarchive/"' in html.split("Undo")[0]
    assert "Unarchive</button>" in html.split('id="session-verbs"')[1]
    assert "Pinned" in do(reader, session, "pin", **{"from": "head"})
    assert reader.post(f"/s/{session.pk}/archive/", {"from": "head"}).status_code == 302, "without a script"


def test_a_pinned_session_that_is_archived_is_in_the_archive_alone(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    recorder.pin(session, pinned=True)
    recorder.archive(session, archived=True)
    assert listed(page(reader)) == []
    assert listed(page(reader, archived="1")) == [str(session.pk)]


def test_a_new_title_is_told_to_the_page_and_what_was_typed_is_tidied(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    response = reader.post(f"/s/{session.pk}/rename/", {"title": "  季度\n报告  "}, headers=HTMX)
    session.refresh_from_db()
    assert session.title == "季度 报告"
    assert "季度 报告" in response.content.decode()
    assert response["HX-Trigger-After-Settle"].isascii()


def test_no_title_changes_nothing(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    do(reader, session, "rename", title="   ")
    assert Session.objects.get(pk=session.pk).title == session.title


def test_the_form_for_a_new_title_stands_in_the_row_or_on_a_page_of_its_own(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "hello", title="One & two")
    form = reader.get(f"/s/{session.pk}/rename/", headers=HTMX).content.decode()
    assert f'id="sidebar-{session.pk}"' in form
    assert 'value="One &amp; two"' in form
    assert "<html" in reader.get(f"/s/{session.pk}/rename/").content.decode()
    assert listed(reader.get(f"/s/{session.pk}/row/", headers=HTMX).content.decode()) == [str(session.pk)]


def test_a_deleted_session_is_gone_at_once_and_undo_brings_it_back(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    assert "Undo" in do(reader, session, "delete")
    assert reader.get(f"/s/{session.pk}/").status_code == 404
    assert listed(page(reader)) == []
    assert listed(do(reader, session, "undelete")) == [str(session.pk)]
    assert reader.get(f"/s/{session.pk}/").status_code == 200
    told = list(AuditEvent.objects.order_by("seq").values_list("action", "actor", "session"))
    assert told == [("hide", ada.pk, session.pk), ("unhide", ada.pk, session.pk)]


def test_what_was_just_deleted_can_be_brought_back_from_any_page(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    do(reader, session, "delete")
    html = page(reader)
    assert f'hx-post="/s/{session.pk}/undelete/"' in html
    Session.objects.filter(pk=session.pk).update(hidden_at=timezone.now() - UNDO - timedelta(seconds=6))
    assert "Undo" not in page(reader)
    assert reader.post(f"/s/{session.pk}/undelete/", headers=HTMX).status_code == 200


def test_what_is_being_removed_cannot_be_brought_back(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    retention.erase(session, actor=ada, reason="asked to")
    assert reader.post(f"/s/{session.pk}/undelete/", headers=HTMX).status_code == 404


def test_deleting_the_session_that_is_open_leads_to_an_empty_chat(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    response = reader.post(f"/s/{session.pk}/delete/", {"current": str(session.pk)}, headers=HTMX)
    assert response["HX-Redirect"] == "/"


def test_deleting_a_running_chat_stops_it_and_undo_restores_it(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Is it slow?")
    run = Run.objects.create(session=session, owner=ada)
    do(reader, session, "delete")
    run.refresh_from_db()
    assert run.stop_requested_at is not None
    do(reader, session, "undelete")
    assert "Is it slow?" in reader.get(f"/s/{session.pk}/").content.decode()


@pytest.mark.parametrize("verb", ["pin", "unpin", "archive", "unarchive", "rename", "delete", "undelete", "row"])
def test_a_stranger_and_staff_are_told_that_there_is_no_such_session(
    client: Client, ada: Any, bob: Any, staff: Any, verb: str
) -> None:
    session = create_chat(ada, "one", title="mine")
    if verb == "undelete":
        retention.hide(session, actor=ada)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="history"))
    before = Session.objects.values().get(pk=session.pk)
    for other in (bob, staff):
        client.force_login(other)
        call: Callable[..., Any] = client.get if verb == "row" else client.post
        assert call(f"/s/{session.pk}/{verb}/", {"title": "theirs"}).status_code == 404
    client.logout()
    assert client.post(f"/s/{session.pk}/{verb}/", {"title": "theirs"}).status_code in (302, 405)
    assert Session.objects.values().get(pk=session.pk) == before


@pytest.mark.parametrize("verb", ["pin", "archive", "rename", "delete", "undelete"])
def test_nothing_is_changed_without_the_token(ada: Any, verb: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    session = create_chat(ada, "one")
    assert client.post(f"/s/{session.pk}/{verb}/", {"title": "x"}).status_code == 403


@pytest.mark.parametrize("verb", ["pin", "archive", "delete", "undelete"])
def test_nothing_is_changed_by_following_a_link(reader: Client, ada: Any, verb: str) -> None:
    assert reader.get(f"/s/{create_chat(ada, 'one').pk}/{verb}/").status_code == 405


# Without a script.


def test_a_plain_form_leads_back_to_where_it_stood(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    response = reader.post(f"/s/{session.pk}/pin/", {"next": f"/s/{session.pk}/?at=1"})
    assertRedirects(response, f"/s/{session.pk}/?at=1")
    response = reader.post(f"/s/{session.pk}/rename/", {"title": "new", "next": "/rail/"})
    assertRedirects(response, "/rail/")


@pytest.mark.parametrize("address", ["", "https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_a_form_leads_nowhere_else(reader: Client, ada: Any, address: str) -> None:
    response = reader.post(f"/s/{create_chat(ada, 'one').pk}/pin/", {"next": address})
    assert response["Location"] == "/"


def test_a_page_that_is_deleted_is_not_where_a_form_leads(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    response = reader.post(f"/s/{session.pk}/delete/", {"next": f"/s/{session.pk}/"})
    assert response["Location"] == "/"


# Many at once.


def test_many_are_archived_and_deleted_together_but_only_ones_own(reader: Client, ada: Any, bob: Any) -> None:
    mine = [create_chat(ada, f"number {number}") for number in range(3)]
    theirs = create_chat(bob, "his")
    ids = [str(session.pk) for session in (*mine, theirs)] + ["nonsense"]
    html = reader.post("/rail/archive/", {"session": ids}, headers=HTMX).content.decode()
    assert "3 archived" in html
    assert "3 archived" in page(reader), "also after a reload"
    assert "3 archived" not in page(reader, archived="1")
    assert Session.objects.filter(archived_at__isnull=False).count() == 3
    reader.post("/rail/unarchive/", {"session": ids}, headers=HTMX)
    assert Session.objects.filter(archived_at__isnull=False).count() == 0
    html = reader.post("/rail/delete/", {"session": ids}, headers=HTMX).content.decode()
    assert "3 deleted" in html
    assert list(Session.objects.filter(hidden_at=None)) == [theirs]
    assert len(listed(reader.post("/rail/undelete/", headers=HTMX).content.decode())) == 3


def test_deleting_the_open_session_among_others_leads_to_an_empty_chat(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    fields = {"session": [str(session.pk)], "current": str(session.pk)}
    assert reader.post("/rail/delete/", fields, headers=HTMX)["HX-Redirect"] == "/"


def test_a_long_list_is_read_without_its_texts(ada: Any, django_assert_num_queries: Any) -> None:
    create_chat(ada, "one")
    with django_assert_num_queries(5) as asked:
        read_sidebar_page(ada)
    assert not any("history_message" in query["sql"] for query in asked.captured_queries)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL decides by what it has counted")
def test_every_part_of_the_list_has_its_index(ada: Any) -> None:
    mine = sidebar_sessions(ada).order_by("-last_activity_at", "-id")
    for found, index in [
        (mine.filter(archived_at=None, pinned_at=None), "session_newest_of_owner"),
        (mine.filter(archived_at=None, pinned_at__isnull=False), "session_pinned"),
        (mine.filter(archived_at__isnull=False), "session_archived"),
        (just_deleted(ada), "session_deleted"),
    ]:
        assert f"USING INDEX {index} " in found.explain()


def test_titles_are_found_in_any_case_newest_first(ada: Any) -> None:
    sessions = [create_chat(ada, "hello", title=title) for title in ("ÄRGER im Büro", "ärger zu Hause", "Ruhe")]
    assert [session.title for session in find_by_title(sidebar_sessions(ada), "Ärger", limit=8)] == [
        "ärger zu Hause",
        "ÄRGER im Büro",
    ]
    assert find_by_title(sidebar_sessions(ada), "büro är", limit=8) == [sessions[0]]
    assert find_by_title(sidebar_sessions(ada), '-büro OR "*', limit=8) == []


def test_a_session_whose_messages_are_found_is_not_listed_by_its_title_too(ada: Any) -> None:
    both = create_chat(ada, "the loom", title="The loom")
    by_title = create_chat(ada, "nothing", title="Loom by title only")
    found = search_sidebar(ada, "loom")
    assert [row.session.pk for row in found.titles] == [by_title.pk]
    assert {hit.session_id for hit in found.hits} == {both.pk}
    found = search_sidebar(ada, "loom", titles_win=True)
    assert {row.session.pk for row in found.titles} == {both.pk, by_title.pk}
    assert found.hits == ()
