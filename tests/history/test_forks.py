"""A fork is a copy of one whole path, whatever happens to the original meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from history import recorder, selectors
from history.models import Session
from tests.talk import chat_of


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
