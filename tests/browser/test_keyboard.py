"""Keyboard and focus in a real browser: the text box keeps the focus, Esc stops, no letter costs money."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Scripted, enter, go_and_listen
from tests.browser.test_chat_live import begin, let_go, send_message
from tests.factories import create_chat

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("one_agent")]


def box(page: Page) -> Any:
    return page.locator("#composer-text")


def test_a_session_page_opens_in_the_text_box(signed_in: Page, ada: Any) -> None:
    session = create_chat(ada, "one row", "Yes.")
    for address in ("/", f"/s/{session.pk}/", f"/s/{session.pk}/?at=1#m1"):
        signed_in.goto(address)
        expect(box(signed_in)).to_be_focused()


def test_on_a_touch_screen_the_keyboard_stays_closed(browser: Browser, site: str, ada: Any) -> None:
    session = create_chat(ada, "one row", "Yes.")
    context = browser.new_context(base_url=site, has_touch=True, is_mobile=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    enter(page, site, ada)
    page.goto(f"/s/{session.pk}/")
    expect(page.locator("#composer-send")).to_be_visible()
    assert page.evaluate("document.activeElement === document.body")
    context.close()


def test_after_every_send_and_stop_the_focus_is_in_the_text_box(signed_in: Page, scripted: Scripted) -> None:
    page, gate = signed_in, asyncio.Event()
    scripted(["One."], ["Two."], [gate, "Three."], ["Four."])
    begin(page, "Is it blue?")
    expect(box(page)).to_be_focused()
    expect(page.locator("article.answer .prose").last).to_have_text("One.")
    box(page).fill("And now?")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("article.answer .prose").last).to_have_text("Two.")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    expect(box(page)).to_be_focused()
    send_message(page, "And then?")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#announcer")).to_have_text("The answer was stopped.")
    expect(box(page)).to_be_focused()
    page.locator("article.answer").last.hover()
    page.get_by_role("button", name="Regenerate").last.click()
    expect(page.locator("article.answer .prose").last).to_have_text("Four.")
    expect(box(page)).to_be_focused()


def test_letters_outside_the_text_box_neither_leave_nor_call_a_model(
    signed_in: Page, ada: Any, scripted: Scripted
) -> None:
    page = signed_in
    scripted(["Again."])
    session = create_chat(ada, "one row", "Yes.")
    go_and_listen(page, f"/s/{session.pk}/")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.type("no thanks, really")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(str(session.pk)))
    expect(page.locator("form.edit")).to_have_count(0)
    expect(page.get_by_text("1 of 2")).to_have_count(0)
    page.keyboard.press("Alt+r")
    expect(page.locator("article.answer .prose").last).to_have_text("Again.")
    page.keyboard.press("Alt+n")
    expect(page).to_have_url(re.compile(r"/$"))
    expect(page.get_by_role("heading", name="Hello, ada")).to_be_visible()


def test_escape_stops_the_answer_from_anywhere_but_closes_first(signed_in: Page, ada: Any, scripted: Scripted) -> None:
    page, gate = signed_in, asyncio.Event()
    scripted(["One ", gate, "two."])
    session = create_chat(ada, "one row", "Yes.")
    go_and_listen(page, f"/s/{session.pk}/")
    send_message(page, "Count.")
    expect(page.locator("#rows .live")).to_contain_text("One")
    expect(page).to_have_title(re.compile("^● "))
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Go to")
    expect(palette).to_be_visible()
    page.keyboard.press("Escape")
    expect(palette).to_be_hidden()
    page.locator(".talk-head summary").click()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Escape")
    expect(page.locator(".talk-head details.menu")).not_to_have_attribute("open", "")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    page.locator("#sidebar-words").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#announcer")).to_have_text("The answer was stopped.")
    expect(page).not_to_have_title(re.compile("^●"))
    expect(box(page)).to_be_focused()
    let_go(gate)


def test_the_palette_and_the_shortcuts_open_on_every_page(signed_in: Page) -> None:
    page = signed_in
    for where in ("/history/", "/keys/", "/import/", "/lint/", "/no-such-page/"):
        page.goto(where)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        page.keyboard.press("Control+k")
        page.keyboard.type("api k")
        expect(page.get_by_role("option", name="API keys")).to_be_visible()


def test_the_palette_and_the_shortcuts_open_in_the_admin(page: Page, site: str, admin_user: Any) -> None:
    enter(page, site, admin_user)
    page.goto("/admin/history/session/")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    expect(page.locator("#searchbar")).to_be_focused()
    page.keyboard.press("Control+/")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option", name="New chat")).to_be_visible()
    page.keyboard.type("api k")
    page.keyboard.press("Enter")  # before the list follows
    expect(page).to_have_url(re.compile("/keys/$"))


def test_a_slash_reaches_the_search_of_the_history(signed_in: Page) -> None:
    signed_in.goto("/history/")
    signed_in.keyboard.press("/")
    expect(signed_in.locator("#browse-words")).to_be_focused()


@pytest.mark.parametrize("look", [(390, "light")], indirect=True)
def test_on_a_phone_the_menu_shows_every_entry(page: Page, site: str, admin_user: Any) -> None:
    enter(page, site, admin_user)
    page.goto("/history/")
    page.get_by_role("button", name="Menu").click()
    entries = page.locator("#main-nav a")
    expect(entries).to_have_count(7)
    for place in range(7):
        expect(entries.nth(place)).to_be_in_viewport(ratio=1)
    entries.filter(has_text="Providers").click()
    expect(page).to_have_url(re.compile("/providers/$"))
