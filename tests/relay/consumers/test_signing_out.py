"""A page that stays open after its sign-in has ended is closed, and shows nothing more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as live_settings
from django.contrib.sessions.models import Session as SignInRow
from django.test import Client

from history.models import Exchange
from project.accounts.models import User
from relay.live import groups, sign_outs
from relay.routing import sockets
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import OpenPage, empty_session

CLOSED = {"type": "websocket.close", "code": 4401}


def browser_of(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


class Browser:
    """A browser that is signed in, with a session of its person open."""

    def __init__(self, client: Client, page: OpenPage) -> None:
        self.client, self.page = client, page

    @classmethod
    async def of(cls, user: User) -> Browser:
        client, session = await in_database(browser_of, user), await in_database(empty_session, user)
        name = live_settings.SESSION_COOKIE_NAME
        cookie = f"{name}={client.cookies[name].value}".encode()
        headers = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"cookie", cookie)]
        socket = WebsocketCommunicator(sockets, f"/ws/s/{session.pk}/", headers=headers)
        assert (await socket.connect(timeout=10))[0]
        page = OpenPage(socket)
        await page.until('id="composer-after"')
        return cls(client, page)

    @property
    def key(self) -> str:
        return self.client.cookies[live_settings.SESSION_COOKIE_NAME].value

    async def is_closed(self) -> bool:
        return bool(await self.page.socket.receive_output(timeout=10) == CLOSED)

    async def goes_on(self) -> bool:
        await self.page.send_json("ping")
        return bool(await self.page.until('id="pong"'))


@pytest.fixture
async def here(talk: Talk) -> AsyncIterator[Browser]:
    browser = await Browser.of(talk.user)
    yield browser
    await browser.page.socket.disconnect(timeout=10)


@pytest.fixture
async def elsewhere(talk: Talk, bob: User) -> AsyncIterator[Browser]:
    browser = await Browser.of(bob)
    yield browser
    await browser.page.socket.disconnect(timeout=10)


async def test_signing_out_closes_the_pages_of_that_browser_at_once_and_of_no_other(talk: Talk, here: Browser) -> None:
    at_home = await Browser.of(talk.user)
    await in_database(here.client.post, "/accounts/signout/")
    assert await here.is_closed()
    assert await at_home.goes_on()
    await at_home.page.socket.disconnect(timeout=10)


def removed(browser: Browser, user: User) -> None:
    """As by another process that we do not hear."""
    SignInRow.objects.filter(session_key=browser.key).delete()


def over(browser: Browser, user: User) -> None:
    row = SignInRow.objects.get(session_key=browser.key)
    SignInRow.objects.filter(pk=row.pk).update(expire_date=user.date_joined)


def shut_out(browser: Browser, user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def given_another_password(browser: Browser, user: User) -> None:
    user.set_password("another")
    user.save()


ENDS: list[Callable[[Browser, User], None]] = [removed, over, shut_out, given_another_password]


@pytest.mark.parametrize("end", ENDS)
async def test_a_sign_in_that_has_ended_without_a_word_is_found_by_looking(
    talk: Talk, here: Browser, elsewhere: Browser, end: Callable[[Browser, User], None]
) -> None:
    await in_database(sign_outs.notify_ended_sign_ins)
    assert await here.goes_on()
    await in_database(end, here, talk.user)
    await in_database(sign_outs.notify_ended_sign_ins)
    assert await here.is_closed()
    assert await elsewhere.goes_on()


@pytest.mark.parametrize("end", ENDS)
async def test_who_is_not_signed_in_any_more_has_no_say_even_before_anybody_has_looked(
    talk: Talk, here: Browser, end: Callable[[Browser, User], None]
) -> None:
    talk.scripted("never")
    await in_database(end, here, talk.user)
    await here.page.send_json("send", text="Still here?", after=0)
    assert await here.is_closed()
    assert await in_database(Exchange.objects.count) == 0


async def test_a_page_that_was_closed_is_told_nothing_more(talk: Talk, here: Browser) -> None:
    await in_database(here.client.post, "/accounts/signout/")
    assert await here.is_closed()
    groups.send_to_user(talk.user.pk, {"type": "sidebar.changed", "session": "…"})
    assert await here.page.nothing_more()
    assert not sign_outs.local_users()


@pytest.mark.django_db
def test_without_open_pages_no_session_is_looked_up(django_assert_num_queries: Callable[[int], object]) -> None:
    with django_assert_num_queries(0):  # type: ignore[attr-defined]
        sign_outs.notify_ended_sign_ins()
