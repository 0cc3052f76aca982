"""Where the time of one session went."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission
from django.db import connections
from django.test import AsyncClient, Client

from history.entries import HeadMoved
from history.models import Exchange, Session
from history.record import exchanges, recorder
from history.transcripts import timeline
from history.transcripts.timeline import MOST_CALLS, Span, timeline_of
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.fixture
def session(ada: Any) -> Session:
    """Two turns: two answers with a call between them; an hour later one answer that failed."""
    session = recorder.start_session(owner=ada, created_at=NOON, title="Slow")
    entries = [
        model_input("Why?", at=NOON),
        model_output(
            "Looking.", tool_request("a", name="shell"), at=after(4), duration=4.0, latency=1.0, model="claude-x"
        ),
        tool_results(tool_result("a", name="shell", duration=5.0, started_at=after(4)), at=after(9)),
        model_output("So.", at=after(10), duration=1.0, model="claude-x"),
        model_input("And?", at=after(3_610)),
        model_output("", at=after(3_612), duration=2.0, status="failed", error="quota", model="gpt"),
    ]
    recorder.append_many(session, entries, after=0)
    return session


def test_calls_stand_where_they_were_in_their_turn(session: Session) -> None:
    second, first = timeline_of(session).turns
    assert [(span.kind, span.name, span.start, span.width) for span in first.spans] == [
        ("model", "claude-x", 0.0, 40.0),
        ("tool", "shell", 40.0, 50.0),
        ("model", "claude-x", 90.0, 10.0),
    ]
    assert (first.seconds, first.tool_seconds) == (10.0, 5.0)
    assert first.waited is None
    assert second.waited == 3_600
    assert [(span.name, span.status) for span in second.spans] == [("gpt", "failed")]


def test_tools_that_ran_side_by_side_took_no_longer_than_together() -> None:
    at = datetime(2026, 11, 17, tzinfo=UTC)
    ran = [(0.0, 0.7), (0.1, 0.4), (2.0, 0.5)]
    spans = [
        Span(kind="tool", name="read_file", seq=2, began=at + timedelta(seconds=began), seconds=seconds)
        for began, seconds in ran
    ]
    turn = timeline.TimelineTurn(seq=1, began=at, seconds=2.5, spans=tuple(spans))
    assert turn.tool_seconds == pytest.approx(1.2)


def test_what_neither_models_nor_tools_took_was_waited_for_people(session: Session) -> None:
    shares = {share.kind: share.seconds for share in timeline_of(session).shares}
    assert shares == {"model": 7.0, "tool": 5.0, "people": 3_600.0}


def test_what_a_program_summarised_took_its_time_all_the_same(session: Session) -> None:
    """Its compaction is a branch of its own, and the hours before it were not waited for people."""
    begun_anew = [
        HeadMoved(to=0, reason="compacted", at=after(3_620)),
        model_input("This session is being continued.", at=after(3_620)),
        model_output("Yes.", at=after(3_621), duration=1.0, model="claude-x"),
    ]
    recorder.append_many(session, begun_anew, after=session.head)
    session.refresh_from_db()
    shares = {share.kind: share.seconds for share in timeline_of(session).shares}
    assert shares == {"model": 8.0, "tool": 5.0, "people": 3_608.0}


def test_a_call_whose_reply_is_not_kept_was_made_all_the_same(ada: Any) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1, model="claude-x")
    exchanges.finish(exchange, None, end_reason="done")
    began = Exchange.objects.get().started_at
    Exchange.objects.update(ended_at=began + timedelta(seconds=3))
    page = timeline_of(session)
    assert [(span.name, span.seq, span.seconds, span.status) for span in page.turns[0].spans] == [
        ("claude-x", 1, 3.0, "complete")
    ]
    assert page.shares[0].seconds == pytest.approx(3.0)


def test_an_answer_that_a_program_only_told_of_is_no_call(ada: Any) -> None:
    session = create_chat(ada, "hello")
    recorder.append(session, model_output("hi", model="", usage=None), after=1)
    assert timeline_of(session).turns[0].spans == ()


def test_a_call_of_ours_is_measured_from_when_it_was_sent(ada: Any) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.finish(exchange, model_output("hi"), end_reason="done")
    began = Exchange.objects.get().started_at
    Exchange.objects.update(ended_at=began + timedelta(seconds=3))
    assert timeline_of(session).turns[0].spans[0].seconds == pytest.approx(3.0)


def test_a_long_session_is_shown_a_page_at_a_time(ada: Any, django_assert_max_num_queries: Any) -> None:
    session = create_chat(ada, *[f"text {number}" for number in range(100)])
    with django_assert_max_num_queries(7):
        page = timeline_of(session)
    seen = [turn.seq for turn in page.turns]
    while page.next_before:
        page = timeline_of(session, before=page.next_before)
        seen += [turn.seq for turn in page.turns]
    assert seen == list(range(99, 0, -2))


@pytest.mark.parametrize("together", [1_000, 10])
def test_a_turn_of_many_calls_says_how_many_are_left_out(
    ada: Any, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_TOGETHER", together)
    session = create_chat(ada, "Go on")
    recorder.append_many(session, [model_output(f"step {number}") for number in range(MOST_CALLS + 7)], after=1)
    turn = timeline_of(session).turns[0]
    assert (len(turn.spans), turn.left_out) == (MOST_CALLS, 7)


# The page.


def read(client: Client, session: Session, query: str = "") -> str:
    response = client.get(f"/s/{session.pk}/timeline/{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_its_owner_reads_it_as_a_table_with_links_to_the_messages(client: Client, ada: Any, session: Session) -> None:
    client.force_login(ada)
    html = read(client, session)
    assert f'<a href="/s/{session.pk}/?at=2#m2">claude-x</a>' in html
    assert "Waiting for users" in html
    assert re.search(r'class="status failed"><span class="dot" aria-hidden="true"></span>failed', html)
    assert "after waiting 60 min" in html
    assert "Why?" not in html
    assert not re.search(r">[^<>]*\b(entry|#) ?\d", html), "numbers of the record are for links"


def test_staff_who_may_list_see_times_and_a_stranger_nothing(
    client: Client, bob: Any, staff: Any, session: Session
) -> None:
    address = f"/s/{session.pk}/timeline/"
    client.force_login(bob)
    assert client.get(address).status_code == 404
    client.force_login(staff)
    assert client.get(address).status_code == 404
    staff.user_permissions.add(Permission.objects.get(codename="view_session", content_type__app_label="history"))
    html = read(client, session)
    assert "shell" in html
    assert "Why?" not in html


def test_anonymous_users_are_asked_to_sign_in(client: Client, session: Session) -> None:
    assert client.get(f"/s/{session.pk}/timeline/").status_code == 302


@pytest.mark.parametrize("query", ["?before=0", "?before=x", "?before=" + "9" * 30])
def test_no_address_is_an_error(client: Client, ada: Any, session: Session, query: str) -> None:
    client.force_login(ada)
    read(client, session, query)


def test_an_answer_shows_what_it_cost_and_when_it_began(client: Client, ada: Any) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.finish(exchange, model_output("hi", latency=0.4, duration=2.0), end_reason="done", cost=Decimal("0.0123"))
    client.force_login(ada)
    html = client.get(f"/s/{session.pk}/").content.decode()
    assert "$0.0123" in html
    assert 'title="first token after 0.4 s">2.0 s' in html


@pytest.mark.django_db(transaction=True)
async def test_the_button_that_copies_everything_gets_the_conversation_as_text(
    async_client: AsyncClient, ada: Any
) -> None:
    session = await sync_to_async(create_chat)(ada, "What is *slow*?", "The disk.", title="Slow")
    await async_client.aforce_login(ada)
    page = (await async_client.get(f"/s/{session.pk}/")).content.decode()
    address = re.search(r'data-copy="(/history/export/[^"]*)"', page)
    assert address
    response: Any = await async_client.get(address[1].replace("&amp;", "&"))
    assert response.status_code == 200
    text = b"".join([piece async for piece in response.streaming_content]).decode()
    assert "What is *slow*?" in text
    assert "The disk." in text
    await sync_to_async(connections.close_all)()
