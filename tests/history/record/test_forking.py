"""Forks: a copy of one whole path, unaffected by later changes, and hidden until it is complete."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone

from history import retention, search, verification
from history.access import permissions
from history.access.permissions import Purpose
from history.context.rendering import render_context
from history.context.values import ContextOptions
from history.entries import DebugLog, Entry, MaskedResult, NotebookSet, Summary, SystemInstructionSet
from history.errors import NoSuchEntry
from history.management.cli.arguments import sessions_for
from history.models import AuditEvent, Message, SearchRow, Session, ToolCall
from history.record import recorder, selectors
from history.record.recorder import COPIED_TOGETHER
from tests.factories import (
    create_chat,
    model_input,
    model_output,
    run_before_statements,
    run_on_other_connection,
    tool_request,
    tool_result,
    tool_results,
)

LENGTH = 3 * COPIED_TOGETHER - 50


def before_each_batch(do: Callable[[int], object]) -> AbstractContextManager[list[int]]:
    """Do something whenever entries are about to be read for the copy."""
    return run_before_statements("SELECT seq, parent_seq, body", do)


def half_made() -> Session:
    return Session.objects.exclude(forked_from=None).get()


def contents(session: Session) -> list[str]:
    return list(Message.objects.filter(session=session, on_path=True).order_by("seq").values_list("content", flat=True))


# While it is made.


@pytest.mark.django_db(transaction=True)
def test_between_the_batches_of_a_long_copy_others_write_to_the_original_and_elsewhere(ada: Any) -> None:
    session, other = create_chat(ada, *["word"] * LENGTH), create_chat(ada, "elsewhere")

    def write(place: int) -> None:
        for one in (session, other):
            current = Session.objects.get(pk=one.pk)
            recorder.append(current, model_input(f"meanwhile {place}"), after=current.head)

    with before_each_batch(lambda place: run_on_other_connection(lambda: write(place))) as times:
        copy = recorder.fork(session, at=session.head, owner=ada)
    assert len(times) == 3
    assert contents(copy) == ["word"] * LENGTH
    assert contents(session)[LENGTH:] == contents(other)[1:] == ["meanwhile 0", "meanwhile 1", "meanwhile 2"]


@pytest.mark.django_db(transaction=True)
def test_a_copy_is_hidden_and_locked_until_it_is_complete(ada: Any, staff: Any) -> None:
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "read_session", "hold_session"]))
    session = create_chat(ada, *["lighthouse"] * LENGTH)
    viewers = [ada, type(staff).objects.get(pk=staff.pk)]

    def look(place: int) -> None:
        copy = half_made()
        assert Message.objects.filter(session=copy).count() == place * COPIED_TOGETHER
        for viewer in viewers:
            assert permissions.find(viewer, copy.pk, Purpose.LIST) is None
            assert list(permissions.sessions_for(viewer, Purpose.LIST)) == [session]
            assert {hit.session_id for hit in search.search(viewer, "lighthouse", limit=100).hits} == {session.pk}
        assert list(sessions_for(None)) == [session]
        assert not retention.hold(copy, actor=staff, reason="case 7")
        assert not retention.unhide(copy, actor=ada)
        assert not retention.hide(copy, actor=ada)
        with pytest.raises(NoSuchEntry):
            recorder.append(copy, model_input("mine"), after=copy.head)
        assert list(verification.verify()) == []

    with before_each_batch(lambda place: run_on_other_connection(lambda: look(place))) as times:
        copy = recorder.fork(session, at=session.head, owner=ada)
    assert len(times) == 3
    assert permissions.find(ada, copy.pk, Purpose.LIST) == copy
    assert {hit.session_id for hit in search.search(ada, "lighthouse", limit=100).hits} == {copy.pk}  # the newest
    assert recorder.append(copy, model_input("mine"), after=copy.head).moved_head
    assert list(verification.verify()) == []


@pytest.mark.django_db(transaction=True)
def test_a_copy_that_is_still_being_made_is_not_purged(ada: Any, settings: Any) -> None:
    settings.PARLEY_CHAT_TTL_DAYS = 1
    session = create_chat(ada, *["word"] * LENGTH)

    def purge(place: int) -> None:
        assert retention.purge(dry_run=False, now=timezone.now() + timedelta(minutes=50)).sessions == 0

    with before_each_batch(purge):
        assert recorder.fork(session, at=session.head, owner=ada).version == LENGTH


class PowerCut(Exception):
    pass


@pytest.mark.parametrize("batches", [0, 1, 2])
@pytest.mark.django_db(transaction=True)
def test_a_purge_removes_what_a_crash_leaves_of_a_copy(ada: Any, batches: int) -> None:
    session = create_chat(ada, *["lighthouse"] * LENGTH)

    def cut(place: int) -> None:
        if place == batches:
            raise PowerCut

    with before_each_batch(cut), pytest.raises(PowerCut):
        recorder.fork(session, at=session.head, owner=ada)
    copy = half_made()
    assert (copy.version, permissions.find(ada, copy.pk, Purpose.LIST)) == (batches * COPIED_TOGETHER, None)
    assert list(verification.verify()) == []
    known = verification.checkpoint()
    assert retention.purge(dry_run=False).sessions == 0
    later = timezone.now() + timedelta(hours=2)
    assert retention.purge(now=later).unfinished == 1
    report = retention.purge(dry_run=False, now=later)
    assert (report.unfinished, report.messages) == (1, batches * COPIED_TOGETHER)
    assert list(Session.objects.all()) == [session]
    assert Message.objects.count() == SearchRow.objects.count() == LENGTH
    assert '"why":"unfinished"' in AuditEvent.objects.get(action="remove", session=copy.pk).details
    assert list(verification.verify(checkpoint=known)) == []


@pytest.mark.django_db(transaction=True)
def test_a_copy_that_is_erased_while_it_is_made_is_not_finished(ada: Any) -> None:
    session = create_chat(ada, *["word"] * LENGTH)

    def erase(place: int) -> None:
        if place == 1:
            retention.erase(half_made(), actor=ada, reason="all of it")

    with before_each_batch(erase), pytest.raises(NoSuchEntry):
        recorder.fork(session, at=session.head, owner=ada)
    assert list(Session.objects.all()) == [session]
    assert Message.objects.count() == LENGTH


# What happens to the original meanwhile.


@pytest.mark.django_db(transaction=True)
def test_a_head_that_moves_while_its_path_is_copied_costs_the_fork_nothing(ada: Any) -> None:
    session = create_chat(ada, *["word"] * LENGTH)

    def move(place: int) -> None:
        recorder.move_head(Session.objects.get(pk=session.pk), to=place)

    with before_each_batch(lambda place: run_on_other_connection(lambda: move(place))):
        copy = recorder.fork(session, at=session.head, owner=ada)
    assert (copy.message_count, copy.head) == (LENGTH, LENGTH)
    assert list(verification.verify()) == []


def trims(settings: Any, *, at: int, to: int) -> Callable[[int], None]:
    def trim(place: int) -> None:
        if place == at:
            settings.CHAT_HISTORY_MAX_MESSAGES = to
            assert retention.purge(dry_run=False).trimmed

    return trim


@pytest.mark.django_db(transaction=True)
def test_a_trim_of_what_was_copied_already_costs_the_fork_nothing(ada: Any, settings: Any) -> None:
    session = create_chat(ada, *["word"] * LENGTH, source="relay")
    with before_each_batch(trims(settings, at=2, to=LENGTH - COPIED_TOGETHER)):
        copy = recorder.fork(session, at=session.head, owner=ada)
    assert (copy.version, copy.message_count) == (LENGTH, LENGTH)
    assert Message.objects.filter(session=session).count() < LENGTH
    assert list(verification.verify()) == []


@pytest.mark.django_db(transaction=True)
def test_a_trim_during_a_fork_fails_it_and_the_next_fork_has_a_gap(ada: Any, settings: Any) -> None:
    session = create_chat(ada, *["word"] * LENGTH, source="relay")
    with before_each_batch(trims(settings, at=1, to=10)), pytest.raises(NoSuchEntry, match="fork it again"):
        recorder.fork(session, at=session.head, owner=ada)
    assert list(permissions.sessions_for(ada, Purpose.LIST)) == [session]
    again = recorder.fork(session, at=session.head, owner=ada)
    assert contents(again) == ["trimmed before the fork", *["word"] * 10]
    retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=2))
    assert set(Session.objects.all()) == {session, again}
    assert list(verification.verify()) == []


@pytest.mark.django_db(transaction=True)
def test_texts_that_are_dropped_while_they_are_copied_are_gaps_in_the_copy(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_BODY_DAYS = 7
    old = timezone.now() - timedelta(days=8)
    session = recorder.start_session(owner=ada, source="relay", created_at=old)
    recorder.append_many(session, [model_input("word", at=old)] * LENGTH, after=0)

    def drop(place: int) -> None:
        if place == 1:
            assert retention.purge(dry_run=False).dropped == LENGTH

    with before_each_batch(drop):
        copy = recorder.fork(session, at=session.head, owner=ada)
    assert contents(copy)[:COPIED_TOGETHER] == ["word"] * COPIED_TOGETHER
    assert set(contents(copy)[COPIED_TOGETHER:]) == {"dropped by policy"}
    assert list(verification.verify()) == []


# The copy.


def a_bit_of_everything(owner: Any) -> Session:
    session = recorder.start_session(owner=owner)
    talk: list[Entry] = [SystemInstructionSet(instruction="be kind " * 300)]
    for number in range(4):
        talk += [
            model_input(f"look {number}"),
            model_output("", tool_request("a"), tool_request("b")),
            NotebookSet(content=f"{number}"),
        ]
        talk += [
            tool_results(tool_result("a", "x" * 70_000), tool_result("b", status="failed")),
            model_output(f"seen {number}"),
        ]
    recorder.append_many(session, talk, after=0)
    recorder.append(session, DebugLog(message="slow"), after=session.head)
    summary = Summary(first=2, last=6, summary="They looked.", masks=(MaskedResult(seq=10, index=0),))
    recorder.append(session, summary, after=session.head)
    recorder.append_many(session, [model_input("more"), model_output("", tool_request("c"))], after=session.head)
    return session


def all_of(session: Session) -> list[Any]:
    counted = ("version", "head", "head_fingerprint", "head_has_open_calls", "message_count", "tool_call_count",
               "error_count", "title", "model")  # fmt: skip
    row = Session.objects.values_list(*counted).get(pk=session.pk)
    columns = ("seq", "parent_seq", "kind", "body", "content", "on_path", "moved_head", "fingerprint")
    rows = Message.objects.filter(session=session).order_by("seq").values_list(*columns)
    outcomes = ("message__seq", "index", "call_id", "status", "result", "answered_by", "answer_index")
    calls = ToolCall.objects.filter(session=session).order_by("message__seq", "index").values_list(*outcomes)
    found = SearchRow.objects.filter(message__session=session).count()
    return [row, list(rows), list(calls), found]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.django_db
def test_however_many_entries_are_copied_at_a_time_the_copy_is_the_same(ada: Any, monkeypatch: Any, size: int) -> None:
    session = a_bit_of_everything(ada)
    at_once = recorder.fork(session, at=session.head, owner=ada)
    monkeypatch.setattr(recorder, "COPIED_TOGETHER", size)
    by_and_by = recorder.fork(session, at=session.head, owner=ada)
    assert all_of(by_and_by) == all_of(at_once)
    assert ToolCall.objects.filter(session=by_and_by, status="pending").count() == 1
    assert list(verification.verify()) == []


@pytest.mark.django_db
def test_a_fork_from_the_very_start_is_an_empty_session_that_is_there(ada: Any) -> None:
    copy = recorder.fork(create_chat(ada, "one"), at=0, owner=ada)
    assert (copy.version, permissions.find(ada, copy.pk, Purpose.LIST)) == (0, copy)


def context_texts(session: Session) -> list[str]:
    options = ContextOptions(max_turns=None)
    return [entry.content for entry in render_context(selectors.snapshot(session, options=options), options).entries]


@pytest.mark.django_db
def test_a_fork_of_a_trimmed_session_keeps_the_summary_of_what_was_trimmed(ada: Any, settings: Any) -> None:
    session = recorder.start_session(owner=ada, source="relay")
    recorder.append(session, SystemInstructionSet(instruction="be kind"), after=0)
    recorder.append_many(
        session, [model_input("old"), model_output("old too"), model_input("then"), model_output("so")], after=1
    )
    recorder.append(session, Summary(first=2, last=3, summary="They spoke of old things."), after=5)
    recorder.append_many(session, [model_input("now"), model_output("yes")], after=6)
    settings.CHAT_HISTORY_MAX_MESSAGES = 4
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.trimmed_through == 3
    copy = recorder.fork(session, at=session.head, owner=ada)
    assert context_texts(copy)[1:] == context_texts(session)[1:] == ["then", "so", "now", "yes"]
    assert "They spoke of old things." in context_texts(copy)[0]
    assert selectors.snapshot(copy).system_instruction == "be kind"
    kinds = [message.kind for message in selectors.messages_of(copy).messages]
    assert kinds.count("gap") == 1
