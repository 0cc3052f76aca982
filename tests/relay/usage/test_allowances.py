"""How much a user may use, beside other users and after deletions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone, translation
from pytest_django.fixtures import Settings

from history import retention
from history.models import Session
from project.accounts.models import User
from relay.errors import OverAllowance
from relay.models import Allowance, RecentMessage, Spending
from relay.usage import allowances
from relay.usage.allowances import (
    check_allowance,
    check_budget,
    limits_of,
    note_message,
    note_usage,
    over_allowance_text,
    spent_today,
)
from tests.factories import create_chat

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_general_limits(settings: Settings) -> None:
    settings.PARLEY_CHAT_MESSAGES_PER_MINUTE = 0
    settings.PARLEY_CHAT_TOKENS_PER_DAY = 0
    settings.PARLEY_CHAT_COST_PER_DAY = Decimal(0)


def refused(what: Callable[[User], object], user: User) -> OverAllowance:
    with pytest.raises(OverAllowance) as caught:
        what(user)
    return caught.value


class Clock:
    """Ours, not the one on the wall: a test that runs at midnight sees the same day as any other."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 16, 14, 5, 0, tzinfo=UTC)

    def goes_on(self, **by: float) -> None:
        self.time += timedelta(**by)

    def tells(self) -> datetime:
        return self.time


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock.tells)
    monkeypatch.setattr(time, "time", lambda: clock.tells().timestamp())
    return clock


class TestLimits:
    def test_without_a_row_of_their_own_the_settings_hold(self, ada: User, settings: Settings) -> None:
        settings.PARLEY_CHAT_MESSAGES_PER_MINUTE = 7
        settings.PARLEY_CHAT_COST_PER_DAY = Decimal("0.5")
        assert limits_of(ada) == allowances.UserLimits(messages_per_minute=7, cost_per_day=Decimal("0.5"))

    def test_what_staff_gave_one_person_comes_first_and_nothing_leaves_the_general_limit(
        self, ada: User, bob: User, settings: Settings
    ) -> None:
        settings.PARLEY_CHAT_MESSAGES_PER_MINUTE = settings.PARLEY_CHAT_TOKENS_PER_DAY = 7
        Allowance.objects.create(user=ada, messages_per_minute=0, tokens_per_day=None, cost_per_day=Decimal(2))
        assert limits_of(ada) == allowances.UserLimits(messages_per_minute=0, tokens_per_day=7, cost_per_day=Decimal(2))
        assert limits_of(bob).messages_per_minute == 7

    def test_no_limit_lets_everything_pass(self, ada: User) -> None:
        for _ in range(40):
            note_message(ada)
        note_usage(ada, tokens=10**11, cost=10**5)
        check_allowance(ada)
        assert spent_today(ada).messages == 40


class TestMessages:
    @pytest.fixture(autouse=True)
    def _three_a_minute(self, settings: Settings) -> None:
        settings.PARLEY_CHAT_MESSAGES_PER_MINUTE = 3

    def test_one_too_many_is_told_when_it_goes_on(self, ada: User, clock: Clock) -> None:
        first = clock.time
        for _ in range(3):
            check_allowance(ada)
            note_message(ada)
            clock.goes_on(seconds=10)
        for what in (note_message, check_allowance):
            error = refused(what, ada)
            assert (error.what, error.until) == ("messages per minute", first + timedelta(seconds=60))

    def test_any_sixty_seconds_count_not_the_minute_of_the_clock(self, ada: User, clock: Clock) -> None:
        note_message(ada)
        clock.goes_on(seconds=40)
        note_message(ada)
        note_message(ada)
        assert refused(note_message, ada).until == clock.time + timedelta(seconds=20)
        clock.goes_on(seconds=19.9)
        refused(note_message, ada)
        clock.goes_on(seconds=0.1)
        note_message(ada)
        assert refused(note_message, ada).until == clock.time + timedelta(seconds=40)

    def test_a_message_that_was_refused_does_not_count(self, ada: User) -> None:
        for _ in range(3):
            note_message(ada)
        refused(note_message, ada)
        assert spent_today(ada).messages == 3
        assert RecentMessage.objects.count() == 3

    def test_another_person_is_not_kept_waiting(self, ada: User, bob: User) -> None:
        for _ in range(3):
            note_message(ada)
        note_message(bob)

    def test_no_more_rows_are_kept_than_a_minute_has(self, ada: User, clock: Clock) -> None:
        note_message(ada)
        clock.goes_on(seconds=60)
        note_message(ada)
        assert RecentMessage.objects.count() == 1

    def test_a_limit_that_was_lowered_holds_at_once(self, ada: User, clock: Clock) -> None:
        for _ in range(3):
            note_message(ada)
            clock.goes_on(seconds=10)
        Allowance.objects.create(user=ada, messages_per_minute=1)
        assert refused(note_message, ada).until == clock.time + timedelta(seconds=50)

    def test_clock_that_was_set_back_delays_messages_only_briefly(self, ada: User, clock: Clock) -> None:
        for _ in range(3):
            note_message(ada)
        clock.goes_on(seconds=-30)
        assert refused(note_message, ada).until == clock.time + timedelta(seconds=60)
        clock.goes_on(days=-1)
        note_message(ada)

    def test_between_two_calls_of_an_answer_only_the_day_counts(self, ada: User) -> None:
        for _ in range(3):
            note_message(ada)
        check_budget(ada)


class TestDays:
    def test_tokens_add_up_until_midnight(self, ada: User, settings: Settings) -> None:
        settings.PARLEY_CHAT_TOKENS_PER_DAY = 100
        note_usage(ada, tokens=60)
        note_message(ada)
        note_usage(ada, tokens=40)
        for what in (note_message, check_allowance, check_budget):
            error = refused(what, ada)
            assert (error.what, error.until) == ("tokens per day", datetime(2026, 11, 17, tzinfo=UTC))

    def test_cost_adds_up_to_the_last_digit(self, ada: User, settings: Settings) -> None:
        settings.PARLEY_CHAT_COST_PER_DAY = Decimal("0.3")
        for _ in range(2):
            note_usage(ada, cost=0.1)
        check_budget(ada)
        note_usage(ada, cost=Decimal("0.1"))
        assert spent_today(ada).cost == Decimal("0.300000")
        assert refused(check_budget, ada).what == "cost per day"

    def test_a_new_day_begins_with_nothing(self, ada: User, settings: Settings, clock: Clock) -> None:
        settings.PARLEY_CHAT_TOKENS_PER_DAY = 100
        note_usage(ada, tokens=500)
        clock.time = refused(check_budget, ada).until
        check_budget(ada)
        note_usage(ada, tokens=1)
        assert Spending.objects.count() == 2

    def test_the_day_is_that_of_the_server(self, ada: User, settings: Settings) -> None:
        settings.PARLEY_CHAT_TOKENS_PER_DAY = 1
        settings.TIME_ZONE = "Asia/Kathmandu"
        note_usage(ada, tokens=1)
        ada.time_zone = "America/New_York"
        until = refused(check_budget, ada).until
        assert until == datetime(2026, 11, 16, 18, 15, tzinfo=UTC)
        assert spent_today(ada).day == date(2026, 11, 16)

    def test_deleting_sessions_gives_nothing_back(self, ada: User, settings: Settings) -> None:
        settings.PARLEY_CHAT_TOKENS_PER_DAY = 100
        session = create_chat(ada, "hello", "hi")
        note_message(ada)
        note_usage(ada, tokens=100)
        retention.erase(session, actor=ada, reason="enough")
        assert not Session.objects.exists()
        refused(note_message, ada)
        assert spent_today(ada).messages == 1

    @pytest.mark.parametrize(("tokens", "cost"), [(-5, -1), (10**30, 10**30)])
    def test_nonsense_neither_gives_back_nor_breaks(self, ada: User, tokens: int, cost: int) -> None:
        note_usage(ada, tokens=50)
        note_usage(ada, tokens=tokens, cost=cost)
        assert spent_today(ada).tokens >= 50
        assert spent_today(ada).cost >= 0


class TestWhatIsTold:
    def test_the_time_is_that_of_the_person(self) -> None:
        until = datetime(2026, 11, 16, 23, 30, 5, tzinfo=UTC)
        with timezone.override("Asia/Shanghai"), translation.override("en"):
            assert "07:30:05" in over_allowance_text(OverAllowance(what="messages per minute", until=until))
            text = over_allowance_text(OverAllowance(what="tokens per day", until=until))
        assert "tokens per day" in text
        assert "17" in text


def all_at_once(count: int, work: Callable[[], None]) -> list[Exception | None]:
    """Each in a thread of its own, all let go at the same moment; what they raised."""
    gate = threading.Barrier(count)
    ends: list[Exception | None] = []

    def run() -> None:
        gate.wait()
        try:
            work()
            ends.append(None)
        except Exception as error:  # noqa: BLE001 - the test looks at all of them
            ends.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


@pytest.mark.django_db(transaction=True)
class TestManyAtOnce:
    @pytest.fixture(autouse=True)
    def _closed_in_the_end(self) -> Iterator[None]:
        yield
        connections.close_all()

    def test_of_many_messages_at_once_no_more_pass_than_one_after_the_other(
        self, ada: User, settings: Settings
    ) -> None:
        settings.PARLEY_CHAT_MESSAGES_PER_MINUTE = 5
        ends = all_at_once(12, lambda: note_message(ada))
        assert ends.count(None) == 5
        assert all(isinstance(error, OverAllowance) for error in ends if error)
        assert len(ends) == 12
        assert spent_today(ada).messages == 5

    def test_nothing_that_many_use_at_once_is_lost(self, ada: User) -> None:
        ends = all_at_once(12, lambda: note_usage(ada, tokens=7, cost=Decimal("0.01")))
        assert ends == [None] * 12
        assert (spent_today(ada).tokens, spent_today(ada).cost) == (84, Decimal("0.12"))


def test_removed_user_takes_their_numbers_along(ada: User) -> None:
    note_message(ada)
    Allowance.objects.create(user=ada)
    ada.delete()
    rows: list[Any] = [*Spending.objects.all(), *RecentMessage.objects.all(), *Allowance.objects.all()]
    assert rows == []
