"""The page /history/: permissions, filters, facets, and actions on the selected sessions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from history import retention
from history.access import keys, reasons
from history.models import AuditEvent, Session, ToolCall
from history.pages.browse import filters
from history.record import recorder
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db

ADDRESS = "/history/"


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def grant(staff: Any) -> Callable[..., Any]:
    """One of the staff with these rights, freshly read."""

    def grant(*rights: str) -> Any:
        staff.user_permissions.set(Permission.objects.filter(codename__in=[f"{right}_session" for right in rights]))
        return type(staff).objects.get(pk=staff.pk)

    return grant


def read(client: Client, query: str = "", **headers: str) -> str:
    response = client.get(ADDRESS + query, headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def listed(html: str) -> list[str]:
    return re.findall(r'class="hit-title" href="[^"]+">([^<]*)</a>', html)


def counts_in(html: str, facet: str) -> dict[str, int]:
    match = re.findall(
        rf'name="{facet}" value="([^"]*)"[^>]*>.*?<span class="facet-count">([^<]*)</span>', html.replace("\n", "")
    )
    return {value: int(number.replace("\u202f", "")) for value, number in match}


def aged(session: Session, **ago: float) -> Session:
    Session.objects.filter(pk=session.pk).update(last_activity_at=timezone.now() - timedelta(**ago))
    return session


# Who sees what.


def test_anonymous_users_are_asked_to_sign_in(client: Client) -> None:
    assert client.get(ADDRESS)["Location"] == "/accounts/signin/?next=/history/"


def test_users_find_only_their_own_sessions_newest_first(reader: Client, ada: Any, bob: Any) -> None:
    aged(create_chat(ada, "hello", title="Older"), hours=2)
    create_chat(ada, "hello", title="Newer")
    create_chat(bob, "hello", title="Bob’s")
    html = read(reader)
    assert listed(html) == ["Newer", "Older"]
    assert "2 sessions" in html
    assert "Bob" not in html
    assert "Owner" not in html


def test_a_stranger_finds_nothing_by_any_filter(client: Client, ada: Any, bob: Any) -> None:
    session = create_chat(ada, "a secret word", title="Private")
    client.force_login(bob)
    for query in ("", "?owner=ada", "?q=secret", "?q=Private", "?q=secret&owner=ada", "?tool=shell"):
        html = read(client, query)
        assert listed(html) == []
        assert str(session.pk) not in html


def test_staff_without_rights_see_their_own_alone(client: Client, ada: Any, staff: Any) -> None:
    create_chat(ada, "hello", title="Ada’s")
    create_chat(staff, "hello", title="Mine")
    client.force_login(staff)
    assert listed(read(client)) == ["Mine"]


def test_staff_who_may_list_see_owners_but_neither_titles_nor_texts(
    client: Client, ada: Any, grant: Callable[..., Any]
) -> None:
    session = create_chat(ada, "a secret word", title="Budget of May")
    client.force_login(grant("view"))
    html = read(client)
    assert listed(html) == [str(session)]
    assert counts_in(html, "owner") == {"ada": 1}
    assert "secret" not in html
    assert "Budget" not in html
    assert listed(read(client, "?q=secret")) == []
    assert listed(read(client, "?q=budget")) == []


def test_staff_who_may_read_find_texts_and_see_them_after_saying_why(
    client: Client, ada: Any, grant: Callable[..., Any]
) -> None:
    session = create_chat(ada, "a secret word", title="Budget of May")
    grace = grant("view", "read")
    client.force_login(grace)
    html = read(client, "?q=secret")
    assert listed(html) == [str(session)]
    assert "Give a reason to read it" in html
    assert "a <mark>secret</mark> word" not in html
    reasons.open_for_reading(grace, session, reason="asked by Ada")
    assert "a <mark>secret</mark> word" in read(client, "?q=secret")


# The list.


def test_a_row_tells_what_there_is_to_know(reader: Client, ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    session = create_chat(
        ada, "hello", "hi", title="A chat", source="relay", client="Claude Code", api_key=key, agent="coder"
    )
    Session.objects.filter(pk=session.pk).update(
        input_tokens=1_200_000, output_tokens=34_567, cost="1.25", error_count=2, tool_call_count=3, model="claude-x"
    )
    html = " ".join(read(reader).split())
    for fact in ("CC", "laptop", "coder", "claude-x", "2 messages", "3 tool calls", "$1.25", "2 errors"):
        assert fact in html
    assert "1.23 M tokens" in html


def test_it_goes_on_where_a_page_ended_with_and_without_a_script(reader: Client, ada: Any) -> None:
    titles = [f"Session {number:03}" for number in range(70)]
    for age, title in enumerate(titles):
        aged(create_chat(ada, title=title), minutes=age)
    for headers in ({}, {"HX-Request": "true"}):
        seen: list[str] = []
        link: str | None = ""
        while link is not None:
            html = read(reader, link, **headers)
            seen += listed(html)
            match = re.search(r'rel="next" href="/history/(\?[^"]*)"', html)
            link = match[1].replace("&amp;", "&") if match else None
        assert seen == titles
    assert "<html" not in html


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?source=relay", ["By key"]),
        ("?source=relay&source=import", ["By key", "Brought in"]),
        ("?model=claude-x", ["By key"]),
        ("?agent=coder", ["Chat"]),
        ("?error=1", ["Brought in"]),
        ("?model=unknown", []),
        ("?source=relay&agent=coder", []),
    ],
)
def test_it_is_narrowed_by_any_of_the_values_and_all_of_the_filters(
    reader: Client, ada: Any, query: str, expected: list[str]
) -> None:
    aged(create_chat(ada, "one", title="Chat", agent="coder"), hours=1)
    aged(create_chat(ada, "one", title="By key", source="relay", model="claude-x"), hours=2)
    broken = aged(create_chat(ada, "one", title="Brought in", source="import"), hours=3)
    Session.objects.filter(pk=broken.pk).update(error_count=1)
    html = read(reader, query)
    assert listed(html) == expected
    assert ("No sessions match these filters" in html) == (not expected)


def test_other_values_of_a_ticked_facet_can_still_be_chosen(reader: Client, ada: Any) -> None:
    for source in ("chat", "chat", "relay"):
        create_chat(ada, "one", source=source)
    assert counts_in(read(reader), "source") == {"chat": 2, "relay": 1}
    html = read(reader, "?source=relay")
    assert counts_in(html, "source") == {"chat": 2, "relay": 1}
    assert re.search(r'value="relay" checked', html)
    assert not re.search(r'value="chat" checked', html)


def test_a_dropdown_leads_to_what_one_key_recorded(reader: Client, ada: Any, bob: Any) -> None:
    laptop = keys.create(name="laptop", owner=ada).api_key
    ci = keys.create(name="ci", owner=ada).api_key
    keys.create(name="of another", owner=bob)
    create_chat(ada, "one", title="By laptop", source="relay", api_key=laptop)
    create_chat(ada, "one", title="By ci", source="relay", api_key=ci)
    html = read(reader, f"?key={laptop.prefix}")
    assert listed(html) == ["By laptop"]
    assert f'value="{laptop.prefix}" selected>laptop (1)' in html
    assert f'value="{ci.prefix}">ci (1)' in html
    assert "of another" not in html
    assert listed(read(reader, f"?q=one&key={ci.prefix}")) == ["By ci"]
    assert listed(read(reader, "?q=one&key=unknown’s")) == []


def test_days_are_those_of_the_reader_and_the_last_one_counts(reader: Client, ada: Any) -> None:
    ada.time_zone = "Asia/Shanghai"
    ada.save()
    for title, at in (("before", "2026-03-01T15:59"), ("first", "2026-03-01T16:00"), ("after", "2026-03-02T16:00")):
        session = create_chat(ada, "one", title=title)
        Session.objects.filter(pk=session.pk).update(last_activity_at=datetime.fromisoformat(at).replace(tzinfo=UTC))
    assert listed(read(reader, "?since=2026-03-02&until=2026-03-02")) == ["first"]
    assert listed(read(reader, "?until=2026-03-01")) == ["before"]


def test_only_the_newest_are_counted_and_the_page_says_so(
    reader: Client, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "AMONG", 2)
    for _ in range(3):
        create_chat(ada, "one")
    html = read(reader)
    assert "More than 2 sessions" in html
    assert "Counted among the newest 2." in html
    assert counts_in(html, "source") == {"chat": 2}
    assert "More than 2 messages" in read(reader, "?q=one")


@pytest.mark.parametrize(
    "query",
    [
        "?since=x&until=2026-99-99", "?before=x", "?q=one&before=x", "?source=%00", "?key=%00&owner=%00", "?tool=%00",
        "?since=0001-01-01&until=9999-12-31", "?q=%00", "?q=" + "x%20" * 3_000, "?status=nonsense",
        "?before=00000000-0000", "?q=one&before=" + "9" * 30, "?model=" + "m" * 5_000, "?" + "model=m&" * 500,
    ],
)  # fmt: skip
def test_no_address_is_an_error(reader: Client, ada: Any, query: str) -> None:
    create_chat(ada, "one")
    read(reader, query)


# Search.


def test_hits_show_why_they_were_found_and_lead_to_their_message(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Why does the payment fail?", "It waits for a retry.", "Which retry?", title="Payments")
    html = read(reader, "?q=retry")
    assert "Messages: 2 · sessions: 1" in html
    assert f'href="/s/{session.pk}/?at=2#m2"' in html
    assert "It waits for a <mark>retry</mark>." in html
    assert listed(html) == ["Payments"]


def test_tools_and_outcomes_are_facets_of_messages(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Look")
    recorder.append_many(
        session,
        [model_output("", tool_request("a", name="shell")), tool_results(tool_result("a", name="shell"))],
        after=1,
    )
    recorder.append(session, model_output("", status="failed", error="out of credit"), after=3)
    other = create_chat(ada, "Look", "Nothing to see.")
    assert counts_in(read(reader), "tool") == {"shell": 1}
    by_tool = read(reader, "?tool=shell")
    assert f"/s/{session.pk}/" in by_tool
    assert str(other.pk) not in by_tool
    failed = read(reader, "?status=failed")
    assert f'href="/s/{session.pk}/?at=4#m4"' in failed
    assert counts_in(failed, "status")["failed"] == 1


def test_htmx_gets_what_changed_and_a_clean_address(reader: Client, ada: Any) -> None:
    create_chat(ada, "one")
    response = reader.get(ADDRESS + "?q=one&key=&since=&until=&source=chat", headers={"HX-Request": "true"})
    html = response.content.decode()
    assert html.strip().startswith('<section class="found" id="found"')
    assert 'id="facets-list" hx-swap-oob="true"' in html
    assert "<html" not in html
    assert response["HX-Push-Url"] == "/history/?q=one&source=chat"
    assert "HX-Request" in response["Vary"]


def test_asking_for_the_same_again_is_no_new_step_of_the_browser(reader: Client, ada: Any) -> None:
    create_chat(ada, "one", "two")
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/history/?q=one&source=chat"}
    assert "HX-Push-Url" not in reader.get(ADDRESS + "?q=one&source=chat&key=", headers=headers)
    assert reader.get(ADDRESS + "?q=one", headers=headers)["HX-Push-Url"] == "/history/?q=one"


def test_a_list_that_has_heard_of_something_new_gets_itself_and_no_step_of_the_way_back(
    reader: Client, ada: Any
) -> None:
    create_chat(ada, title="Said a moment ago", source="relay")
    assert 'hx-get="/history/?source=relay" hx-trigger="history:stale"' in read(reader, "?source=relay")
    response = reader.get(ADDRESS + "?source=relay", headers={"HX-Request": "true", "HX-Trigger": "found"})
    html = response.content.decode()
    assert "Said a moment ago" in html
    assert "facets-list" not in html
    assert "HX-Push-Url" not in response
    assert "history:stale" not in read(reader, "?q=moment")


def test_a_list_that_has_heard_of_something_new_asks_for_nothing_that_it_does_not_show(
    reader: Client, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "AMONG", 2)
    for expected in ("1 session", "2 sessions", "More than 2 sessions"):
        create_chat(ada, "one", source="relay")
        with CaptureQueriesContext(connection) as queries:
            html = reader.get(ADDRESS + "?source=relay", headers={"HX-Request": "true", "HX-Trigger": "found"}).content
        assert re.search(rf'role="status">\s*{expected}\s*</p>', html.decode())
        assert not [query["sql"] for query in queries if ToolCall._meta.db_table in query["sql"]]
        assert len(queries) <= 7


def test_links_of_a_page_keep_its_state(reader: Client, ada: Any) -> None:
    html = read(reader, "?q=one&model=a&model=b&error=1")
    link = re.search(r'<a href="(\?[^"]*)"[^>]*>today</a>', html)
    assert link
    params = parse_qs(urlsplit(link[1].replace("&amp;", "&")).query)
    assert params == {"q": ["one"], "model": ["a", "b"], "error": ["1"], "since": [timezone.localdate().isoformat()]}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "Nothing recorded yet"),
        ("?q=nowhere", "Nothing found for “nowhere”."),
        ("?model=none", "No sessions match these filters"),
        ("?archived=1", "Nothing is archived."),
        ("?before=2020-01-01T00:00:00%2B00:00_00000000-0000-0000-0000-000000000000", "No more results"),
    ],
)
def test_where_there_is_nothing_it_says_what_to_do(reader: Client, query: str, words: str) -> None:
    assert words in read(reader, query)


# What one does with them.


def test_several_are_archived_and_taken_out_again(reader: Client, ada: Any, bob: Any) -> None:
    mine, other = create_chat(ada, "one", title="Mine"), create_chat(bob, "one")
    form = {"session": [str(mine.pk), str(other.pk), "nonsense"], "next": "/history/?q="}
    assert reader.post("/history/archive/", form)["Location"] == "/history/?q="
    assert listed(read(reader)) == []
    assert listed(read(reader, "?archived=1")) == ["Mine"]
    assert Session.objects.get(pk=other.pk).archived_at is None
    reader.post("/history/unarchive/", form)
    assert listed(read(reader)) == ["Mine"]


def test_archiving_says_so_and_can_be_undone_for_half_a_minute(
    reader: Client, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [create_chat(ada, "one", title=title) for title in ("A", "B", "C")]
    form = {"session": [str(session.pk) for session in sessions[:2]]}
    for verb, words, before, after in (
        ("archive", "2 sessions archived", [], ["A", "B"]),
        ("unarchive", "2 sessions unarchived", ["A", "B"], []),
    ):
        reader.post(f"/history/{verb}/", form)
        html = read(reader, "?model=none")
        assert words in html
        undo = re.search(r'<form class="note undo".*?</form>', html, re.DOTALL)
        assert undo is not None
        fields: dict[str, list[str]] = {}
        for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', undo[0]):
            fields.setdefault(name, []).append(unescape(value))
        action = re.search(r'action="([^"]+)"', undo[0])
        assert action is not None
        assert reader.post(action[1], fields)["Location"] == "/history/?model=none"
        assert sorted(listed(read(reader, "?archived=1"))) == before
        assert words not in read(reader)
        reader.post(f"/history/{verb}/", form)
        assert sorted(listed(read(reader, "?archived=1"))) == after
    assert "2 sessions unarchived" in read(reader)
    reader.post("/history/unarchive/", form)
    assert "unarchived" not in read(reader), "nothing has changed"
    reader.post("/history/archive/", form)
    now = time.time()
    monkeypatch.setattr("history.pages.browse.views.time.time", lambda: now + 31)
    assert "sessions archived" not in read(reader)


def test_several_are_deleted_and_brought_back_for_half_a_minute(
    reader: Client, ada: Any, bob: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [create_chat(ada, "one", title=title) for title in ("A", "B", "C")]
    other = create_chat(bob, "one")
    form = {"session": [str(session.pk) for session in (*sessions[:2], other)]}
    assert reader.post("/history/delete/", form)["Location"] == "/history/"
    html = read(reader)
    assert listed(html) == ["C"]
    assert "2 sessions deleted" in html
    assert Session.objects.get(pk=other.pk).hidden_at is None
    reader.post("/history/undelete/")
    assert sorted(listed(read(reader))) == ["A", "B", "C"]
    reader.post("/history/delete/", form)
    later = timezone.now() + timedelta(seconds=40)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert "sessions deleted" not in read(reader)
    reader.post("/history/undelete/")
    assert listed(read(reader)) == ["C"]


def test_staff_delete_what_is_anothers_only_with_the_right_to(
    client: Client, ada: Any, grant: Callable[..., Any]
) -> None:
    session = create_chat(ada, "one", title="Ada’s")
    form = {"session": [str(session.pk)]}
    client.force_login(grant("view", "read"))
    client.post("/history/delete/", form)
    assert Session.objects.get(pk=session.pk).hidden_at is None
    client.force_login(grant("view", "delete"))
    client.post("/history/delete/", form | {"reason": "asked for"})
    assert Session.objects.get(pk=session.pk).hidden_at is not None
    assert "1 session deleted" in read(client)
    client.post("/history/undelete/")
    assert Session.objects.get(pk=session.pk).hidden_at is None


def test_staff_say_why_before_they_delete_what_is_anothers_and_leave_what_is_held(
    client: Client, ada: Any, grant: Callable[..., Any]
) -> None:
    going, held = create_chat(ada, "one", title="Going"), create_chat(ada, "two", title="Evidence")
    retention.hold(held, actor=None, reason="asked by the court")
    staff = grant("view", "delete")
    own = create_chat(staff, "three", title="Own")
    retention.hold(own, actor=None, reason="asked by the court")
    client.force_login(staff)
    form = {"session": [str(session.pk) for session in (going, held, own)], "next": "/history/?q=one"}
    form_page = client.post("/history/delete/", form)
    html = unescape(form_page.content.decode())
    assert "Reason" in html
    assert html.count("under hold, and kept") == 1
    assert client.post("/history/delete/", form | {"reason": "x"}).status_code == 422
    assert not Session.objects.filter(hidden_at__isnull=False).exists()
    assert client.post("/history/delete/", form | {"reason": "asked for"})["Location"] == "/history/?q=one"
    assert set(Session.objects.filter(hidden_at__isnull=False)) == {going, own}
    assert set(AuditEvent.objects.filter(action="hide").values_list("reason", flat=True)) == {"asked for"}
    assert f"Unchanged because of a hold: {held}" in read(client)


def test_a_form_leads_back_to_this_server_only(reader: Client) -> None:
    for address in ("https://elsewhere.example/", "//elsewhere.example", ""):
        assert reader.post("/history/delete/", {"next": address})["Location"] == "/history/"


def test_what_is_hidden_and_under_hold_is_listed_for_those_who_may_hold(
    client: Client, ada: Any, grant: Callable[..., Any]
) -> None:
    session = create_chat(ada, "one", title="Evidence")
    retention.hold(session, actor=None, reason="asked by the court")
    retention.hide(session, actor=ada)
    client.force_login(grant("view"))
    assert listed(read(client)) == []
    client.force_login(grant("view", "hold"))
    html = read(client)
    assert listed(html) == [str(session)]
    assert "deleted by its owner" in html
    assert "under hold" in html


@pytest.mark.parametrize("length", [3, 40])
def test_a_page_takes_as_many_queries_however_much_there_is(
    reader: Client, ada: Any, length: int, django_assert_max_num_queries: Any
) -> None:
    for _ in range(length):
        create_chat(ada, "one", "two")
    with django_assert_max_num_queries(12):
        read(reader)
    with django_assert_max_num_queries(18):
        read(reader, "?q=one")


def test_a_session_found_by_title_and_by_messages_is_listed_once(reader: Client, ada: Any) -> None:
    create_chat(ada, "the loom", "about a loom", title="The loom")
    create_chat(ada, "a loom elsewhere", title="Other")
    create_chat(ada, "nothing", title="Loom by title only")
    html = read(reader, "?q=loom")
    assert sorted(listed(html)) == ["Loom by title only", "Other", "The loom"]


def test_hits_of_one_session_between_others_are_one_group(reader: Client, ada: Any) -> None:
    first = create_chat(ada, "loom one", title="A")
    create_chat(ada, "loom two", title="B")
    recorder.append(first, model_input("loom three"), after=first.head)
    assert sorted(listed(read(reader, "?q=loom"))) == ["A", "B"]


@pytest.mark.parametrize("address", ["/history/delete/", "/history/archive/"])
def test_selecting_more_than_the_limit_says_what_is_unchanged(
    reader: Client, ada: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("relay.pages.sidebar.views.MOST_AT_ONCE", 2)
    monkeypatch.setattr("relay.pages.history_actions.MOST_AT_ONCE", 2)
    sessions = [create_chat(ada, "one", title=f"Session {number}") for number in range(5)]
    page = reader.post(address, {"session": [str(session.pk) for session in sessions]}, follow=True)
    assert "3 selected sessions are unchanged: at most 2 are changed at once." in page.content.decode()
    assert len(listed(page.content.decode())) == 3
