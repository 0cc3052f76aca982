"""Jobs of an earlier request go first: questions are answered in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from history.context.values import Context
from history.dialects import CallOptions
from history.models import Message
from relay import conversation
from relay.runtime import async_db
from relay.runtime.async_db import URGENT, admitted, end_admission, in_database
from tests.relay.conftest import Talk


class SteppedPool:
    """The pool of database threads, which does the next job only when it is told to."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    async def step(self) -> None:
        """Do one job, and let the event loop go on until it has nothing left to do."""
        done: Future[None] = self.pool.submit(self.waiting.pop())
        await asyncio.wrap_future(done)
        for _ in range(50):
            await asyncio.sleep(0)

    async def count(self, count: Callable[[], int]) -> int:
        return await asyncio.wrap_future(self.pool.submit(count))


@asynccontextmanager
async def stepped(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SteppedPool]:
    pool = SteppedPool(async_db._pool)
    with monkeypatch.context() as patched:
        patched.setattr(async_db, "_pool", pool)
        yield pool
        while pool.waiting:
            await pool.step()


async def test_jobs_wait_in_the_order_of_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def request(name: str, *, urgent: bool = False) -> None:
        with admitted(URGENT if urgent else None):
            for number in range(3):
                await in_database(done.append, f"{name}{number}")

    async with stepped(monkeypatch) as pool:
        tasks = [asyncio.create_task(request(name)) for name in ("a", "b")]
        for _ in range(2):
            await asyncio.sleep(0)
        await pool.step()
        tasks.append(asyncio.create_task(request("stop", urgent=True)))
        for _ in range(2):
            await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            await pool.step()
    assert done == ["a0", "stop0", "stop1", "stop2", "a1", "a2", "b0", "b1", "b2"]


async def test_a_request_that_waits_for_something_else_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, done = asyncio.Event(), list[str]()

    async def wait_for_budget() -> None:
        with admitted():
            await in_database(done.append, "first")
            await budget.wait()
            await in_database(done.append, "first again")

    async def ask() -> None:
        with admitted():
            await in_database(done.append, "second")
            await in_database(done.append, "second again")

    async with stepped(monkeypatch) as pool:
        tasks = [asyncio.create_task(wait_for_budget()), asyncio.create_task(ask())]
        await asyncio.sleep(0)
        for _ in range(3):
            await pool.step()
        assert done == ["first", "second", "second again"]
        budget.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await pool.step()
        await asyncio.gather(*tasks)
    assert done[-1] == "first again"


async def test_a_run_that_has_called_its_model_waits_behind_later_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def run() -> None:
        await in_database(done.append, "run")
        end_admission()
        await in_database(done.append, "run, later")

    async def ask() -> None:
        with admitted():
            await in_database(done.append, "question")
            await in_database(done.append, "question, later")

    async with stepped(monkeypatch) as pool:
        with admitted():
            tasks = [asyncio.create_task(run())]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(ask()))
        await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            await pool.step()
    assert done == ["run", "question", "question, later", "run, later"]


async def test_a_later_question_does_not_delay_the_first_token_of_an_earlier_one(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is called for each question before the next one is even stored."""
    called: list[str] = []
    stored_then: list[int] = []

    def answer(context: Context, options: CallOptions) -> str:
        called.append(context.entries[-1].content)
        return "Yes."

    talk.scripted(answer)

    def count() -> int:
        return Message.objects.filter(kind="model_input").count()

    await in_database(count)
    async with stepped(monkeypatch) as pool:
        questions = ["one", "two", "three"]
        drafts = [conversation.MessageDraft(text=text) for text in questions]
        tasks = [asyncio.create_task(conversation.start_session(talk.user, draft)) for draft in drafts]
        await asyncio.sleep(0)
        while len(called) < len(questions):
            await pool.step()
            stored_then += [await pool.count(count)] * (len(called) - len(stored_then))
        sessions = await asyncio.gather(*tasks)
    assert called == questions
    assert stored_then == [1, 2, 3]
    for session in sessions:
        talk.session = session
        await talk.until_ended()
