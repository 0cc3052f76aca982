"""Exports that go on from one another: nothing is missed, not even what commits late, and deletions are told."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from history import retention
from history.exporting import Selection, begin, begin_async, selection
from history.exporting.selection import ExportCursor
from history.models import Session
from history.record import exchanges, recorder
from project.accounts.models import User
from tests.factories import create_chat, model_input, model_output
from tests.history.formats.exported import restored, wipe


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "CLOCK_SKEW", timedelta(0))


def increment(viewer: Any, since: str, selection: Selection = Selection()) -> tuple[list[str], list[str], str]:  # noqa: B008
    """Titles of sessions, ids of what was deleted, and the next cursor."""
    written = b"".join(begin(viewer, selection, "jsonl", since=since).pieces()).splitlines()
    lines = [json.loads(line) for line in written]
    titles = sorted(line["title"] for line in lines if line["type"] == "session")
    return titles, [line["session"] for line in lines if line["type"] == "deleted"], lines[-1]["cursor"]


@pytest.mark.django_db
def test_the_next_export_brings_what_has_changed_and_nothing_else(ada: User) -> None:
    one, two = create_chat(ada, "one"), create_chat(ada, "two")
    titles, _, cursor = increment(ada, "start")
    assert titles == ["one", "two"]
    assert increment(ada, cursor)[0] == []
    recorder.append(one, model_output("yes"), after=one.head)
    create_chat(ada, "three")
    titles, _, cursor = increment(ada, cursor)
    assert titles == ["one", "three"]
    recorder.rename(two, title="zwei")
    assert increment(ada, cursor)[0] == ["zwei"]
    recorder.pin(two, pinned=True)
    exchange = exchanges.open_exchange(one, owner=ada, after=2)
    _, _, cursor = increment(ada, cursor)
    exchanges.finish(exchange, None, end_reason="stopped")
    assert increment(ada, cursor)[0] == ["one"]


@pytest.mark.django_db
def test_what_was_deleted_is_told_to_whom_it_belonged(ada: User, bob: User) -> None:
    hidden, erased, back = create_chat(ada, "hidden"), create_chat(ada, "erased"), create_chat(ada, "back")
    cursors_before = {user: increment(user, "start")[2] for user in (ada, bob)}
    retention.hide(hidden, actor=ada)
    retention.erase(erased, actor=ada, reason="asked for")
    retention.hide(back, actor=ada)
    retention.unhide(back, actor=ada)
    gone_id = str(erased.pk)
    titles, gone, cursor = increment(ada, cursors_before[ada])
    assert titles == ["back"]
    assert set(gone) == {str(hidden.pk), gone_id}
    assert increment(ada, cursor)[1] == []
    assert increment(bob, cursors_before[bob])[1] == []
    assert gone_id in increment(None, cursors_before[ada])[1]


@pytest.mark.django_db
def test_an_export_that_was_cut_off_goes_on_and_ends_where_it_would_have(ada: User) -> None:
    for name in ("one", "two", "three"):
        create_chat(ada, name)
    whole = b"".join(begin(ada, Selection(), "jsonl", since="start").pieces()).splitlines()
    lines = [json.loads(line) for line in whole]
    first_end = next(line for line in lines if line["type"] == "session_end")
    recorder.append(Session.objects.get(pk=first_end["session"]), model_input("late"), after=1)
    titles, _, cursor = increment(ada, first_end["cursor"])
    assert len(titles) == 2
    assert cursor == str(ExportCursor.parse(lines[-1]["cursor"]))
    assert len(increment(ada, cursor)[0]) == 1  # what came late is brought by the next one


@pytest.mark.django_db
def test_a_series_of_exports_restores_what_one_export_of_everything_would(ada: User) -> None:
    one = create_chat(ada, "one")
    first = b"".join(begin(ada, Selection(), "jsonl", since="start").pieces())
    cursor = json.loads(first.splitlines()[-1])["cursor"]
    recorder.append(one, model_output("yes"), after=one.head)
    two = create_chat(ada, "two")
    second = b"".join(begin(ada, Selection(), "jsonl", since=cursor).pieces())
    whole = b"".join(begin(ada, Selection(), "jsonl").pieces())
    retention.hide(two, actor=ada)
    cursor = json.loads(second.splitlines()[-1])["cursor"]
    third = b"".join(begin(ada, Selection(), "jsonl", since=cursor).pieces())
    wipe()
    for file in (first, second):
        restored(file)
    assert b"".join(begin(ada, Selection(), "jsonl").pieces()) == whole
    assert [item.outcome for item in restored(third) if item.session] == ["noted"]
    assert Session.objects.filter(hidden_at=None).count() == 2
    assert [item.session for item in restored(third, deletions=True) if item.session] == [two.pk]
    assert Session.objects.filter(hidden_at=None).count() == 1


@pytest.mark.django_db(transaction=True)
def test_what_commits_late_is_brought_by_the_next_export(ada: User) -> None:
    """A writer that began before the export, and ends after it. On SQLite the export waits for it."""
    written, go_on = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with transaction.atomic():
            # Of another source: two writers of one row of counts wait for each other.
            create_chat(ada, "late", source="import")
            written.set()
            go_on.wait(20)
        connections.close_all()

    writer = threading.Thread(target=write_slowly)
    writer.start()
    try:
        assert written.wait(20)
        if connection.vendor == "sqlite":
            go_on.set()
        else:
            create_chat(ada, "early")
        titles, _, cursor = increment(ada, "start")
        assert titles == (["late"] if connection.vendor == "sqlite" else ["early"])
    finally:
        go_on.set()
        writer.join()
    missed = {"early", "late"} - set(titles) if connection.vendor == "postgresql" else set()
    assert missed <= set(increment(ada, cursor)[0])


@pytest.mark.django_db(transaction=True)
async def test_from_the_event_loop_it_is_a_stream_that_may_be_left(ada: User) -> None:
    for number in range(3):
        await sync_to_async(create_chat)(ada, f"{number} " + "long " * 20_000, "yes")
    export = await begin_async(ada, Selection(), "jsonl")
    sizes = [len(piece) async for piece in export]
    assert len(sizes) > 3
    assert export.report.bytes == sum(sizes)
    assert export.report.sessions == 3
    async for _ in await begin_async(ada, Selection(), "jsonl"):
        break
    for _ in range(100):
        if not (left := [thread.name for thread in threading.enumerate() if thread.name.startswith("export")]):
            break
        await asyncio.sleep(0.05)
    assert left == []
    await sync_to_async(connections.close_all)()
