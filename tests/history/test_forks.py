"""A fork is a copy of one whole path, whatever happens to the original meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from history import recorder, retention, selectors
from history.context import ContextOptions, render_context
from history.entries import Summary, SystemInstructionSet
from history.models import Session
from tests.talk import answered, chat_of, said


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite one transaction writes at a time")
@pytest.mark.django_db(transaction=True)
def test_a_head_that_moves_while_its_path_is_copied_costs_the_fork_nothing(ada: Any) -> None:
    session = chat_of(ada, *["word"] * (selectors.MAX_PAGE + 20))
    moved = threading.Event()
    movers: list[threading.Thread] = []

    def move() -> None:
        recorder.move_head(Session.objects.get(pk=session.pk), to=0)
        moved.set()
        connections.close_all()

    def after_the_first_page(execute: Any, sql: str, *rest: Any) -> Any:
        answer = execute(sql, *rest)
        if sql.startswith("SELECT seq, parent_seq, body") and not movers:
            movers.append(threading.Thread(target=move))
            movers[0].start()
            moved.wait(1)  # it must not come through before the copy is made
        return answer

    with connection.execute_wrapper(after_the_first_page):
        copy = recorder.fork(session, at=session.head, owner=ada)
    movers[0].join()
    assert copy.message_count == session.message_count


def told(session: Session) -> list[str]:
    options = ContextOptions(max_turns=None)
    return [entry.content for entry in render_context(selectors.snapshot(session, options=options), options).entries]


@pytest.mark.django_db
def test_a_fork_of_a_trimmed_session_keeps_the_summary_of_what_was_trimmed(ada: Any, settings: Any) -> None:
    session = recorder.start_session(owner=ada, source="relay")
    recorder.append(session, SystemInstructionSet(instruction="be kind"), after=0)
    recorder.append_many(session, [said("old"), answered("old too"), said("then"), answered("so")], after=1)
    recorder.append(session, Summary(first=2, last=3, summary="They spoke of old things."), after=5)
    recorder.append_many(session, [said("now"), answered("yes")], after=6)
    settings.CHAT_HISTORY_MAX_MESSAGES = 4
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.trimmed_through == 3
    copy = recorder.fork(session, at=session.head, owner=ada)
    assert told(copy)[1:] == told(session)[1:] == ["then", "so", "now", "yes"]
    assert "They spoke of old things." in told(copy)[0]
    assert selectors.snapshot(copy).system_instruction == "be kind"
    kinds = [message.kind for message in selectors.messages_of(copy).messages]
    assert kinds.count("gap") == 1
