"""Daily budgets of people who chat: each call to a model reserves first, so parallel chats stay within the budget."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from history.access import keys
from history.answers.events import AnswerFailed, UsageReported
from history.db.process_state import process_state
from history.entries import Usage
from history.models import Exchange
from project.accounts.models import User
from relay import conversation
from relay.agents import model_call
from relay.errors import OverAllowance, error_of
from relay.live import run_task
from relay.models import Allowance, Run
from relay.runtime import process_locks
from relay.runtime.async_db import in_database
from relay.usage import allowances, budgets, counters, redis_counters
from relay.usage.prices import Use
from tests.relay.agents.compression_helpers import SMALL
from tests.relay.conftest import Talk
from tests.relay.conversation.test_turns import call
from tests.relay.providers.scripted import Answer

pytestmark = pytest.mark.any_database

LIMIT, EACH = 100, 30
SPENT = UsageReported(usage=Usage(input_tokens=20, output_tokens=10))
ANSWER: Answer = [0.01, "Hello.", SPENT]


@pytest.fixture(autouse=True)
def _nothing_counted_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    process_state.reset(counters.UsageCounters)
    monkeypatch.setattr(model_call, "TRY_EVERY_SECONDS", 0.01)
    yield
    process_state.reset(counters.UsageCounters)


async def begin_at_once(talk: Talk, count: int) -> list[Run]:
    """So many new chats at the same moment; their runs, when all of them have ended."""
    draft = conversation.MessageDraft(text="Hello?")
    await asyncio.gather(*(conversation.start_session(talk.user, draft) for _ in range(count)))
    await talk.until(lambda: not run_task.local_tasks and not Run.objects.filter(ended_at=None).exists(), seconds=30)
    return await in_database(lambda: list(Run.objects.all()))


async def spent_by(user: User) -> int:
    return (await in_database(allowances.spent_today, user)).tokens


@pytest.mark.parametrize("redis_is", ["used", "absent"])
@pytest.mark.parametrize("kind", ["answers", "tools"])
async def test_parallel_chats_exceed_a_budget_by_one_answer_at_most(
    talk: Talk, settings: Any, request: Any, redis_is: str, kind: str
) -> None:
    if redis_is == "used":
        request.getfixturevalue("store")
    else:
        settings.REDIS_URL = ""
    settings.PARLEY_CHAT_TOKENS_PER_DAY = LIMIT
    await talk.agent(tools=["current_time"] if kind == "tools" else [])
    provider = talk.scripted([0.01, call("current_time"), SPENT] if kind == "tools" else ANSWER)
    runs = await begin_at_once(talk, 10)
    assert LIMIT <= await spent_by(talk.user) < LIMIT + EACH
    assert len(provider.calls) * EACH == await spent_by(talk.user)
    assert {run.error for run in runs if run.outcome == Run.Outcome.FAILED} == {"OverAllowance"}
    await redis_counters.close()


async def test_parallel_chats_keep_to_a_budget_in_money(talk: Talk, settings: Any) -> None:
    settings.REDIS_URL, settings.PARLEY_PRICES = "", ()
    settings.PARLEY_UNKNOWN_INPUT_PRICE = settings.PARLEY_UNKNOWN_OUTPUT_PRICE = Decimal(1_000_000)
    await in_database(lambda: Allowance.objects.create(user=talk.user, cost_per_day=LIMIT))
    talk.scripted(ANSWER)
    await begin_at_once(talk, 8)
    assert LIMIT <= (await in_database(allowances.spent_today, talk.user)).cost < LIMIT + EACH


async def test_chats_that_fit_into_a_budget_run_together(talk: Talk, settings: Any) -> None:
    settings.REDIS_URL, settings.PARLEY_CHAT_TOKENS_PER_DAY = "", 1_000_000
    gate = asyncio.Event()
    provider = talk.scripted([gate, "Hello.", SPENT])
    begun = asyncio.create_task(begin_at_once(talk, 4))
    await talk.until(lambda: len(provider.calls) == 4)
    gate.set()
    assert {run.outcome for run in await begun} == {Run.Outcome.DONE}
    assert await spent_by(talk.user) == 4 * EACH
    assert budgets.pools(budgets.Payer(talk.user.pk))["owner_day"].is_idle


async def test_a_chat_waits_for_a_running_call_of_a_key(
    talk: Talk, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL, settings.PARLEY_CHAT_TOKENS_PER_DAY = "", LIMIT
    key = await in_database(lambda: keys.create(name="k", owner=talk.user).api_key)
    payer = budgets.payer_of(key)
    await counters.load_owner(talk.user.pk)
    assert await budgets.reserve(payer, "relayed", Use(0, 90), budgets.budgets_of(payer)) is None
    provider = talk.scripted(ANSWER)
    await talk.begin("Hello?")
    await asyncio.sleep(0.1)
    assert not provider.calls
    budgets.settle(payer, "relayed", Use())
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    monkeypatch.setattr(model_call, "WAIT_SECONDS", 0)
    assert await budgets.reserve(payer, "relayed", Use(0, 90), budgets.budgets_of(payer)) is None
    await talk.send("And now?")
    run = await talk.until_ended()
    assert (run.outcome, run.error, len(provider.calls)) == (Run.Outcome.FAILED, "BudgetReserved", 1)
    assert "Try again when one of them has ended" in (await talk.messages())[-1].content


async def test_a_chat_that_waits_can_be_stopped(talk: Talk, settings: Any) -> None:
    settings.REDIS_URL, settings.PARLEY_CHAT_TOKENS_PER_DAY = "", LIMIT
    gate = asyncio.Event()
    provider = talk.scripted([gate, "Hello.", SPENT])
    first = await talk.begin("Hello?")
    await talk.until(lambda: len(provider.calls) == 1)
    await talk.begin("And me?")
    await asyncio.sleep(0.1)
    await talk.stop()
    waited = await talk.until(lambda: Run.objects.filter(session=talk.session.pk).exclude(ended_at=None).first())
    assert (waited.outcome, len(provider.calls)) == (Run.Outcome.STOPPED, 1)
    gate.set()
    talk.session = first
    assert (await talk.until_ended()).outcome == Run.Outcome.DONE
    assert await spent_by(talk.user) == EACH


async def test_an_answer_that_is_stopped_counts_what_came(talk: Talk, settings: Any) -> None:
    """Vendors report usage at the end; a user who stops before it would never use up a budget."""
    settings.REDIS_URL, settings.PARLEY_CHAT_TOKENS_PER_DAY = "", 50
    talk.scripted(["word " * 60, asyncio.Event()])
    await talk.begin("Write a long text.")
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    await asyncio.sleep(0.05)
    await talk.stop()
    assert (await talk.until_ended()).outcome == Run.Outcome.STOPPED
    assert await spent_by(talk.user) > 60
    with pytest.raises(OverAllowance):
        await talk.send("Again.")
    assert budgets.pools(budgets.Payer(talk.user.pk))["owner_day"].is_idle


async def test_a_refused_call_gives_back_what_it_reserved(talk: Talk, settings: Any) -> None:
    settings.REDIS_URL, settings.PARLEY_CHAT_TOKENS_PER_DAY = "", LIMIT
    await talk.agent(model="no/such-model")
    talk.scripted("Hello.")
    await talk.begin()
    await talk.until_ended()
    assert await spent_by(talk.user) == 0
    assert budgets.pools(budgets.Payer(talk.user.pk))["owner_day"].is_idle


async def test_a_summary_does_not_wait_for_the_call_that_was_too_long(talk: Talk, settings: Any) -> None:
    """The provider refuses a context as too long: its reservation is gone before the summary reserves."""
    settings.REDIS_URL, settings.PARLEY_CHAT_TOKENS_PER_DAY = "", 10_000
    too_long = error_of(AnswerFailed(message="too long", kind="context_length", status=400), provider="scripted")
    talk.scripted("One.", "Two.", [too_long], "A short summary of what was said.", "Three.", models=SMALL)
    await talk.begin("first " * 40)
    await talk.until_ended()
    await talk.send("second " * 40)
    await talk.until_ended()
    await talk.send("third")
    await talk.until_ended()
    assert budgets.pools(budgets.Payer(talk.user.pk))["owner_day"].is_idle


def test_every_process_of_the_machine_counts_for_the_parts_of_a_budget(settings: Any, tmp_path: Any) -> None:
    settings.PARLEY_DATA_DIR = tmp_path
    assert process_locks.count_living() == 1
    dead, living = process_locks.own_file.folder / "dead", process_locks.own_file.folder / "living"
    dead.touch()
    with living.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert process_locks.count_living() == 2
    assert process_locks.count_living() == 1
    process_locks.forget()
