"""A page is brought up to date by several questions to the database; what it is told belongs together all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from history import retention
from history.entries import ModelInput, ModelOutput, Text
from history.models import Session
from history.record import recorder
from project.accounts.models import User
from relay.models import Run
from relay.pages.chat import fragments
from relay.pages.chat.fragments import View
from relay.runtime.locale import ViewerLocale

pytestmark = pytest.mark.django_db


class InBetween:
    """Writes of another connection before the next queries of a table."""

    def __init__(self, write: Callable[[], Any], *, table: str, times: int = 1) -> None:
        self.write, self.table, self.times = write, table, times
        self.is_writing = False

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.times and not self.is_writing and f'FROM "{self.table}"' in sql:
            self.times -= 1
            self.is_writing = True
            self.write()
            self.is_writing = False
        return execute(sql, params, many, context)


@pytest.fixture
def session(ada: User) -> Session:
    started = recorder.start_session(owner=ada)
    recorder.append(started, ModelInput(parts=(Text(text="Question?"),)), after=0)
    Run.objects.create(session=started, owner=ada, agent="assistant", model="", origin=1, leaf=1)
    return started


def answer(session: Session) -> None:
    """The answer is stored, and the run stands there: as the agent's loop does it."""
    now = Session.objects.get(pk=session.pk)
    stored = recorder.append(now, ModelOutput(parts=(Text(text=f"Answer {now.head}."),)), after=now.head)
    Run.objects.update(leaf=stored.seq)


def caught_up(session: Session, writes: InBetween) -> fragments.PageUpdate:
    view = View(session_id=session.pk, user=session.owner, reader=ViewerLocale("en"), shown=1)
    with connection.execute_wrapper(writes):
        return fragments.catch_up(view)


@pytest.mark.parametrize("table", ["relay_run", "history_message"])
def test_an_answer_that_is_stored_while_a_page_looks_is_shown_with_its_run_and_the_way_on(
    session: Session, table: str
) -> None:
    caught = caught_up(session, InBetween(lambda: answer(session), table=table))
    assert "Answer 1." in caught.html
    assert 'name="after" value="2"' in caught.html
    assert caught.shown == 2
    assert caught.run is not None
    assert caught.run.leaf == 2


def test_constant_writes_delay_no_page_and_show_nothing_twice(session: Session) -> None:
    writes = InBetween(lambda: answer(session), table="relay_run", times=100)
    caught = caught_up(session, writes)
    assert 100 - writes.times == fragments.MOST_LOOKS
    assert f"Answer {caught.shown - 1}." in caught.html


def test_a_session_removed_while_a_page_reads_it_does_not_exist(session: Session) -> None:
    # `ChatConsumer.fill_gap` goes on after this error; any other one would end the socket.
    view = View(session_id=session.pk, user=session.owner, reader=ViewerLocale("en"), shown=1)
    removal = InBetween(lambda: retention.erase(session, actor=None, reason="gone"), table="relay_run")
    for _ in range(2):
        with connection.execute_wrapper(removal), pytest.raises(Session.DoesNotExist):
            fragments.catch_up(view)
