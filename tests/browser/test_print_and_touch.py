"""Pages on paper, the admin's lists and buttons, and targets for fingers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from history.models import Session
from project.accounts.models import User
from relay.models import Allowance
from tests.browser.conftest import Look, enter, judge, wear
from tests.factories import create_chat

pytestmark = pytest.mark.browser
FINGER = 36


@pytest.fixture
def long_session(ada: Any) -> Session:
    turns = [text for number in range(16) for text in (f"Question {number}", f"Answer {number}")]
    return create_chat(ada, *turns, title="A long conversation about the loom and everything that was woven on it")


def test_a_printed_conversation_says_what_is_missing_and_who_wrote(page: Page, site: str, ada: Any) -> None:
    turns = [text for number in range(60) for text in (f"Question {number}", f"Answer {number}")]
    session = create_chat(ada, *turns)
    enter(page, site, ada)
    page.emulate_media(media="print")
    page.goto(f"/s/{session.pk}/")
    expect(page.get_by_text("Only a part of this conversation is printed.").first).to_be_visible()
    heading = page.locator(".entry.you > h2").last
    box = heading.bounding_box()
    assert box is not None
    assert box["height"] > 8
    expect(page.locator("#composer-text")).to_be_hidden()


def test_a_conversation_of_16_turns_is_printed_whole_or_says_that_it_is_not(
    page: Page, site: str, ada: Any, long_session: Session
) -> None:
    enter(page, site, ada)
    page.goto(f"/s/{long_session.pk}/")
    page.wait_for_load_state("networkidle")
    page.emulate_media(media="print")
    # At one moment: what is scrolled to loads what is older.
    text = page.evaluate("document.body.innerText")
    printed = sum(f"Question {number}\n" in text for number in range(16))
    assert printed == 16 or "Only a part of this conversation is printed." in text


def test_long_code_is_printed_whole_and_dark_on_paper(page: Page, site: str, ada: User) -> None:
    User.objects.filter(pk=ada.pk).update(theme="dark")
    session = create_chat(ada, "Show it", f"```python\nprint('{'x' * 400}')\n" + "line\n" * 60 + "```")
    enter(page, site, ada)
    page.emulate_media(media="print")
    page.goto(f"/s/{session.pk}/")
    code = page.locator(".entry pre").first
    hidden = "(e) => [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight]"
    assert code.evaluate(hidden) == [0, 0]
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert max(int(part) for part in re.findall(r"\d+", ink)) < 100, ink


def test_the_history_is_printed_without_its_controls(page: Page, site: str, ada: Any, long_session: Session) -> None:
    enter(page, site, ada)
    page.emulate_media(media="print")
    page.goto("/history/")
    expect(page.get_by_text(long_session.title)).to_be_visible()
    for control in (".bar", ".browse-form", ".found-tabs", ".pick", ".many"):
        expect(page.locator(control).first).to_be_hidden()


def test_the_admin_shows_all_columns_of_sessions_at_1280(
    page: Page, site: str, admin_user: Any, long_session: Session
) -> None:
    Session.objects.update(model="anthropic/claude-sonnet-4-5-20250929", client="Claude Code", hold=True)
    enter(page, site, admin_user)
    page.goto("/admin/history/session/")
    last = page.locator("#result_list thead th").last
    box = last.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= page.locator("#changelist .results").evaluate(
        "(e) => e.getBoundingClientRect().right"
    )
    overflow = page.locator("#changelist .results").evaluate("(e) => e.scrollWidth - e.clientWidth")
    assert overflow <= 0
    title = page.locator("#result_list .column-shown_title").bounding_box()
    assert title is not None
    assert title["width"] >= 180, "the title is what people look for"


@pytest.mark.parametrize("look", [(1280, "light"), (1280, "dark")], indirect=True)
def test_buttons_of_the_admin_can_be_read(page: Page, site: str, look: Look, admin_user: Any) -> None:
    allowance = Allowance.objects.create(user=admin_user)
    enter(page, site, admin_user)
    # Axe adds styles that the content security policy refuses: the console of this page is not watched.
    admin = page.context.new_page()
    wear(admin, look)
    admin.goto(f"/admin/relay/allowance/{allowance.pk}/change/")
    expect(admin.get_by_role("link", name="Delete")).to_be_visible()
    judge(admin, f"admin-allowance-{look[1]}")


def test_buttons_are_large_enough_for_fingers(browser: Browser, site: str, ada: Any, long_session: Session) -> None:
    context = browser.new_context(base_url=site, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    enter(page, site, ada)
    small: dict[str, list[Any]] = {}
    for address in (f"/s/{long_session.pk}/", "/history/", "/keys/", "/"):
        page.goto(address)
        small[address] = page.evaluate(
            """(least) => [...document.querySelectorAll("button, .button, nav a, summary, [role=button]")]
                .map((element) => [element.className || element.textContent.trim(), element.getBoundingClientRect()])
                .filter(([, box]) => box.width && box.height && box.height < least)
                .map(([name, box]) => [name, Math.round(box.width), Math.round(box.height)])""",
            FINGER,
        )
    context.close()
    assert not any(small.values()), small
