"""What chat products were seen to get wrong: tool rounds that are forgotten, and chats that grow slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test.utils import CaptureQueriesContext

from history.dialects import DIALECTS
from history.models import Session
from project.accounts.models import User
from relay import conversation
from relay.live import run_task
from relay.models import Run
from relay.pages.chat import fragments
from relay.providers.base import Model
from relay.providers.registry import Router
from relay.runtime.async_db import in_database
from relay.runtime.locale import ViewerLocale
from tests.factories import create_chat
from tests.relay.conftest import Talk
from tests.servers.databases import close_connections
from tests.vendors import Vendors, asks, says
from tests.vendors.setup import NAMES

pytestmark = pytest.mark.runs_first

# Three rounds of tools in each vendor's own form.
CALLS: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "openai-chat": lambda body: [call for one in body["messages"] for call in one.get("tool_calls", ())],
    "openai-responses": lambda body: [item for item in body["input"] if item.get("type") == "function_call"],
    "anthropic-messages": lambda body: _blocks(body, "tool_use"),
    "gemini-generate": lambda body: _parts(body, "functionCall"),
}
RESULTS: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "openai-chat": lambda body: [one for one in body["messages"] if one["role"] == "tool"],
    "openai-responses": lambda body: [item for item in body["input"] if item.get("type") == "function_call_output"],
    "anthropic-messages": lambda body: _blocks(body, "tool_result"),
    "gemini-generate": lambda body: _parts(body, "functionResponse"),
}


def _blocks(body: dict[str, Any], kind: str) -> list[Any]:
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return [block for content in contents for block in content if block["type"] == kind]


def _parts(body: dict[str, Any], kind: str) -> list[Any]:
    return [part for content in body["contents"] for part in content["parts"] if kind in part]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_three_rounds_of_tools_are_sent_back_in_the_native_format(
    talk: Talk, vendors: Vendors, providers: Router, dialect: str
) -> None:
    await talk.agent(tools=["current_time"], model=f"{NAMES.get(dialect, dialect)}/model")
    rounds = [asks((f"c{n}", "current_time", "{}"), text=f"Round {n}.") for n in (1, 2, 3)]
    vendors.plays(dialect, *rounds, says("It is ", "late."), says("Still late."))
    await talk.begin("How late is it?")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    spoken = [text for role, text in await talk.texts() if role == "assistant"]
    assert spoken == ["Round 1.", "Round 2.", "Round 3.", "It is late."]
    await talk.send("And now?")
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", "Still late.")
    assert [seen.problem for seen in vendors.requests] == [None] * 5
    body = vendors.requests[-1].body
    assert (len(CALLS[dialect](body)), len(RESULTS[dialect](body))) == (3, 3)
    told = str(body)
    assert all(f"Round {n}." in told for n in (1, 2, 3))
    assert [told.index(text) for text in spoken] == sorted(told.index(text) for text in spoken)


class Counted:
    """Queries of all connections and threads."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.queries.append(sql)
        return execute(sql, params, many, context)


@contextmanager
def counting_queries() -> Iterator[Counted]:
    counted = Counted()

    def watch(sender: Any, connection: BaseDatabaseWrapper, **more: Any) -> None:
        watched.append(connection)
        connection.execute_wrappers.append(counted)

    watched: list[BaseDatabaseWrapper] = []
    close_connections()
    connection_created.connect(watch)
    try:
        yield counted
    finally:
        connection_created.disconnect(watch)
        close_connections()
        for one in watched:
            one.execute_wrappers.remove(counted)


async def queries_of_a_turn(talk: Talk, session: Session) -> int:
    talk.session = session
    await talk.send("warm")
    await expect_no_answer()
    with counting_queries() as counted:
        await talk.send("And now?")
        await expect_no_answer()
    return len(counted.queries)


async def expect_no_answer() -> None:
    while run_task.local_tasks:  # noqa: ASYNC110 - asking the database would be counted
        await asyncio.sleep(0.01)


def long_chat(user: User, length: int) -> Session:
    return create_chat(user, *(f"message {number:04} " + "of many words " * 20 for number in range(length)))


def queries_of_catching_up(session: Session, user: User) -> int:
    with CaptureQueriesContext(connection) as counted:
        fragments.catch_up(
            fragments.View(session_id=session.pk, user=user, reader=ViewerLocale("en"), shown=session.head)
        )
    return len(counted)


@pytest.mark.parametrize(("window", "length"), [(512, 10), (8_192, 200)])
async def test_queries_of_sending_do_not_grow_with_the_chat(talk: Talk, window: int, length: int) -> None:
    provider = talk.scripted("An answer.", models=[Model(name="script", window=window)])
    short, long = [await in_database(long_chat, talk.user, each) for each in (length, 5_000)]
    among_few = await queries_of_a_turn(talk, short)
    # Where the window is filled by one text more or less, one page more or less is read.
    assert await queries_of_a_turn(talk, long) <= among_few + 2
    answered = [made.context for made in provider.calls if "<record>" not in made.context.system]
    told = [len(context.entries) for context in answered]
    assert told[1] == told[3] > 1


async def test_a_page_of_a_chat_of_5000_messages_is_brought_up_to_date_by_as_many_queries(talk: Talk) -> None:
    short, long = [await in_database(long_chat, talk.user, length) for length in (10, 5_000)]
    sent = conversation.MessageDraft(text="/current_time")
    for session in (short, long):
        await conversation.send(talk.user, session, sent, conversation.ViewerPosition(after=session.head))
    few, many = [await in_database(queries_of_catching_up, session, talk.user) for session in (short, long)]
    assert few == many > 0
