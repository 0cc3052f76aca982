"""Frequent queries cost what they return, however many other rows there are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from history import retention
from history.access.permissions import Purpose, sessions_for
from history.entries import DebugLog
from history.models import Exchange, Message, Session
from history.record import exchanges, recorder
from history.retention import purging, trimming
from history.transcripts.page import TranscriptEntry, TranscriptPosition, read_page
from tests.factories import create_chat, model_input, without_guards
from tests.servers.databases import analyze_tables, measure_db_work

pytestmark = pytest.mark.django_db


def later(days: float) -> Any:
    return timezone.now() + timedelta(days=days)


def test_one_agents_history_in_one_workspace_is_found_among_thousands_of_others(ada: Any) -> None:
    def find() -> None:
        results.append(list(sessions_for(ada, Purpose.LIST).filter(agent="operator", workspace="/srv/one")))

    results: list[list[Session]] = []
    here = create_chat(ada, "a", agent="operator", workspace="/srv/one")
    Session.objects.bulk_create(Session(owner=ada, agent="operator", workspace=f"/w/{n}") for n in range(50))
    analyze_tables()
    among_few = measure_db_work(find)
    Session.objects.bulk_create(Session(owner=ada, agent="operator", workspace=f"/x/{n}") for n in range(3_000))
    analyze_tables()
    assert measure_db_work(find) < 2 * among_few
    assert results == [[here], [here]]


def test_old_calls_without_a_session_are_found_among_thousands_of_young_ones(ada: Any) -> None:
    def find() -> None:
        results.append([exchange for loose in purging.loose_exchanges(timezone.now()) for exchange in loose])

    results: list[list[Exchange]] = []
    old = exchanges.open_exchange(None, owner=ada)
    exchanges.finish(old, None, end_reason="done")
    Exchange.objects.update(ended_at=later(-31))
    among_none = measure_db_work(find)
    Exchange.objects.bulk_create(Exchange(owner=ada, ended_at=later(-1), end_reason="done") for _ in range(3_000))
    analyze_tables()
    assert measure_db_work(find) < 2 * among_none
    assert results == [[old], [old]]


def dropped_whole(owner: Any, length: int) -> Session:
    session = create_chat(owner, *["word"] * length, source="relay")
    retention.purge(dry_run=False, now=later(8))
    assert not Message.objects.filter(dropped_at=None).exists()
    return session


def test_a_session_without_texts_is_not_walked_again(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_BODY_DAYS = 7

    def look() -> None:
        for _ in range(2):
            retention.purge(dry_run=False, now=later(8))

    short = dropped_whole(ada, 20)
    analyze_tables()
    for_few = measure_db_work(look)
    without_guards(Session.objects.filter(pk=short.pk)).delete()
    long = dropped_whole(ada, 2_000)
    analyze_tables()
    assert measure_db_work(look) < 1.5 * for_few
    assert Session.objects.get().dropped_through == long.version


def test_only_what_came_after_the_last_drop_is_looked_at(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_BODY_DAYS = 7
    session = dropped_whole(ada, 2_000)
    recorder.append(session, model_input("and now?"), after=session.head)
    analyze_tables()
    sessions = Session.objects.all()
    assert not trimming.with_old_texts(sessions, before=later(-1)).exists()
    assert measure_db_work(lambda: list(trimming.with_old_texts(sessions, before=later(1)))) < 1_000
    assert [one.pk for one in trimming.with_old_texts(sessions, before=later(1))] == [session.pk]
    assert retention.purge(dry_run=False, now=later(8)).dropped == 1


@pytest.mark.parametrize("where", ["newest", "older", "newer", "permalink", "permalink on a named branch"])
def test_a_page_of_a_side_branch_costs_what_it_shows_however_long_the_branch_is(ada: Any, where: str) -> None:
    efforts, pages = [], []
    for length in (100, 2_000):
        session = create_chat(ada, "one", "two", "three")
        branch = [one.seq for one in recorder.append_many(session, [model_input("word")] * length, after=2)]
        middle, leaf = branch[length // 2], branch[-1]
        place = {
            "newest": TranscriptPosition(leaf=leaf),
            "older": TranscriptPosition(leaf=leaf, before=middle),
            "newer": TranscriptPosition(leaf=leaf, after=middle),
            "permalink": TranscriptPosition(at=middle),
            "permalink on a named branch": TranscriptPosition(at=middle, leaf=leaf),
        }[where]
        analyze_tables()
        efforts.append(measure_db_work(lambda: pages.append(read_page(session, place))))  # noqa: B023 - called at once
    assert [len(page.rows) for page in pages] == [20, 20]
    assert efforts[1] < 1.5 * efforts[0]


def test_the_cost_of_a_page_does_not_depend_on_the_session_length(ada: Any) -> None:
    efforts, pages = [], []
    for length in (100, 2_000):
        session = create_chat(ada, *["word"] * length)
        recorder.append(session, DebugLog(message="slow today"), after=session.head)
        analyze_tables()
        efforts.append(measure_db_work(lambda: pages.append(read_page(session, TranscriptPosition(internal=True)))))  # noqa: B023
    assert [sum(len(row.notes) for row in page.rows if isinstance(row, TranscriptEntry)) for page in pages] == [1, 1]
    assert efforts[1] < 1.5 * efforts[0]
