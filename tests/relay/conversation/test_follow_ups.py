"""A follow-up continues what its writer saw, also when the answer ended while the message was on its way."""

from __future__ import annotations

import asyncio
import re
from uuid import UUID

import pytest
from django.test import AsyncClient

from history.models import Exchange, Message, Session
from relay import conversation
from relay.models import Run
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import OpenPage, open_page


async def shown_in(page: OpenPage) -> dict[str, str]:
    """What the composer of the page posts, as the page last got it."""
    found = {}
    for name in ("after", "run", "version"):
        values = re.findall(rf'id="composer-{name}" name="{name}" value="([^"]*)"', page.html)
        found[name] = values[-1] if values else ""
    return found


async def begin_and_show(talk: Talk, gate: asyncio.Event, *more: str) -> tuple[OpenPage, dict[str, str]]:
    """A page that shows the first answer while it is written; the answer ends when the gate opens."""
    talk.scripted(["First", gate], *more)
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    page, _ = await open_page(talk.user, talk.session)
    await page.until("First")
    return page, await shown_in(page)


async def test_a_message_on_its_way_while_the_answer_ends_continues_it(talk: Talk) -> None:
    gate = asyncio.Event()
    page, shown = await begin_and_show(talk, gate, "Second")
    gate.set()
    await talk.until_ended()
    await page.send_json("send", text="two", **shown)  # what it showed before the answer ended
    await talk.until(lambda: Message.objects.filter(content="Second").exists())
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second"]
    await page.socket.disconnect(timeout=10)


async def test_a_posted_form_of_a_stale_page_continues_the_answer(talk: Talk) -> None:
    gate = asyncio.Event()
    page, shown = await begin_and_show(talk, gate, "Second")
    gate.set()
    await talk.until_ended()
    client = AsyncClient()
    await client.aforce_login(talk.user)
    response = await client.post(talk.session.get_absolute_url(), {"text": "two", **shown})
    assert response.status_code == 302
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second"]
    await page.socket.disconnect(timeout=10)


@pytest.mark.parametrize("is_run_named", [True, False])
async def test_a_stale_after_resolves_to_the_end_of_its_run(talk: Talk, is_run_named: bool) -> None:
    talk.scripted("First", "Second")
    await talk.begin("one")
    run = await talk.until_ended()
    asked = run.origin
    sent = await talk.send("two", after=asked, run=run.pk if is_run_named else None)
    await talk.until_ended()
    assert not sent.is_branch
    assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second"]


async def test_a_follow_up_to_a_regenerated_answer_continues_the_new_one(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted("First", ["Better", gate], "Second")
    await talk.begin("one")
    run = await talk.until_ended()
    await conversation.regenerate(talk.user, talk.session, seq=run.leaf)
    page, _ = await open_page(talk.user, talk.session)
    await page.until("Better")
    shown = await shown_in(page)
    gate.set()
    await talk.until_ended()
    await page.send_json("send", text="two", **shown)
    await talk.until(lambda: Message.objects.filter(content="Second").exists())
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "Better", "two", "Second"]
    await page.socket.disconnect(timeout=10)


async def test_a_follow_up_on_a_branch_continues_that_branch(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted("First", "Better", ["Branch", gate], "End of branch")
    await talk.begin("one")
    first = (await talk.until_ended()).leaf
    await conversation.regenerate(talk.user, talk.session, seq=first)
    await talk.until_ended()
    page, _ = await open_page(talk.user, talk.session, query=f"?shown={first}&leaf={first}")
    await page.until("composer-after")
    await page.send_json("send", text="there", leaf=str(first), **await shown_in(page))
    await page.until("Branch")
    shown = await shown_in(page)
    gate.set()
    await talk.until_ended()
    await page.send_json("send", text="further", leaf=str(first), **shown)
    await talk.until(lambda: Message.objects.filter(content="End of branch").exists())
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "First", "there", "Branch", "further", "End of branch"]
    await page.socket.disconnect(timeout=10)


async def test_two_tabs_that_saw_the_same_answer_both_continue_it(talk: Talk) -> None:
    gate = asyncio.Event()
    page, shown = await begin_and_show(talk, gate, "Second", "Third")
    other, _ = await open_page(talk.user, talk.session)
    await other.until("First")
    same = await shown_in(other)
    gate.set()
    first = await talk.until_ended()
    await page.send_json("send", text="two", **shown)
    await talk.until(lambda: Message.objects.filter(content="Second").exists())
    await talk.until_ended()
    await other.send_json("send", text="three", **same)
    await talk.until(lambda: Message.objects.filter(content="Third").exists())
    await talk.until_ended()
    parents = dict(await in_database(lambda: list(Message.objects.values_list("content", "parent_seq"))))
    assert parents["two"] == parents["three"] == first.leaf
    for tab in (page, other):
        await tab.socket.disconnect(timeout=10)


async def test_a_message_behind_one_that_waited_is_sent_after_it(talk: Talk) -> None:
    gate, later = asyncio.Event(), asyncio.Event()
    page, shown = await begin_and_show(talk, gate)
    talk.scripted(["Second", later], "Third")
    await page.send_json("send", text="two", **shown)
    await page.until("Waiting to be sent")
    gate.set()
    await talk.until(lambda: Run.objects.count() == 2)
    await page.send_json("send", text="three", **shown)  # the page still shows the first answer, and “two” in the queue
    later.set()
    await talk.until(lambda: Message.objects.filter(content="Third").exists())
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second", "three", "Third"]
    await page.socket.disconnect(timeout=10)


async def test_two_messages_in_one_breath_are_one_conversation(talk: Talk) -> None:
    talk.scripted("First", "Second", "Third")
    await talk.begin("one")
    await talk.until_ended()
    page, _ = await open_page(talk.user, talk.session)
    await page.until("composer-after")
    shown = await shown_in(page)
    await page.send_json("send", text="two", **shown)
    await page.send_json("send", text="three", **shown)
    await talk.until(lambda: Message.objects.filter(content="Third").exists())
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second", "three", "Third"]
    await page.socket.disconnect(timeout=10)


async def test_after_going_back_a_message_continues_where_one_went_back_to(talk: Talk) -> None:
    talk.scripted("First", "Second", "Third")
    await talk.begin("one")
    run = await talk.until_ended()
    await conversation.rollback(talk.user, talk.session, to=run.origin)
    assert await in_database(lambda: Session.objects.get(pk=talk.session.pk).head) == run.origin
    await talk.send("two", after=run.origin)
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["one", "two", "Second"]


async def test_a_run_of_another_session_is_ignored(talk: Talk) -> None:
    talk.scripted("First", "Other", "Second")
    await talk.begin("one")
    await talk.until_ended()
    mine, seen = talk.session, await talk.head()
    await talk.begin("elsewhere")
    foreign: UUID = (await talk.until_ended()).pk
    talk.session = mine
    sent = await talk.send("two", after=seen, run=foreign)
    await talk.until_ended()
    assert not sent.is_branch
    assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second"]
