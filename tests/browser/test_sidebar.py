"""The list of sessions in a browser: found, pinned, renamed, deleted, brought back, shared, and reached by Ctrl+K."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, Route, WebSocketRoute, expect

from history.models import Session
from history.record import recorder
from relay.models import Run
from relay.pages.sidebar.sessions import PAGE
from tests.browser.conftest import enter, go_and_listen, is_narrow, until
from tests.factories import create_chat

pytestmark = pytest.mark.browser

See = Callable[[str], None]

# What does not depend on colours is tried wide and narrow, once each.
twice = pytest.mark.parametrize("look", [(1280, "light"), (390, "dark")], indirect=True, ids=["1280", "390"])


@pytest.fixture
def sessions(ada: Any) -> list[Session]:
    """As on the sketch: some of today, some of yesterday, one of long ago, one pinned."""
    given: list[tuple[float, str, dict[str, str]]] = [
        (0, "Why is the build server slow?", {}),
        (0.02, "Refactor the payment retry loop", {"source": "relay", "client": "Claude Code"}),
        (0.03, "Classify 240 support mails", {"source": "relay"}),
        (24, "季度报告的要点整理", {}),
        (
            25,
            "Add keyset paging to the export of everything that was ever said",
            {"source": "relay", "client": "Codex"},
        ),
        (24 * 3, "Trip to Hangzhou", {"source": "import", "client": "ChatGPT"}),
        (24 * 70, "An old plan", {}),
        (24 * 90, "Team rules", {}),
    ]
    made = []
    for hours, title, fields in given:
        session = create_chat(ada, f"About {title}", "The server says hello.", title=title, **fields)
        Session.objects.filter(pk=session.pk).update(last_activity_at=timezone.now() - timedelta(hours=hours))
        made.append(session)
    recorder.pin(made[-1], pinned=True)
    Run.objects.create(session=made[1], owner=ada)
    return made


def open_sidebar(page: Page) -> Locator:
    """On a narrow screen the list is a sheet behind a button."""
    sidebar = page.locator("#sidebar")
    if is_narrow(page) and not sidebar.is_visible():
        page.locator(".sidebar-button").first.click()
    expect(sidebar).to_be_visible()
    return sidebar


def row(page: Page, session: Session) -> Locator:
    return page.locator(f"#sidebar-{session.pk}")


def menu(page: Page, session: Session, item: str) -> None:
    row(page, session).hover()
    row(page, session).locator(".sidebar-dots").click()
    row(page, session).locator(".sidebar-menu").get_by_text(item, exact=True).click()


@twice
def test_the_list_shows_days_marks_and_the_session_that_is_open(
    signed_in: Page, sessions: list[Session], see: See
) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    sidebar = open_sidebar(page)
    headings = sidebar.locator(".sidebar-day h2").all_inner_texts()
    assert headings[:2] == ["Pinned", "Today"]
    expect(row(page, sessions[0]).locator("a.sidebar-link")).to_have_attribute("aria-current", "page")
    expect(row(page, sessions[1]).locator(".sidebar-answering")).to_be_visible()
    see("sidebar")


@twice
def test_a_menu_opens_beside_its_row_and_works_by_keyboard(signed_in: Page, sessions: list[Session], see: See) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    dots = row(page, sessions[2]).locator(".sidebar-dots")
    dots.focus()
    page.keyboard.press("Enter")
    popup = row(page, sessions[2]).locator(".sidebar-menu")
    expect(popup).to_be_visible()
    button, box = dots.bounding_box(), popup.bounding_box()
    assert button
    assert box
    assert abs(box["y"] - button["y"] - button["height"]) < 12
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.viewport_size["width"]  # type: ignore[index]
    see("sidebar-menu")
    page.keyboard.press("ArrowDown")
    expect(popup.get_by_text("Pin", exact=True)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(popup.get_by_text("Delete", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(popup).to_be_hidden()
    expect(dots).to_be_focused()


def test_pinning_moves_a_session_to_the_top(signed_in: Page, sessions: list[Session]) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    menu(page, sessions[2], "Pin")
    expect(page.locator(".sidebar-session").first).to_have_id(f"sidebar-{sessions[2].pk}")
    expect(row(page, sessions[0]).locator("a.sidebar-link")).to_have_attribute("aria-current", "page")
    menu(page, sessions[2], "Unpin")
    expect(page.locator(".sidebar-session").first).to_have_id(f"sidebar-{sessions[-1].pk}")


def test_a_title_is_changed_in_place_with_enter_and_left_with_escape(
    signed_in: Page, sessions: list[Session], see: See
) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    menu(page, sessions[0], "Rename")
    field = row(page, sessions[0]).get_by_label("Title")
    expect(field).to_be_focused()
    see("sidebar-rename")
    field.fill("never kept")
    page.keyboard.press("Escape")
    expect(row(page, sessions[0]).locator(".sidebar-title")).to_have_text("Why is the build server slow?")
    menu(page, sessions[0], "Rename")
    field.fill("Fast again")
    page.keyboard.press("Enter")
    expect(row(page, sessions[0]).locator(".sidebar-title")).to_have_text("Fast again")
    expect(page.get_by_role("heading", level=1)).to_have_text("Fast again")
    expect(page).to_have_title("Fast again · Parley")


def test_a_deleted_session_leaves_a_way_back_where_it_stood(signed_in: Page, sessions: list[Session], see: See) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    menu(page, sessions[1], "Delete")
    undo = row(page, sessions[1]).get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    see("sidebar-deleted")
    assert Session.objects.get(pk=sessions[1].pk).hidden_at is not None
    undo.click()
    expect(row(page, sessions[1]).locator("a.sidebar-link")).to_be_visible()
    assert Session.objects.get(pk=sessions[1].pk).hidden_at is None


@twice
def test_deleting_the_open_session_leads_to_an_empty_chat_with_a_way_back(
    signed_in: Page, sessions: list[Session]
) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    menu(page, sessions[0], "Delete")
    expect(page).to_have_url(re.compile(r"^http://[^/]*/$"))
    expect(page.locator("#composer")).to_be_visible()
    open_sidebar(page)
    row(page, sessions[0]).get_by_role("button", name="Undo").click()
    row(page, sessions[0]).locator("a.sidebar-link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Why is the build server slow?")


@twice
def test_many_are_selected_with_shift_stay_selected_and_go_together(
    signed_in: Page, sessions: list[Session], see: See
) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    page.get_by_text("Select", exact=True).click()
    row(page, sessions[1]).locator(".sidebar-pick").click()
    row(page, sessions[3]).locator(".sidebar-pick").click(modifiers=["Shift"])
    expect(page.locator(".sidebar-count")).to_have_text("3 selected")
    see("sidebar-select")
    page.reload()
    open_sidebar(page)
    expect(page.locator(".sidebar-count")).to_have_text("3 selected")
    page.locator(".sidebar-many").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("3 deleted")).to_be_visible()
    assert Session.objects.filter(hidden_at=None).count() == len(sessions) - 3
    expect(page.locator("#sidebar-selecting")).not_to_be_checked()
    expect(page.locator(".sidebar-pick").first).to_be_hidden()
    page.get_by_role("button", name="Undo all").click()
    expect(row(page, sessions[2]).locator("a.sidebar-link")).to_be_visible()


def test_selecting_ends_though_the_list_was_replaced_before_the_response(
    signed_in: Page, sessions: list[Session]
) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    page.get_by_text("Select", exact=True).click()
    row(page, sessions[1]).locator(".sidebar-pick").click()
    page.evaluate("""document.addEventListener("htmx:beforeRequest", ({ detail }) => {
        if (detail.elt.closest(".sidebar-many")) htmx.trigger("#sidebar-list", "sidebar:refresh");
    })""")
    held: list[Route] = []
    page.route("**/rail/delete/", lambda route: held.append(route))
    with page.expect_response("**/rail/?*"):
        page.locator(".sidebar-many").get_by_role("button", name="Delete").click()
    until(page, lambda: bool(held))
    page.wait_for_timeout(200)  # the list is replaced
    held[0].continue_()
    expect(page.locator("#sidebar-selecting")).not_to_be_checked()
    assert page.evaluate("sessionStorage.getItem('parley-selected')") is None


def test_a_menu_stays_open_when_the_list_arrives_and_the_list_follows(signed_in: Page, sessions: list[Session]) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    held: list[Route] = []
    page.route("**/rail/?*", lambda route: route.continue_() if held else held.append(route))
    # More than once: the page may be swapping in a list of its own, and a trigger would be lost with the old one.
    until(page, lambda: bool(held), doing=lambda: page.evaluate("htmx.trigger('#sidebar-list', 'sidebar:refresh')"))
    row(page, sessions[1]).hover()
    row(page, sessions[1]).locator(".sidebar-dots").click()
    Session.objects.filter(pk=sessions[2].pk).update(title="Changed meanwhile")
    with page.expect_response("**/rail/?*"):
        held[0].continue_()
    page.wait_for_timeout(200)  # a swap would have happened by now
    expect(row(page, sessions[1]).locator(".sidebar-menu")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("Message", exact=True).focus()
    expect(row(page, sessions[2]).locator(".sidebar-title")).to_have_text("Changed meanwhile")


@pytest.mark.parametrize("element", [".sidebar-pick", "a.sidebar-link", ".sidebar-dots"])
def test_a_refresh_of_the_list_keeps_the_focus_of_a_mouse_user(
    signed_in: Page, sessions: list[Session], element: str
) -> None:
    page = signed_in
    go_and_listen(page, f"/s/{sessions[0].pk}/")
    page.locator("#sidebar-selecting").click()
    if element != ".sidebar-pick":
        page.locator("#sidebar-selecting").click()
    row(page, sessions[2]).locator(element).focus()
    assert not row(page, sessions[2]).locator(":focus-visible").count()
    Session.objects.filter(pk=sessions[2].pk).update(title="Changed meanwhile")
    refresh = partial(page.evaluate, "htmx.trigger('#sidebar-list', 'sidebar:refresh')")
    changed = row(page, sessions[2]).get_by_text("Changed meanwhile")
    until(page, lambda: bool(changed.count()), doing=refresh)
    expect(row(page, sessions[2]).locator(element)).to_be_focused()


def test_another_tab_sees_what_is_done_here(signed_in: Page, sessions: list[Session], ada: Any) -> None:
    page = signed_in
    other = page.context.new_page()
    for tab in (page, other):
        go_and_listen(tab, f"/s/{sessions[0].pk}/")
    other.locator("#sidebar-selecting").click()
    row(other, sessions[2]).locator(".sidebar-pick").click()
    page.bring_to_front()
    menu(page, sessions[2], "Rename")
    row(page, sessions[2]).get_by_label("Title").fill("Fast again")
    page.keyboard.press("Enter")
    expect(row(other, sessions[2]).locator(".sidebar-title")).to_have_text("Fast again")
    expect(row(other, sessions[2]).locator(".sidebar-pick")).to_be_focused()
    menu(page, sessions[2], "Pin")
    expect(other.locator(".sidebar-session").first).to_have_id(f"sidebar-{sessions[2].pk}")
    menu(page, sessions[1], "Delete")
    expect(row(other, sessions[1]).get_by_role("button", name="Undo")).to_be_visible()
    row(other, sessions[1]).get_by_role("button", name="Undo").click()
    expect(row(page, sessions[1]).locator("a.sidebar-link")).to_be_visible()


def test_an_answer_that_ends_while_a_page_connects_leaves_no_dot(signed_in: Page, sessions: list[Session]) -> None:
    def connect_late(socket: WebSocketRoute) -> None:
        Run.objects.update(ended_at=timezone.now(), outcome=Run.Outcome.DONE)
        socket.connect_to_server()

    signed_in.route_web_socket("**/ws/s/**", connect_late)
    go_and_listen(signed_in, f"/s/{sessions[0].pk}/")
    expect(signed_in.locator("#sidebar .sidebar-session")).not_to_have_count(0)
    expect(signed_in.locator("#sidebar .sidebar-answering")).to_have_count(0)


def test_the_list_waits_with_updates_for_keyboard_users(signed_in: Page, sessions: list[Session], ada: Any) -> None:
    page = signed_in
    page.goto("/")
    link = row(page, sessions[2]).locator("a.sidebar-link")
    row(page, sessions[1]).locator("a.sidebar-link").focus()
    is_there = "link => link === document.activeElement"
    until(page, lambda: bool(link.evaluate(is_there)), doing=lambda: page.keyboard.press("Tab"))
    new = create_chat(ada, "Said by a program.", source="relay")
    asked = page.evaluate("""() => {
        let asked = 0;
        document.addEventListener("htmx:beforeRequest", () => asked++);
        document.dispatchEvent(new CustomEvent("parley:sessions-changed"));
        return asked;
    }""")
    assert asked == 0
    expect(link).to_be_focused()
    page.locator("#composer textarea").focus()
    expect(row(page, new)).to_be_visible()


def test_archiving_says_so_and_can_be_undone_while_news_come(
    signed_in: Page, sessions: list[Session], see: See
) -> None:
    page = signed_in
    go_and_listen(page, f"/s/{sessions[0].pk}/")
    menu(page, sessions[1], "Archive")
    page.wait_for_timeout(700)  # its own news have come by then
    expect(row(page, sessions[1])).to_contain_text("Archived")
    page.reload()
    row(page, sessions[1]).get_by_role("button", name="Undo").click()
    expect(row(page, sessions[1]).locator("a.sidebar-link")).to_be_visible()
    head = page.locator(".talk-head")
    head.get_by_label("More").click()
    see("chat-menu")
    head.get_by_role("button", name="Archive").click()
    expect(page.locator("#session-changed")).to_contain_text("Archived")
    expect(head.locator("#session-chips")).to_contain_text("archived")
    page.locator("#session-changed").get_by_role("button", name="Undo").click()
    expect(page.locator("#session-changed")).to_contain_text("Unarchived")
    expect(head.locator("#session-chips")).not_to_contain_text("archived")


def test_the_archive_is_one_press_away(signed_in: Page, sessions: list[Session], see: See) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    menu(page, sessions[1], "Archive")
    expect(row(page, sessions[1]).get_by_role("button", name="Undo")).to_be_visible()
    page.locator(".sidebar-tools").get_by_role("link", name="Archived").click()
    expect(row(page, sessions[1]).locator("a.sidebar-link")).to_be_visible()
    expect(row(page, sessions[0])).to_have_count(0)
    see("sidebar-archive")
    page.locator(".sidebar-tools").get_by_role("link", name="Recent").click()
    expect(row(page, sessions[0]).locator("a.sidebar-link")).to_have_attribute("aria-current", "page")


@twice
def test_typing_finds_and_marks_and_the_address_keeps_it(signed_in: Page, sessions: list[Session], see: See) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    page.get_by_role("searchbox").fill("serv")
    expect(page.locator("#sidebar-list mark").first).to_have_text("server")
    expect(page).to_have_url(re.compile(rf"/s/{sessions[0].pk}/\?q=serv$"))
    see("sidebar-search")
    page.locator(".sidebar-hit-link", has_text="Team rules").first.click()
    page.wait_for_url(re.compile(rf"/s/{sessions[-1].pk}/\?at=\d+&q=serv#m\d+$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Team rules")
    open_sidebar(page)
    expect(page.locator("#sidebar-list mark").first).to_be_attached()
    page.get_by_role("searchbox").fill("")
    expect(row(page, sessions[0])).to_be_visible()
    page.get_by_role("searchbox").fill("nothing like this")
    expect(page.locator("#sidebar-list")).to_contain_text("Nothing found")


def test_the_list_goes_on_as_one_scrolls(signed_in: Page, ada: Any) -> None:
    page = signed_in
    made = [create_chat(ada, f"number {number}") for number in range(3 * PAGE)]
    page.goto("/")
    open_sidebar(page)
    expect(page.locator(".sidebar-session")).to_have_count(PAGE)
    page.locator(".sidebar-session").last.scroll_into_view_if_needed()
    page.locator("#sidebar-list > ul").hover()
    shown = page.locator(".sidebar-session")
    until(page, lambda: shown.count() == len(made), doing=lambda: page.mouse.wheel(0, 2_000))
    expect(page.locator(".sidebar-day")).to_have_count(1)


def test_a_session_is_shared_in_a_dialog_read_by_an_outsider_and_taken_back(
    signed_in: Page, sessions: list[Session], see: See, browser: Browser
) -> None:
    page = signed_in
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    menu(page, sessions[0], "Share")
    dialog = page.locator("#sidebar-dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Create link").click()
    field = dialog.get_by_label("Link", exact=True)
    expect(field).to_be_visible()
    see("share")
    outside = browser.new_context(viewport=page.viewport_size)
    reader = outside.new_page()
    reader.goto(field.input_value())
    expect(reader.get_by_text("The server says hello.")).to_be_visible()
    dialog.get_by_role("button", name="Revoke").click()
    expect(field).to_have_count(0)
    reader.reload()
    expect(reader.get_by_role("heading", level=1)).to_have_text("This link is invalid or expired")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_a_shared_page_is_fit_to_be_seen(page: Page, sessions: list[Session], see: See) -> None:
    from history.transcripts import share_links

    link = share_links.share(sessions[0], by=sessions[0].owner)
    page.goto(f"/shared/{share_links.token_of(link)}/")
    expect(page.get_by_text("The server says hello.")).to_be_visible()
    see("shared")


def test_ctrl_k_leads_to_a_session_by_a_few_letters(signed_in: Page, sessions: list[Session], see: See) -> None:
    page = signed_in
    page.goto("/")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Go to a session")
    expect(box).to_be_focused()
    expect(page.get_by_role("dialog").get_by_role("option").first).to_have_attribute("aria-selected", "true")
    see("palette")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("dialog").get_by_role("option").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_have_attribute("aria-selected", "true")
    # At once: what was found for fewer letters would come in between, and begin anew at the top.
    box.fill("hang")
    expect(page.get_by_role("dialog").get_by_role("option")).to_have_count(1)
    expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("Trip to Hangzhou")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Trip to Hangzhou")
    page.wait_for_load_state()  # the words are there before the scripts that listen for keys
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()


def test_the_pages_for_who_has_no_script_are_fit_to_be_seen(signed_in: Page, sessions: list[Session], see: See) -> None:
    page = signed_in
    page.goto("/rail/?archived=1")
    expect(page.get_by_text("Nothing is archived.")).to_be_visible()
    page.goto("/rail/")
    see("sidebar-page")
    page.goto(f"/s/{sessions[0].pk}/share/")
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_label("Link", exact=True).input_value()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click(timeout=5_000)
    assert page.evaluate("navigator.clipboard.readText()") == link
    see("share-page")
    page.goto(f"/s/{sessions[0].pk}/rename/")
    see("rename-page")


def test_without_a_script_everything_can_be_reached(plain: Page, site: str, ada: Any, sessions: list[Session]) -> None:
    page = plain
    enter(page, site, ada)
    page.goto(f"/s/{sessions[0].pk}/")
    open_sidebar(page)
    with page.expect_navigation():
        menu(page, sessions[1], "Archive")
    assert Session.objects.get(pk=sessions[1].pk).archived_at is not None
    open_sidebar(page)
    expect(row(page, sessions[1]).locator("a.sidebar-link")).to_have_count(0)
    page.locator(".sidebar-tools").get_by_role("link", name="Archived").click()
    expect(row(page, sessions[1])).to_be_visible()
    page.goto("/rail/")
    page.locator(f"#sidebar-{sessions[2].pk} .sidebar-dots").click()
    page.locator(f"#sidebar-{sessions[2].pk}").get_by_text("Rename", exact=True).click()
    page.get_by_label("Title").fill("Plainly renamed")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Plainly renamed")).to_be_visible()


def test_a_request_that_fails_says_what_to_do(signed_in: Page, site: str) -> None:
    signed_in.goto("/")
    alert = signed_in.locator("#request-problem")
    for status, words in ((404, "no longer available"), (403, "did not accept this")):
        signed_in.route("**/rail/?*", partial(Route.fulfill, status=status, body="x"))
        signed_in.get_by_role("link", name="Archived").click()
        expect(alert).to_contain_text(words)
        signed_in.unroute("**/rail/?*")
    signed_in.get_by_role("link", name="Archived").click()
    expect(alert).to_be_hidden()
    signed_in.context.clear_cookies(name="parley_session")
    signed_in.get_by_role("link", name="Recent").click()
    expect(alert).to_contain_text("You are signed out.")
    expect(signed_in.get_by_label("Password")).to_have_count(0)
