"""How many SQL statements a question and an end of an answer may take, so that a chat turn stays cheap."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from django.db import connection

from relay.runtime import async_db
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import OpenPage, page as page

MOST_FOR_A_QUESTION = 55
MOST_FOR_AN_END = 40


@asynccontextmanager
async def statements() -> AsyncIterator[list[str]]:
    """The statements of all database threads, as they come."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    await asyncio.to_thread(_on_every_thread, lambda: connection.execute_wrappers.append(note))
    yield seen
    await asyncio.to_thread(_on_every_thread, lambda: connection.execute_wrappers.remove(note))


def _on_every_thread(work: Callable[[], None]) -> None:
    together = threading.Barrier(async_db.THREADS)

    def together_with_the_others() -> None:
        together.wait(10)
        work()

    for done in [async_db._submit(async_db._connection()(together_with_the_others)) for _ in range(async_db.THREADS)]:
        done.result(10)


async def test_a_question_and_an_end_take_few_statements(talk: Talk, page: OpenPage) -> None:
    gate = asyncio.Event()
    talk.scripted(["Hello", gate, " there."])
    async with statements() as seen:
        await page.send_json("send", text="What now?", after=0)
        await page.until("Hello")
        question = len(seen)
        gate.set()
        await page.until("The answer is finished")
        end = len(seen) - question
    assert 0 < question <= MOST_FOR_A_QUESTION, "\n".join(seen[:question])
    assert 0 < end <= MOST_FOR_AN_END, "\n".join(seen[question:])
