"""Daily counts that the writing transaction adds: after any sequence of changes they equal a recount."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.module_loading import import_string
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from history import retention, verification
from history.access import keys
from history.db.transactions import run_last, writing
from history.entries import ModelOutput, Usage
from history.formats import jsonl
from history.models import DayTally, Message, Session, StaleDay, ToolCall
from history.record import daily_counts, exchanges, recorder
from history.record.daily_count_rules import sums_of_day
from project.background.jobs import JOBS
from tests.factories import (
    assert_counts_equal_a_recount,
    create_chat,
    example_count,
    model_input,
    model_output,
    stored_counts,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)

pytestmark = pytest.mark.django_db

LONG_AGO = datetime(2026, 3, 1, 12, tzinfo=UTC)
PICK = st.integers(0, 1_000)
STEP = st.tuples(st.integers(0, 10_000), PICK, PICK)


def answer(number: int, **fields: Any) -> ModelOutput:
    usage = Usage(input_tokens=number, output_tokens=number % 7)
    statuses = ("complete", "complete", "failed", "interrupted")
    return model_output(
        "yes", usage=usage, latency=number / 90, status=statuses[number % 4], model=f"m{number % 3}", **fields
    )


class Record:
    """Random changes of the record, each by its public way in."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.key = keys.create(name="laptop", owner=owner).api_key

    def sessions(self) -> list[Session]:
        return list(Session.objects.filter(hidden_at=None).order_by("created_at", "pk"))

    def pick(self, number: int) -> Session:
        found = self.sessions()
        return found[number % len(found)] if found else self.start(number, 0)

    def start(self, number: int, day: int) -> Session:
        relayed: dict[str, Any] = {"source": "relay", "api_key": self.key} if number % 2 else {}
        session = recorder.start_session(owner=self.owner, created_at=LONG_AGO, **relayed)
        recorder.append_many(session, [model_input("why?", at=LONG_AGO + timedelta(days=day % 5))], after=0)
        return session

    def talk(self, pick: int, number: int) -> None:
        session = self.pick(pick)
        at = LONG_AGO + timedelta(days=number % 6)
        asked = model_output("", tool_request(f"c{number}"), tool_request(f"d{number}"), at=at, agent="coder")
        recorder.append_many(session, [model_input("and?", at=at), asked], after=session.head)
        if number % 3:  # otherwise the calls stay open until something answers or skips them
            self.answer_calls(session, asked, number)

    def answer_calls(self, session: Session, asked: ModelOutput, number: int) -> None:
        outcomes = [
            tool_result(one.call_id, duration=number / 7, status="failed" if number % 2 else "success")
            for one in asked.tool_requests
        ]
        recorder.append_many(
            session, [tool_results(*outcomes, at=asked.at), answer(number, at=asked.at)], after=session.head
        )

    def branch(self, pick: int, number: int) -> None:
        session = self.pick(pick)
        places = Message.objects.filter(session=session, kind__in=["model_input", "model_output"])
        numbers = [seq for seq in places.values_list("seq", flat=True) if seq > session.trimmed_through]
        if numbers:
            recorder.move_head(session, to=numbers[number % len(numbers)])
            recorder.append(session, answer(number), after=session.head)

    def fork(self, pick: int, number: int) -> None:
        session = self.pick(pick)
        recorder.fork(session, at=session.head, owner=self.owner)

    def call_a_model(self, pick: int, number: int) -> None:
        session = self.pick(pick)
        begun: dict[str, Any] = {
            "model": f"m{number % 3}",
            "api_key": session.api_key,
            "started_at": LONG_AGO + timedelta(days=number % 4),
        }
        exchange = exchanges.open_exchange(
            session if number % 5 else None, owner=self.owner, after=session.head, **begun
        )
        cost, output = Decimal(number) / 1_000_000, answer(number) if number % 3 else None
        exchanges.finish(exchange, output, end_reason="done", cost=cost, usage={"input_tokens": number})

    def lose_a_call(self, pick: int, number: int) -> None:
        """A writer that was taken for dead and comes back with the whole answer."""
        session = self.pick(pick)
        exchange = exchanges.open_exchange(session, owner=self.owner, after=session.head)
        later = timezone.now() + timedelta(minutes=1)
        exchanges.finish(exchange, answer(number) if number % 2 else None, end_reason="server_lost", silent_since=later)
        exchanges.finish(exchange, answer(number), end_reason="done", cost=Decimal("0.01"))

    def fail(self, pick: int, number: int) -> None:
        """A transaction that is rolled back after all of it was written."""
        with transaction.atomic():
            self.talk(pick, number)
            transaction.set_rollback(True)

    def fail_inside(self, pick: int, number: int) -> None:
        session = self.pick(pick)
        with writing():
            recorder.append(session, answer(number), after=session.head)
            with suppress(ZeroDivisionError), writing():
                recorder.append(session, answer(number), after=session.head)
                raise ZeroDivisionError
        session.refresh_from_db()

    def trim(self, pick: int, number: int) -> None:
        with override_settings(CHAT_HISTORY_MAX_MESSAGES=2 + number % 4):
            retention.purge(dry_run=False)

    def erase(self, pick: int, number: int) -> None:
        retention.erase(self.pick(pick), actor=self.owner, reason="asked to")

    def rebuild(self, pick: int, number: int) -> None:
        verification.rebuild(self.pick(pick))

    def move_away_and_back(self, pick: int, number: int) -> None:
        """Out into a file, removed, and in again: forks may come without the session that they were made from."""
        session = self.pick(pick)
        writer = jsonl.JsonlWriter()
        file = b"".join([writer.head(), *writer.session(session), writer.end()])
        if number % 3:
            retention.erase(session, actor=self.owner, reason="moves")
        list(jsonl.restore(file.splitlines(keepends=True), owner=self.owner))


STEPS: tuple[Callable[[Record, int, int], Any], ...] = (
    Record.start, Record.talk, Record.talk, Record.branch, Record.fork, Record.call_a_model, Record.lose_a_call,
    Record.fail, Record.fail_inside, Record.trim, Record.erase, Record.rebuild, Record.move_away_and_back,
)  # fmt: skip


@settings(
    max_examples=example_count(16),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(steps=st.lists(STEP, min_size=8, max_size=20))
def test_after_any_changes_the_counts_equal_a_recount(
    steps: list[tuple[int, int, int]], django_user_model: Any
) -> None:
    with transaction.atomic():
        record = Record(django_user_model.objects.create_user("grace-of-counts"))
        for which, pick, number in steps:
            STEPS[which % len(STEPS)](record, pick, number)
        assert_counts_equal_a_recount()
        transaction.set_rollback(True)


def test_every_step_of_that_test_changes_the_counts_exactly(ada: Any) -> None:
    """Each at least once, independent of the random sequences."""
    record = Record(ada)
    for number in range(3):
        for step in STEPS:
            step(record, number, 5 * number + 7)
            assert_counts_equal_a_recount()
    assert sum(numbers["messages"] for numbers in stored_counts().values()) > 10


def test_a_fork_counts_from_the_moment_its_original_is_gone(ada: Any) -> None:
    """And no more once the original is back: what a file brings is linked after it was stored."""
    session = create_chat(ada, "hello", "hi")
    copy = recorder.fork(session, at=2, owner=ada)
    writer = jsonl.JsonlWriter()
    rows = [Session.objects.select_related("owner").get(pk=pk) for pk in (copy.pk, session.pk)]
    file = b"".join([writer.head(), *(line for row in rows for line in writer.session(row)), writer.end()])
    retention.erase(session, actor=ada, reason="asked to")
    assert sum(DayTally.objects.values_list("messages", flat=True)) == 2
    retention.erase(copy, actor=ada, reason="asked to")
    list(jsonl.restore(file.splitlines(keepends=True), owner=ada))
    assert Message.objects.count() == 4
    assert sum(DayTally.objects.values_list("messages", flat=True)) == 2
    assert_counts_equal_a_recount()


def test_a_call_that_is_open_again_has_no_outcome_in_the_counts(ada: Any) -> None:
    session = create_chat(ada, "why?")
    failed = tool_results(tool_result("a", duration=2.0, status="failed"))
    recorder.append_many(session, [model_output("", tool_request("a")), failed, model_output("so")], after=1)
    sums = "tool_calls", "errors", "tool_milliseconds"
    assert list(DayTally.objects.filter(model="model-1").values_list(*sums)) == [(1, 1, 2000)]
    recorder.move_head(session, to=2)
    assert list(DayTally.objects.filter(model="model-1").values_list(*sums)) == [(1, 0, 0)]
    recorder.move_head(session, to=4)
    assert list(DayTally.objects.filter(model="model-1").values_list(*sums)) == [(1, 1, 2000)]
    assert_counts_equal_a_recount()


@pytest.mark.parametrize("is_noticed", [False, True])
def test_calls_that_are_made_anew_are_counted_right(ada: Any, is_noticed: bool) -> None:
    """Whether or not the counts were set right by the damage in between."""
    session = create_chat(ada)
    recorder.append_many(
        session, [model_input("why?", at=LONG_AGO), model_output("", tool_request("a"), at=LONG_AGO)], after=0
    )
    before = stored_counts()
    without_guards(ToolCall.objects.all())._raw_delete(connection.alias)
    assert daily_counts.check() == 1 if is_noticed else True
    verification.rebuild(session)
    daily_counts.check()
    assert stored_counts() == before


def test_the_counts_are_the_last_statement_of_a_transaction(ada: Any) -> None:
    """So the row of today, which every writer changes, is locked as shortly as possible."""
    session = create_chat(ada, "hello")
    with CaptureQueriesContext(connection) as queries:
        recorder.append_many(session, [model_output("hi", tool_request("a")), tool_results(tool_result("a"))], after=1)
    written = [query["sql"] for query in queries if query["sql"].startswith(("INSERT", "UPDATE", "DELETE", "COPY"))]
    assert [sql for sql in written if "history_daytally" in sql] == [written[-1]]


def test_work_for_the_end_of_a_transaction_runs_once_in_order() -> None:
    ran: list[list[int]] = []
    with writing():
        run_last(ran.append, 1)
        with writing():
            run_last(ran.append, 2)
        with suppress(ZeroDivisionError), writing():
            run_last(ran.append, 3)
            raise ZeroDivisionError
        assert ran == []
    assert ran == [[1, 2]]
    run_last(ran.append, 4)
    assert ran == [[1, 2], [4]]


# The check of finished days.


def test_no_job_of_every_few_minutes_counts_the_messages_of_a_day(ada: Any) -> None:
    """The writing transaction has counted them: a recount takes longer with every message of the day."""
    session = create_chat(ada, "one", "two")
    often = [job for job in JOBS if job.every <= 600 and job.run.startswith("history.")]
    assert often
    with CaptureQueriesContext(connection) as asked:
        recorder.append(session, model_input("three"), after=2)
        for job in often:
            import_string(job.run)()
    counting = re.compile(r'\b(COUNT|SUM)\(.*FROM "history_(message|toolcall|exchange)"', re.DOTALL)
    assert [query["sql"] for query in asked.captured_queries if counting.search(query["sql"])] == []
    assert sum(DayTally.objects.values_list("messages", flat=True)) == 3


def test_the_check_finds_no_difference_and_asks_only_once(ada: Any) -> None:
    session = create_chat(ada)
    recorder.append_many(session, [model_input("why?", at=LONG_AGO), answer(9, at=LONG_AGO)], after=0)
    create_chat(ada, "today is not finished")
    assert daily_counts.check() == 0
    assert not DayTally.objects.filter(day=LONG_AGO.date(), checked_revision=0).exists()
    with CaptureQueriesContext(connection) as queries:
        assert daily_counts.check() == 0
    assert not [query for query in queries if "2026-03-01" in query["sql"]]


@pytest.mark.django_db(transaction=True)
def test_the_check_reads_without_a_transaction(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No writer waits while a busy day is counted."""
    session = create_chat(ada)
    recorder.append(session, model_input("why?", at=LONG_AGO), after=0)
    count, has_turn = sums_of_day, list[bool]()

    def counting(day: Any) -> Any:
        has_turn.append(connection.in_atomic_block)
        return count(day)

    monkeypatch.setattr(daily_counts, "sums_of_day", counting)
    assert daily_counts.check() == 0
    assert has_turn
    assert set(has_turn) == {False}


def test_a_day_that_changes_during_the_check_is_counted_again(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = create_chat(ada)
    recorder.append(session, model_input("why?", at=LONG_AGO), after=0)
    count, late = sums_of_day, [answer(3, at=LONG_AGO)]

    def counting(day: Any) -> Any:
        counted = count(day)
        if late:
            recorder.append(session, late.pop(), after=1)
        return counted

    monkeypatch.setattr(daily_counts, "sums_of_day", counting)
    assert daily_counts.check() == 0
    assert_counts_equal_a_recount()


def test_a_difference_is_logged_and_set_right(ada: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = create_chat(ada)
    recorder.append(session, model_input("why?", at=LONG_AGO), after=0)
    DayTally.objects.update(messages=5)
    assert daily_counts.check() == 1
    assert "The counts of 2026-03-01 were wrong" in caplog.text
    assert_counts_equal_a_recount()
    assert daily_counts.check() == 0


def test_days_from_before_the_counts_were_exact_are_made_anew(ada: Any) -> None:
    """The migration to counts in the writing transaction marks every day."""
    session = create_chat(ada)
    recorder.append(session, model_input("why?", at=LONG_AGO), after=0)
    DayTally.objects.all().delete()
    StaleDay.objects.create(day=LONG_AGO.date())
    assert daily_counts.check() == 0
    assert_counts_equal_a_recount()
    assert not StaleDay.objects.exists()


def test_every_day_can_be_counted_anew(ada: Any) -> None:
    session = create_chat(ada, "hello", "hi")
    recorder.append(session, model_input("why?", at=LONG_AGO), after=2)
    before = stored_counts()
    DayTally.objects.all().delete()
    assert daily_counts.rebuild() == 2
    assert stored_counts() == before
