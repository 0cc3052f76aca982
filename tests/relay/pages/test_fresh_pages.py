"""Pages whose parts are cached show every change at once, and ask the database a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from history.entries import Retracted, Summary
from history.models import Message, Session
from history.record import recorder
from history.sessions import actions
from history.templatetags.fragments import fragments
from relay.models import Run
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results, without_guards

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def chat(ada: Any) -> Session:
    return create_chat(ada, "What is a loom?", "A machine that weaves.", title="Looms")


def read(reader: Client, address: str) -> str:
    response = reader.get(address)
    assert response.status_code == 200
    return response.content.decode()


def read_from_cache(reader: Client, address: str) -> str:
    """The page, of which all fragments are cached now."""
    read(reader, address)
    before = fragments.chars
    html = read(reader, address)
    assert before == fragments.chars > 0
    return html


def rename(session: Session) -> None:
    actions.change(session, title="Weaving <machines>")


def pin(session: Session) -> None:
    actions.change(session, pinned=True)


def archive(session: Session) -> None:
    actions.change(session, archived=True)


def delete(session: Session) -> None:
    actions.delete(session, by=session.owner)


def answer(session: Session) -> None:
    Run.objects.create(session=session, owner=session.owner, leaf=session.head)


def move(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(last_activity_at=timezone.now() - timedelta(days=3))


def relabel(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(client="codex", source="relay")


SIDEBAR: list[tuple[Callable[[Session], None], str, str]] = [
    (rename, ">Looms</span>", "Weaving &lt;machines&gt;"),
    (pin, "/pin/", "/unpin/"),
    (archive, "sidebar-link-", '<span class="sidebar-title" role="status">'),
    (delete, "sidebar-link-", '<span class="sidebar-title" role="status">'),
    (answer, 'class="sidebar-time"', 'class="sidebar-answering"'),
    (move, "<h2>Today</h2>", "<h2>"),
    (relabel, 'title="Chat"', 'title="codex"'),
]


@pytest.mark.parametrize(("change", "gone", "new"), SIDEBAR, ids=lambda value: getattr(value, "__name__", None))
def test_the_sidebar_shows_a_change_at_once(
    reader: Client, chat: Session, change: Callable[[Session], None], gone: str, new: str
) -> None:
    before = read_from_cache(reader, "/")
    assert gone in before
    change(chat)
    after = read(reader, "/")
    assert gone not in after
    assert new in after


def test_the_sidebar_of_another_session_marks_that_one(reader: Client, chat: Session, ada: Any) -> None:
    other = create_chat(ada, "hello", title="Other")
    for session in (chat, other, chat):
        html = read(reader, session.get_absolute_url())
        assert html.count('aria-current="page"') == 1
        assert f'href="{session.get_absolute_url()}" aria-current="page"' in html


def test_yesterdays_rows_do_not_show_the_time_of_today(reader: Client, chat: Session) -> None:
    assert "<h2>Today</h2>" in read_from_cache(reader, "/")
    reader.cookies.clear()
    tomorrow = timezone.now() + timedelta(days=1)
    with mock.patch.object(timezone, "now", return_value=tomorrow):
        reader.force_login(chat.owner)
        html = read(reader, "/")
    assert "<h2>Yesterday</h2>" in html
    assert "<h2>Today</h2>" not in html


def test_another_user_sees_nothing_of_what_was_cached(reader: Client, chat: Session, bob: Any) -> None:
    read_from_cache(reader, chat.get_absolute_url())
    reader.force_login(bob)
    assert "Looms" not in read(reader, "/")
    assert reader.get(chat.get_absolute_url()).status_code == 404


def test_another_language_has_its_own_fragments(reader: Client, chat: Session, ada: Any) -> None:
    for address in ("/", "/history/", chat.get_absolute_url()):
        english = read_from_cache(reader, address)
        ada.language = "zh-hans"
        ada.save(update_fields=["language"])
        chinese = read(reader, address)
        assert 'placeholder="跳转' not in english
        assert "Keyboard shortcuts" in english
        assert "Keyboard shortcuts" not in chinese
        assert "Untitled" not in chinese
        assert ">Rename<" not in chinese
        assert ">Copy<" not in chinese
        ada.language = "en"
        ada.save(update_fields=["language"])
        assert "Keyboard shortcuts" in read(reader, address)


# Entries


def drop_body(session: Session) -> None:
    rows = without_guards(Message.objects.filter(session=session, seq=2))
    rows.update(body=None, salt=None, content="", dropped_at=timezone.now())


def test_a_dropped_answer_is_not_shown_any_more(reader: Client, chat: Session) -> None:
    assert "A machine that weaves." in read_from_cache(reader, chat.get_absolute_url())
    drop_body(chat)
    assert "A machine that weaves." not in read(reader, chat.get_absolute_url())


def test_an_erased_session_is_not_shown_any_more(reader: Client, chat: Session) -> None:
    read_from_cache(reader, chat.get_absolute_url())
    without_guards(Session.objects.filter(pk=chat.pk)).delete()
    assert reader.get(chat.get_absolute_url()).status_code == 404
    assert "Looms" not in read(reader, "/") + read(reader, "/history/")


def test_an_entry_shows_its_new_version(reader: Client, chat: Session) -> None:
    assert 'class="versions"' not in read_from_cache(reader, chat.get_absolute_url())
    recorder.append(chat, model_output("A weaving machine."), after=1)
    html = read(reader, chat.get_absolute_url())
    assert 'class="versions"' in html
    assert "1 of 2" in html


def test_a_call_shows_its_result(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "How busy is it?")
    recorder.append(session, model_output("", tool_request("a")), after=1)
    assert "status pending" in read_from_cache(reader, session.get_absolute_url())
    recorder.append(session, tool_results(tool_result("a", "3 % busy")), after=2)
    html = read(reader, session.get_absolute_url())
    assert "3 % busy" in html
    assert "status pending" not in html


def test_an_undone_summary_says_so(reader: Client, chat: Session) -> None:
    recorder.append(chat, Summary(first=1, last=2, summary="They spoke of looms."), after=2)
    assert ">undone<" not in read_from_cache(reader, f"{chat.get_absolute_url()}?internal=1")
    recorder.append(chat, Retracted(seq=3), after=3)
    assert ">undone<" in read(reader, f"{chat.get_absolute_url()}?internal=1")


def test_an_entry_has_no_actions_for_a_reader_who_may_not_write(reader: Client, chat: Session, staff: Any) -> None:
    assert "data-again" in read_from_cache(reader, chat.get_absolute_url())
    staff.is_superuser = True
    staff.save(update_fields=["is_superuser"])
    reader.force_login(staff)
    response = reader.get(chat.get_absolute_url())
    assert b"data-again" not in response.content


def test_entries_follow_a_history_that_is_switched_off(reader: Client, chat: Session, settings: Any) -> None:
    assert "data-again" in read_from_cache(reader, chat.get_absolute_url())
    settings.CHAT_HISTORY_ENABLED = False
    assert "data-again" not in read(reader, chat.get_absolute_url())


# The history page


def hold(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(hold=True)


def cost(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(cost=Decimal("1.25"), input_tokens=7, error_count=2)


@pytest.mark.parametrize(
    ("change", "new"), [(rename, "Weaving &lt;machines&gt;"), (hold, "under hold"), (cost, "$1.25")]
)
def test_the_history_shows_a_change_at_once(
    reader: Client, chat: Session, change: Callable[[Session], None], new: str
) -> None:
    assert new not in read_from_cache(reader, "/history/")
    change(chat)
    assert new in read(reader, "/history/")


def test_the_history_shows_the_new_name_of_an_owner(reader: Client, chat: Session, staff: Any) -> None:
    staff.is_superuser = True
    staff.save(update_fields=["is_superuser"])
    reader.force_login(staff)
    assert ">ada</span>" in read_from_cache(reader, "/history/")
    chat.owner.first_name = "Augusta"
    chat.owner.save(update_fields=["first_name"])
    assert ">Augusta</span>" in read(reader, "/history/")


def test_rows_for_staff_follow_their_permissions(reader: Client, chat: Session, staff: Any) -> None:
    staff.is_superuser = True
    staff.save(update_fields=["is_superuser"])
    reader.force_login(staff)
    assert str(chat.pk) in read_from_cache(reader, "/history/")
    staff.is_superuser = False
    staff.save(update_fields=["is_superuser"])
    assert str(chat.pk) not in read(reader, "/history/")


def test_found_messages_are_quoted_anew_for_other_words(reader: Client, chat: Session) -> None:
    assert "<mark>machine</mark>" in read_from_cache(reader, "/history/?q=machine")
    html = read(reader, "/history/?q=weaves")
    assert "<mark>weaves</mark>" in html
    assert "<mark>machine</mark>" not in html


# Statements

# On PostgreSQL statistics decide how many of the newest rows are read first: up to four statements more.
SEARCH = 18 if connection.vendor == "postgresql" else 14


@pytest.mark.parametrize(
    ("address", "most"),
    [("/", 9), ("/history/", 12), ("/history/?q=machine", SEARCH), ("/charts/", 5), ("session", 28)],
)
@pytest.mark.parametrize("sessions", [1, 12])
def test_a_page_asks_the_database_as_often_for_many_sessions_as_for_one(
    reader: Client, ada: Any, address: str, most: int, sessions: int, django_assert_max_num_queries: Any
) -> None:
    chats = [create_chat(ada, *["a machine"] * 10, title=f"Chat {number}") for number in range(sessions)]
    path = chats[0].get_absolute_url() if address == "session" else address
    with django_assert_max_num_queries(most):
        read(reader, path)


def test_lists_read_no_bodies(reader: Client, chat: Session, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(30) as asked:
        read(reader, "/")
        read(reader, "/history/")
    assert not any('"body"' in query["sql"] for query in asked.captured_queries)
