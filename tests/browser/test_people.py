"""From the one-time link to the way out, in a real browser: two widths, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.fixtures import Settings

from history.entries import ModelInput, Text
from history.record import recorder
from project.accounts.links import create_link
from project.accounts.models import User
from tests.browser.conftest import enter, is_narrow

pytestmark = pytest.mark.browser
See = Callable[[str], None]


def open_sidebar(page: Page) -> None:
    """On a narrow screen the sidebar is a sheet that a button opens."""
    if is_narrow(page):
        page.get_by_role("button", name="Sessions").click()


def open_menu_and_choose(page: Page, role: str, name: str) -> None:
    page.locator(".menu > summary").click()
    page.get_by_role(role, name=name).click()  # type: ignore[arg-type]


def sign_in_by_link(page: Page, user: User) -> None:
    page.goto(create_link(user))
    page.get_by_role("button", name="Sign in").click()
    # Both pages greet; only the second has something to write in.
    expect(page.get_by_label("Message", exact=True)).to_be_visible()


def test_in_by_link_to_preferences_and_out(page: Page, see: See, staff: User) -> None:
    link = create_link(staff)
    page.goto(link)
    expect(page.get_by_role("heading", name="Hello, grace")).to_be_visible()
    see("link")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    see("home-empty")
    open_sidebar(page)
    expect(page.get_by_text("No chats yet")).to_be_visible()

    open_menu_and_choose(page, "link", "Preferences")
    see("preferences")
    page.get_by_label("Dark").check()
    page.get_by_label("简体中文").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("偏好设置已保存。")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    see("preferences-chinese-other-theme")

    open_menu_and_choose(page, "button", "退出登录")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    see("signin")
    page.goto(link)
    expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    see("link-spent")


def test_a_wrong_password_is_told_beside_the_form(page: Page, see: See, ada: User) -> None:
    page.goto("/")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("guessed")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Please enter a correct username and password")).to_be_visible()
    see("signin-wrong")
    page.get_by_label("Password").fill("analytical engine")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Hello, ada")).to_be_visible()


def test_conversations_are_listed_at_home(page: Page, site: str, see: See, ada: User) -> None:
    for source, client, text in (
        ("chat", "", "Why is the build server slow?"),
        (
            "relay",
            "Claude Code",
            "Refactor the payment retry loop so that a client that gave up is not charged twice, please",
        ),
        ("relay", "", "Classify 240 support mails"),
        ("chat", "", "季度报告的要点整理"),
        ("import", "", "Trip to Hangzhou"),
    ):
        session = recorder.start_session(owner=ada, source=source, client=client)
        recorder.append(session, ModelInput(parts=(Text(text=text),), at=timezone.now()), after=0)
    enter(page, site, ada)
    page.goto("/")
    open_sidebar(page)
    expect(page.get_by_text("Claude Code", exact=True)).to_be_visible()
    see("home")


def test_staff_add_a_user(page: Page, site: str, see: See, staff: User, ada: User) -> None:
    enter(page, site, staff)
    page.goto("/")
    open_sidebar(page)
    page.get_by_role("link", name="People").click()
    page.get_by_label("Username").fill("kay")
    page.get_by_label("First name").fill("Kay")
    page.get_by_role("button", name=re.compile("^Create")).click()
    address = page.get_by_label("One-time link").first
    expect(address).to_be_visible()
    see("people")
    link = address.input_value()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == link
    page.context.clear_cookies()
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Choose a password")).to_be_visible()
    see("password")


def test_a_missing_page_and_history_that_is_off(page: Page, site: str, see: See, ada: User, settings: Settings) -> None:
    settings.CHAT_HISTORY_ENABLED = False
    enter(page, site, ada)
    page.goto("/")
    expect(page.get_by_text("History is off")).to_be_visible()
    see("home-history-off")
    page.goto("/nowhere/")
    expect(page.get_by_role("heading", name="This page does not exist")).to_be_visible()
    see("missing")


def test_the_keyboard_reaches_the_content_first(page: Page, ada: User) -> None:
    sign_in_by_link(page, ada)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()  # a chat is for writing
    page.goto("/history/")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_the_admin_is_one_press_away(page: Page, site: str, admin_user: User) -> None:
    enter(page, site, admin_user)
    page.goto("/")
    page.get_by_role("link", name="Admin", exact=True).click()
    expect(page.get_by_role("link", name="Users")).to_be_visible()


def test_pages_work_without_javascript(plain: Page, ada: User) -> None:
    plain.goto(create_link(ada))
    plain.get_by_role("button", name="Sign in").click()
    plain.locator(".menu > summary").click()
    plain.get_by_role("link", name="Preferences").click()
    plain.get_by_label("Dark").check()
    plain.get_by_role("button", name="Save").click()
    expect(plain.locator("html")).to_have_attribute("data-theme", "dark")
