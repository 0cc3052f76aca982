"""Pages with very long names and titles in every direction: nothing overflows, nothing overlaps, axe finds nothing."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from history.access import keys
from history.models import Session
from history.sessions import actions
from project.accounts.models import User
from project.accounts.roles import Role, give_role
from tests.browser.conftest import LOOKS, enter, judge, wear
from tests.factories import create_chat

pytestmark = pytest.mark.browser

TITLES = ("x" * 200, "مرحبا بالعالم " * 14, "👩‍👩‍👧‍👦🔥" * 20, "会话标题" * 50, "a/very/long/path/" * 12)


@pytest.fixture
def long_names(ada: User) -> Session:
    """Names and titles as long as their columns."""
    for title in TITLES:
        actions.delete(create_chat(ada, "one", "two", title=title), by=ada)
    shown = [create_chat(ada, "one", "two", title=title, model="m" * 90, agent="a" * 40) for title in TITLES]
    User.objects.filter(pk=ada.pk).update(username="a" * 150, first_name="Wolfe" * 30, last_name="مرحبا" * 30)
    ada.refresh_from_db()
    keys.create(name="k" * 100, owner=ada)
    return shown[0]


def test_long_names_overflow_no_page(page: Page, site: str, ada: User, long_names: Session) -> None:
    User.objects.filter(pk=ada.pk).update(language="zh-hans")
    give_role(ada, Role.ADMINISTRATOR)
    enter(page, site, ada)
    session = f"/s/{long_names.pk}/"
    addresses = {
        "deleted": "/history/deleted/",
        "people": "/accounts/people/",
        "help": "/help/",
        "help-page": "/help/websocket/",
        "export": f"/history/export/?session={long_names.pk}",
        "share": f"{session}share/",
        "not-found": "/nothing/",
        "keys": "/keys/",
        "history": "/history/",
    }
    for name, address in addresses.items():
        for look in (LOOKS[0], LOOKS[-1]):
            wear(page, look)
            page.goto(address)
            judge(page, f"{name}-{look[0]}")
    for row in page.locator(".hit").all():
        assert row.evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0


def test_people_with_long_names_keep_their_buttons_readable(page: Page, site: str, ada: User, staff: Any) -> None:
    User.objects.filter(pk=ada.pk).update(username="a" * 150, first_name="Ada")
    give_role(staff, Role.AUDITOR)
    enter(page, site, staff)
    page.goto("/accounts/people/")
    expect(page.locator(".badge", has_text="auditor")).to_be_visible()
    name, button = page.get_by_text("a" * 150).first.bounding_box(), page.locator(".row form").first.bounding_box()
    assert name
    assert button
    assert name["x"] + name["width"] <= button["x"]


def test_the_list_of_keys_fills_its_column(page: Page, site: str, ada: User) -> None:
    keys.create(name="laptop", owner=ada)
    enter(page, site, ada)
    page.goto("/keys/")
    column, rows = page.locator("#key-list").bounding_box(), page.locator("#key-list > .rows").bounding_box()
    assert column
    assert rows
    assert rows["width"] == pytest.approx(column["width"], abs=1)
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()


def test_the_admin_shows_all_columns_with_long_names(page: Page, site: str, ada: User, long_names: Session) -> None:
    give_role(ada, Role.ADMINISTRATOR)
    enter(page, site, ada)
    page.goto("/admin/history/session/")
    results = page.locator("#changelist .results")
    expect(results).to_be_visible()
    assert results.evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0
