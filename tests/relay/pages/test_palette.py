"""The palette: what it offers, to whom."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from history.record import recorder
from tests.factories import create_chat

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


def offered(client: Client, words: str = "") -> list[str]:
    response = client.get("/palette/", {"q": words}, headers=HTMX)
    assert response.status_code == 200
    return re.findall(r'role="option"[^>]* href="([^"]*)"', response.content.decode())


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def test_without_words_it_offers_the_newest_sessions_and_every_page(reader: Client, ada: Any, bob: Any) -> None:
    old, new = create_chat(ada, "old"), create_chat(ada, "new")
    recorder.archive(create_chat(ada, "archived"), archived=True)
    create_chat(bob, "his")
    addresses = offered(reader)
    assert addresses[:2] == [f"/s/{new.pk}/", f"/s/{old.pk}/"]
    assert {"/", "/rail/", "/accounts/preferences/", "/accounts/password/"} <= set(addresses[2:])
    assert not any("/s/" in address for address in addresses[2:])
    assert "/admin/" not in addresses


def test_staff_are_offered_their_pages_too(client: Client, staff: Any) -> None:
    client.force_login(staff)
    assert {"/accounts/people/", "/providers/", "/mcp-servers/"} <= set(offered(client))
    assert "/admin/" not in offered(client), "nothing in it for staff without a permission"
    staff.user_permissions.add(*Permission.objects.filter(codename="view_session"))
    assert "/admin/" in offered(client)


@pytest.mark.parametrize("page", ["/", "/history/"])
def test_every_page_of_the_navigation_is_offered(client: Client, admin_user: Any, page: str) -> None:
    client.force_login(admin_user)
    html = client.get(page).text
    places = {
        address
        for element in re.findall(
            r'(?s)<nav id="main-nav".*?</nav>|<div class="sidebar-foot">.*|<div class="menu-items">.*?</div>', html
        )
        for address in re.findall(r'<a href="(/[a-z/-]*)"', element)
    }
    assert len(places) >= 9
    assert places <= set(offered(client))


def test_words_find_titles_messages_and_pages(reader: Client, ada: Any) -> None:
    titled = create_chat(ada, "hello", title="Preferred looms")
    told = create_chat(ada, "I prefer the old loom", title="Another thing")
    assert offered(reader, "pref") == [f"/s/{titled.pk}/", f"/s/{told.pk}/?at=1#m1", "/accounts/preferences/"]


def test_nothing_of_anybody_else_is_offered(client: Client, ada: Any, bob: Any) -> None:
    create_chat(ada, "my loom", title="My loom")
    client.force_login(bob)
    assert offered(client, "loom") == []


def test_who_is_not_signed_in_is_asked_to_and_who_has_no_script_searches_in_the_list(client: Client, ada: Any) -> None:
    assert client.get("/palette/", headers=HTMX).status_code == 302
    client.force_login(ada)
    assert client.get("/palette/", {"q": "a b"})["Location"] == "/rail/?q=a+b"
