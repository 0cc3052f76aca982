"""The page of a session that a program fills through the relay: whether it waits, and that an answer has come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history.access import keys
from history.models import ApiKey, Exchange, Session
from history.record import recorder
from project.accounts.models import User
from relay.live import groups, relayed_updates
from relay.runtime.async_db import in_database
from tests.factories import model_input, model_output, tool_request
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import OpenPage, open_page

WAITS = "The program waits for an answer."


def relayed(owner: User) -> Session:
    key = keys.create(name="laptop", owner=owner).api_key
    return recorder.start_session(owner=owner, source=Session.Source.RELAY, api_key=key)


def open_relayed_call(session: Session, text: str) -> Exchange:
    """As the digester files a call that has only begun: the journal is its sign of life, for a day."""
    after = Session.objects.get(pk=session.pk).head
    recorder.append(session, model_input(text), after=after)
    key = ApiKey.objects.get(sessions=session)
    in_a_day = timezone.now() + timedelta(days=1)
    return Exchange.objects.create(session=session, owner=key.owner, api_key=key, heartbeat_at=in_a_day)


def end(exchange: Exchange) -> None:
    Exchange.objects.filter(pk=exchange.pk).update(ended_at=timezone.now(), end_reason="done")


def answer(session: Session, exchange: Exchange, *entries: Any) -> None:
    recorder.append_many(session, entries, after=Session.objects.get(pk=session.pk).head)
    end(exchange)


@pytest.fixture
async def session(talk: Talk) -> Session:
    talk.session = await in_database(relayed, talk.user)
    return talk.session


async def opened(talk: Talk) -> OpenPage:
    page, is_open = await open_page(talk.user, talk.session)
    assert is_open
    await page.until('id="composer-after"')
    return page


@pytest.mark.any_database
async def test_a_page_tells_that_the_program_waits_and_once_that_an_answer_is_here(
    talk: Talk, session: Session, settings: Any
) -> None:
    settings.REDIS_URL = ""
    page = await opened(talk)
    exchange = await in_database(open_relayed_call, session, "What is a fjord?")
    await in_database(relayed_updates.refresh_open_sessions)
    came = await page.until(WAITS)
    assert "What is a fjord?" in came
    assert "A new answer arrived." not in came
    await in_database(
        answer, session, exchange, model_output("A drowned valley.", tool_request("c1")), model_output("Deep.")
    )
    await in_database(relayed_updates.refresh_open_sessions)
    came = await page.until("A new answer arrived.")
    assert "A drowned valley." in came
    assert came.count("A new answer arrived.") == 1
    assert WAITS not in came
    await in_database(relayed_updates.refresh_open_sessions)
    assert await page.nothing_more()
    await page.socket.disconnect(timeout=10)


@pytest.mark.any_database
async def test_a_call_in_the_same_second_as_a_change_of_this_process_is_on_the_page_too(
    talk: Talk, session: Session, settings: Any
) -> None:
    settings.REDIS_URL = ""
    page = await opened(talk)
    await in_database(relayed_updates.refresh_open_sessions)
    groups.notify_session(session.pk)  # it was renamed, for example
    await page.until('id="session-status"')
    await in_database(open_relayed_call, session, "What is a fjord?")
    await in_database(relayed_updates.refresh_open_sessions)
    await in_database(relayed_updates.refresh_open_sessions)
    assert "What is a fjord?" in await page.until(WAITS)
    await page.socket.disconnect(timeout=10)


@pytest.mark.any_database
async def test_a_call_that_leaves_no_answer_is_not_waited_for_any_more(
    talk: Talk, session: Session, settings: Any
) -> None:
    """Where only requests are kept, nothing but the call itself says that it has ended."""
    settings.REDIS_URL = ""
    exchange = await in_database(open_relayed_call, session, "What is a fjord?")
    page = await opened(talk)
    await in_database(relayed_updates.refresh_open_sessions)
    await page.until(WAITS)
    await in_database(end, exchange)
    await in_database(relayed_updates.refresh_open_sessions)
    assert WAITS not in await page.until('id="session-status"></span>')
    await page.socket.disconnect(timeout=10)


async def test_a_page_that_is_opened_meanwhile_says_so_from_the_start(talk: Talk, session: Session) -> None:
    exchange = await in_database(open_relayed_call, session, "What is a fjord?")
    assert WAITS in await in_database(page_of, talk.user, session)
    await in_database(end, exchange)
    assert WAITS not in await in_database(page_of, talk.user, session)


async def test_a_call_of_the_newest_answer_may_still_get_its_result(talk: Talk, session: Session) -> None:
    exchange = await in_database(open_relayed_call, session, "How full is the disk?")
    await in_database(answer, session, exchange, model_output("", tool_request("c1")))
    assert "no result yet" in await in_database(page_of, talk.user, session)
    await in_database(open_relayed_call, session, "Never mind.")
    html = await in_database(page_of, talk.user, session)
    assert "no result" in html
    assert "no result yet" not in html


def page_of(user: User, session: Session) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/s/{session.pk}/").content.decode()


@pytest.mark.django_db
def test_the_panel_says_under_which_key_it_was_recorded(client: Client, ada: User, bob: User) -> None:
    """The owner of the key has a link to its page; other readers see the name."""
    session = relayed(ada)
    recorder.append(session, model_input("Hello"), after=0)
    link = f'<a id="panel-key" href="/keys/{ApiKey.objects.get().prefix}/">laptop</a>'
    client.force_login(ada)
    assert link in client.get(f"/s/{session.pk}/").content.decode()
    bob.is_staff = bob.is_superuser = True
    bob.save()
    Session.objects.update(owner=bob)
    client.force_login(bob)
    html = client.get(f"/s/{session.pk}/").content.decode()
    assert "<dd>laptop</dd>" in html
    assert link not in html
