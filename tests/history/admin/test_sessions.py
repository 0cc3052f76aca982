"""Sessions in the admin: who sees them, how they are found, what is done with several, and that nothing is edited."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin import site
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from history import retention
from history.access import audit, keys
from history.access.reasons import open_for_reading, who_read
from history.admin import base
from history.models import AuditEvent, Session
from history.record import recorder
from history.transcripts.share_links import share
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results
from tests.history.access.test_permissions import with_right

pytestmark = pytest.mark.django_db

LIST = "/admin/history/session/"


def enter(client: Client, staff: Any, *rights: str) -> Client:
    client.force_login(with_right(staff, *rights))
    return client


def read(reader: Client, address: str, **params: Any) -> str:
    response = reader.get(address, params)
    assert response.status_code == 200
    return unescape(response.content.decode())


def titles(html: str) -> list[str]:
    """Of the rows in a list, by their links: to staff other users' sessions are shown under neutral names."""
    ids = re.findall(r'<th class="field-shown_title"><a href="/admin/history/session/([^/"]*)/[^"]*">', html)
    titles_by_id = {str(pk): title for pk, title in Session.objects.values_list("pk", "title")}
    return [titles_by_id[pk] for pk in ids]


def act(client: Client, action: str, *sessions: Session, **fields: str) -> Any:
    chosen = [str(session.pk) for session in sessions]
    return client.post(LIST, {"action": action, "_selected_action": chosen, **fields}, follow=True)


def done(client: Client, action: str, *sessions: Session, reason: str = "a dispute") -> str:
    response = act(client, action, *sessions, apply="1", reason=reason)
    assert response.status_code == 200
    return unescape(response.content.decode())


# Who sees what.


@pytest.mark.parametrize(("rights", "status"), [((), 403), (("read_session",), 403), (("view_session",), 200)], ids=str)
def test_the_list_takes_the_right_to_view(
    client: Client, ada: Any, staff: Any, rights: tuple[str, ...], status: int
) -> None:
    create_chat(ada, "secret", title="Looms")
    response = enter(client, staff, *rights).get(LIST)
    assert response.status_code == status
    assert (b"Session of" in response.content) == (status == 200)
    assert b"Looms" not in response.content


def test_metadata_is_all_that_the_right_to_view_shows(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "secret", title="Looms")
    html = read(enter(client, staff, "view_session"), f"{LIST}{session.pk}/change/")
    assert "Session of" in html
    assert "Looms" not in html
    assert "secret" not in html
    assert "Read the transcript" not in html
    assert client.get(f"{LIST}{session.pk}/transcript/").status_code == 403
    assert client.get("/admin/history/message/").status_code == 403
    assert client.get("/admin/history/toolcall/").status_code == 403


def test_people_who_are_not_staff_are_sent_away(client: Client, ada: Any) -> None:
    session = create_chat(ada, "secret")
    client.force_login(ada)
    for address in (LIST, f"{LIST}{session.pk}/change/", f"{LIST}{session.pk}/transcript/"):
        assert client.get(address).status_code == 302


def test_hidden_and_expired_sessions_are_not_listed_and_held_ones_are_for_those_who_hold(
    client: Client, ada: Any, staff: Any
) -> None:
    for title in ("plain", "hidden", "expired", "held"):
        create_chat(ada, "x", title=title)
    Session.objects.filter(title__in=["hidden", "held"]).update(state=Session.State.DELETED, hidden_at=timezone.now())
    Session.objects.filter(title="expired").update(expires_at=timezone.now() - timedelta(days=1))
    Session.objects.filter(title="held").update(hold=True)
    assert titles(read(enter(client, staff, "view_session"), LIST)) == ["plain"]
    html = read(enter(client, staff, "view_session", "hold_session"), LIST)
    assert sorted(titles(html)) == ["held", "plain"]
    assert "under hold, deleted by its owner" in html
    assert titles(read(client, LIST, state="deleted")) == ["held"]


def test_nothing_of_the_record_can_be_added_changed_or_deleted_in_the_admin(
    client: Client, admin_user: Any, ada: Any
) -> None:
    session = create_chat(ada, "secret", title="Looms")
    client.force_login(admin_user)
    open_for_reading(admin_user, session, reason="ticket 7")
    message = session.messages.get()
    for address in (LIST, "/admin/history/message/", "/admin/history/toolcall/", "/admin/history/exchange/"):
        assert client.get(f"{address}add/").status_code == 403
    for address in (f"{LIST}{session.pk}/", f"/admin/history/message/{message.pk}/"):
        assert client.post(f"{address}change/", {"title": "Other", "content": "other"}).status_code == 403
        assert client.get(f"{address}delete/").status_code == 403
        assert '<input type="text"' not in read(client, f"{address}change/").partition('id="content-main"')[2]
    session.refresh_from_db()
    assert session.title == "Looms"


# Finding.


def test_a_search_goes_through_the_engine_and_finds_by_id_and_title_too(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "The loom is broken", title="Weaving")
    create_chat(ada, "something else", title="Other")
    enter(client, staff, "view_session", "read_session")
    for words in ("broken loom", '"loom is broken"', str(session.pk), str(session.pk)[:8]):
        assert titles(read(client, LIST, q=words)) == ["Weaving"], words
    assert titles(read(client, LIST, q="weav")) == []
    reader = with_right(staff, "view_session", "read_session")
    open_for_reading(reader, session, reason="ticket 7")
    assert titles(read(client, LIST, q="weav")) == ["Weaving"]
    enter(client, staff, "view_session")
    assert titles(read(client, LIST, q="broken loom")) == []
    assert titles(read(client, LIST, q="weav")) == []


@pytest.mark.parametrize(("language", "words"), [("en", "Search for"), ("zh-hans", "搜索内容")])
def test_the_search_box_has_a_name_to_read_and_all_is_offered_where_something_is_left_out(
    client: Client, ada: Any, staff: Any, language: str, words: str
) -> None:
    create_chat(ada, title="Something")
    enter(client, staff, "view_session")
    html = client.get(LIST, headers={"Accept-Language": language}).content.decode()
    label = re.search(r'<label for="searchbar"><img [^>]* alt="">([^<]*)</label>', html)
    assert label
    assert label[1].strip() == words
    assert '(<a href="?">' not in html
    assert '(<a href="?">' in client.get(f"{LIST}?q=else", headers={"Accept-Language": language}).content.decode()


def test_filters_narrow_the_list(client: Client, ada: Any, bob: Any, staff: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    create_chat(ada, "x", title="relayed", api_key=key, source="relay", model="m1", client="Codex")
    create_chat(bob, "x", title="chat", model="m2", agent="helper")
    enter(client, staff, "view_session")
    for params, titles_by_id in (
        ({"owner": ada.pk}, "relayed"), ({"key": key.pk}, "relayed"), ({"source__exact": "chat"}, "chat"),
        ({"model": "m2"}, "chat"), ({"client": "Codex"}, "relayed"), ({"agent": "helper"}, "chat"),
    ):  # fmt: skip
        assert titles(read(client, LIST, **params)) == [titles_by_id], params
    assert titles(read(client, LIST, owner="nonsense")) == []


def test_dates_are_walked_by_the_calendar(client: Client, ada: Any, staff: Any) -> None:
    old, new = create_chat(ada, "x", title="old"), create_chat(ada, "x", title="new")
    for session, in_year in ((old, 2024), (new, 2026)):
        when = timezone.now().replace(year=in_year, month=3, day=5, hour=12)
        Session.objects.filter(pk=session.pk).update(last_activity_at=when)
    enter(client, staff, "view_session")
    html = read(client, LIST)
    assert re.findall(r'href="\?last_activity_at__year=(\d+)"', html) == ["2024", "2025", "2026"]
    year = {"last_activity_at__year": "2024"}
    assert titles(read(client, LIST, **year)) == ["old"]
    assert "March" in read(client, LIST, **year)
    month = year | {"last_activity_at__month": "3"}
    assert ">31</a>" in read(client, LIST, **month)
    assert titles(read(client, LIST, **month, last_activity_at__day="5")) == ["old"]
    assert titles(read(client, LIST, **month, last_activity_at__day="6")) == []


# Reading.


def test_the_transcript_asks_why_and_then_shows_markdown_and_calls(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "look", title="Looms")
    talk = [model_output("I **look**.", tool_request("c1", "sys_monitor")), tool_results(tool_result("c1"))]
    recorder.append_many(session, talk, after=1)
    enter(client, staff, "view_session", "read_session")
    address = f"{LIST}{session.pk}/transcript/"
    response = client.get(address)
    assert response.status_code == 403
    assert 'name="reason"' in response.content.decode()
    opened = client.post(f"/s/{session.pk}/open/", {"reason": "ticket 7", "next": address})
    assert opened["Location"] == address
    html = read(client, address)
    assert "<strong>look</strong>" in html
    assert "sys_monitor" in html
    assert "ws-send" not in html
    html = read(client, f"{LIST}{session.pk}/change/")
    assert "sys_monitor" in html
    assert address in html


# Doing.


def test_actions_are_offered_to_those_who_may(client: Client, ada: Any, staff: Any) -> None:
    create_chat(ada, "x")
    offered = {
        rights: set(re.findall(r'<option value="(\w+_chosen)"', read(enter(client, staff, *rights), LIST)))
        for rights in (
            ("view_session",), ("view_session", "hold_session"), ("view_session", "delete_session"),
            ("view_session", "change_session"), ("view_session", "export_session"),
        )
    }  # fmt: skip
    assert list(offered.values()) == [
        set(), {"hold_chosen", "release_chosen"}, {"delete_chosen"}, {"archive_chosen"}, {"export_chosen"},
    ]  # fmt: skip


def test_who_may_not_is_refused_even_when_they_ask_without_being_offered(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "x")
    enter(client, staff, "view_session")
    for action in ("hold_chosen", "delete_chosen", "archive_chosen", "export_chosen"):
        act(client, action, session, apply="1", reason="a dispute")
    session.refresh_from_db()
    assert (session.hold, session.hidden_at, session.archived_at) == (False, None, None)
    assert not AuditEvent.objects.exists()


def test_hold_and_release_ask_why_and_are_audited(client: Client, ada: Any, staff: Any) -> None:
    session, other = create_chat(ada, "x", title="Looms"), create_chat(ada, "y")
    enter(client, staff, "view_session", "hold_session")
    page = act(client, "hold_chosen", session, other).content.decode()
    assert "Session of" in page
    assert "Looms" not in page
    assert "Reason" in page
    assert act(client, "hold_chosen", session, apply="1", reason=" ").status_code == 422
    assert not Session.objects.filter(hold=True).exists()
    assert "Hold: 2 sessions." in done(client, "hold_chosen", session, other)
    assert "Hold: 0 sessions." in done(client, "hold_chosen", session)
    assert "Release: 1 session." in done(client, "release_chosen", session, reason="settled")
    assert set(Session.objects.filter(hold=True)) == {other}
    events = AuditEvent.objects.order_by("seq").values_list("action", "actor", "reason")
    assert sorted(events) == sorted([("hold", staff.pk, "a dispute")] * 2 + [("release", staff.pk, "settled")])
    assert list(audit.flaws()) == []


def test_delete_says_what_goes_puts_it_into_the_trash_and_refuses_what_is_held(
    client: Client, ada: Any, staff: Any
) -> None:
    going, held = create_chat(ada, "one", "two", "three", title="Looms"), create_chat(ada, "x", title="Kept")
    share(going, by=ada)
    retention.hold(held, actor=staff, reason="a dispute")
    enter(client, staff, "view_session", "delete_session")
    page = unescape(act(client, "delete_chosen", going, held).content.decode())
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td>(\d+)</td>', page))
    assert rows == {
        "sessions": "1", "messages": "3", "tool calls": "0", "exchanges": "0", "share links": "1",
        "under hold, and kept": "1",
    }  # fmt: skip
    shown_text = done(client, "delete_chosen", going, held, reason="asked for")
    assert "Delete: 1 session." in shown_text
    assert f"because of a hold: {held}" in shown_text
    going.refresh_from_db()
    held.refresh_from_db()
    assert going.hidden_at
    assert held.hidden_at is None
    assert AuditEvent.objects.filter(action="hide", reason="asked for", actor=staff.pk).count() == 1
    assert retention.unhide(going, actor=ada), "it lies in the trash"


def test_archive_takes_it_out_of_the_owners_list_and_is_audited(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "x")
    enter(client, staff, "view_session", "change_session")
    assert "Archive: 1 session." in done(client, "archive_chosen", session)
    session.refresh_from_db()
    assert session.archived_at
    assert AuditEvent.objects.get(action="archive").reason == "a dispute"


@pytest.mark.django_db(transaction=True)
def test_what_was_selected_is_exported_for_a_reason_and_its_owner_sees_it(
    client: Client, ada: Any, bob: Any, staff: Any
) -> None:
    first, second = create_chat(ada, "the secret"), create_chat(bob, "another secret")
    create_chat(bob, "not this one")
    enter(client, staff, "view_session", "export_session")
    assert b"Format" in act(client, "export_chosen", first, second).content
    assert act(client, "export_chosen", first, apply="1", format="jsonl", reason="").status_code == 422
    assert act(client, "export_chosen", first, apply="1", format="nonsense", reason="an audit").status_code == 422
    response = act(client, "export_chosen", first, second, apply="1", format="jsonl", reason="an audit")
    text = async_to_sync(whole)(response.streaming_content)
    assert "the secret" in text
    assert "another secret" in text
    assert "not this one" not in text
    assert [(reading.words, reading.reason) for reading in who_read(first)] == [
        ("grace exported this session", "an audit")
    ]
    assert len(who_read(second)) == 1


async def whole(pieces: Any) -> str:
    return b"".join([piece async for piece in pieces]).decode()


# What it costs.


def test_a_list_takes_as_many_queries_however_many_rows_there_are(
    client: Client, ada: Any, admin_user: Any, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    client.force_login(admin_user)
    for number in range(30):
        create_chat(ada, "x", "y", title=f"number {number}")
    for address, most in ((LIST, 14), ("/admin/history/message/", 12), ("/admin/history/exchange/", 14)):
        with django_assert_max_num_queries(most):
            read(client, address)


def test_a_list_is_counted_as_far_as_anybody_pages(
    client: Client, ada: Any, admin_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_COUNTED", 5)
    for number in range(8):
        create_chat(ada, "x", title=f"number {number}")
    client.force_login(admin_user)
    assert "The newest 5 are shown. Narrow the list down" in read(client, LIST)
    request = RequestFactory().get(LIST)
    request.user = admin_user
    rows = site.get_model_admin(Session).get_queryset(request)
    assert base.CappedPaginator(rows, 2).count == 5
