"""What all sockets have in common: what many want to know is asked once, and who goes leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest
from django.db import DatabaseError

from relay.consumers.base import run_once
from relay.live import groups
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import empty_session, open_page


class SlowQuery:
    """A question that takes a moment, and how often it was put."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times, self.error = 0, error

    async def __call__(self) -> int:
        self.times += 1
        await asyncio.sleep(0.01)
        if self.error:
            raise self.error
        return self.times


async def test_many_who_want_to_know_the_same_ask_once() -> None:
    ask = SlowQuery()
    assert await asyncio.gather(*(run_once("many", ask) for _ in range(10))) == [1] * 10
    assert await run_once("many", ask) == 1
    assert await run_once("another", ask) == 2


async def test_a_failed_question_fails_for_all_and_the_next_message_asks_again() -> None:
    ask = SlowQuery(DatabaseError("away"))
    told = await asyncio.gather(*(run_once("fails", ask) for _ in range(3)), return_exceptions=True)
    assert (ask.times, {type(one) for one in told}) == (1, {DatabaseError})
    ask.error = None
    assert await run_once("fails later", ask) == 2


async def test_who_goes_while_a_question_is_put_takes_nothing_from_the_others() -> None:
    ask = SlowQuery()
    first, second = (asyncio.ensure_future(run_once("going", ask)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_nothing_is_left_of_pages_that_were_closed(talk: Talk) -> None:
    talk.session = await in_database(empty_session, talk.user)
    pages = [(await open_page(talk.user, talk.session))[0] for _ in range(3)]
    for page in pages:
        await page.until('id="composer-after"')
    assert groups.count_local_sockets(talk.session.pk) == 3
    for page in pages:
        await page.socket.disconnect(timeout=10)
    assert groups.count_local_sockets(talk.session.pk) == 0
    assert talk.session.pk not in groups.local_sessions()
