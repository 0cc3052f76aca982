"""What programs say through the relay, in a real browser: a page that grows by itself, branches, calls for staff."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from django.utils import timezone
from playwright.sync_api import Page, WebSocketRoute, expect

from history.access import keys
from history.entries import HeadMoved
from history.models import Exchange, Session
from history.record import recorder
from relay.live import relayed_updates
from tests.browser.conftest import enter, go_and_listen, until
from tests.factories import create_chat, model_input, model_output, tool_request
from tests.servers.installation import Installation, Server, create_installation
from tests.servers.processes import clean_environment, run_process
from tests.vendors import says

pytestmark = pytest.mark.browser
See = Callable[[str], None]
LONG = "A paragraph of some length, so that what stands above it is far above the screen. " * 12
NARROW = pytest.mark.parametrize("look", [(1280, "light"), (390, "dark")], indirect=True)


@pytest.fixture
def session(transactional_db: None, ada: Any) -> Session:
    key = keys.create(name="laptop", owner=ada).api_key
    return create_chat(ada, "Fix the parser.", "It is fixed.", source="relay", client="Claude Code", api_key=key)


def test_a_call_that_another_process_files_is_on_the_open_page_within_a_second(page: Page, tmp_path: Path) -> None:
    """One web process without jobs and Redis: `manage.py work` runs the digester beside it."""
    with create_installation(tmp_path, scopes=("relay", "read")) as installation:
        environment = clean_environment(**installation.variables)
        work = run_process([sys.executable, "manage.py", "work"], log=tmp_path / "work.log", environment=environment)
        with installation.serving("uvicorn") as server, work:
            site = f"http://127.0.0.1:{server.port}"
            page.context.add_cookies([{"name": "parley_session", "value": installation.ada.cookie, "url": site}])
            talk = [{"role": "user", "content": "Tell me of fjords."}]
            session = call(installation, server, talk, "They are deep.")
            until(page, lambda: page.goto(f"{site}/s/{session}/").ok)  # type: ignore[union-attr]
            go_and_listen(page, f"{site}/s/{session}/")
            expect(page.get_by_text("They are deep.")).to_be_visible()
            talk += [{"role": "assistant", "content": "They are deep."}, {"role": "user", "content": "How deep?"}]
            assert call(installation, server, talk, "A thousand metres.") == session
            # A second, and what a busy machine needs to show it.
            expect(page.get_by_text("A thousand metres.")).to_be_visible(timeout=6_000)


def call(installation: Installation, server: Server, messages: list[dict[str, str]], answer: str) -> str:
    """A program calls a model through the relay. The id of the session."""
    installation.plays(says(answer))
    body = json.dumps({"model": "model", "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {installation.ada.key}", "Content-Type": "application/json"}
    address = f"http://127.0.0.1:{server.port}/v1/chat/completions"
    with urlopen(Request(address, data=body, headers=headers | {"x-session-id": "fjords"}), timeout=30) as response:
        response.read()
        return str(response.headers["X-Parley-Session-Id"])


@NARROW
def test_a_page_that_a_program_fills_tells_what_goes_on_and_its_panel_keeps_up(
    page: Page, see: See, site: str, ada: Any, session: Session
) -> None:
    enter(page, site, ada)
    go_and_listen(page, f"/s/{session.pk}/")
    messages = page.locator("#panel dt", has_text="messages").locator("+ dd")
    expect(messages).to_have_text("2")
    recorder.append(session, model_input("Now the lexer."), after=2)
    waits = {"heartbeat_at": timezone.now() + timedelta(days=1), "api_key": session.api_key}
    exchange = Exchange.objects.create(session=session, owner=ada, model="m1", **waits)
    status = page.locator("#session-status")
    until(page, lambda: "waits" in status.inner_text(), doing=relayed_updates.refresh_open_sessions)
    see("relayed-waiting")
    recorder.append(session, model_output("Reading it.", tool_request("c1", name="read_file")), after=3)
    Exchange.objects.filter(pk=exchange.pk).update(ended_at=timezone.now(), end_reason="done")
    until(page, lambda: page.get_by_text("Reading it.").count() == 1, doing=relayed_updates.refresh_open_sessions)
    expect(page.locator("#announcer")).to_have_text("A new answer arrived.")
    expect(page.get_by_text("no result yet")).to_be_visible()
    expect(status).to_be_hidden()
    expect(messages).to_have_text("4")


def test_a_session_of_a_program_appears_and_grows_in_every_list_that_is_open(page: Page, site: str, ada: Any) -> None:
    enter(page, site, ada)
    page.goto("/history/")
    expect(page.get_by_text("Nothing recorded yet")).to_be_visible()
    beside = page.context.new_page()
    beside.goto("/")
    for one in (page, beside):
        expect(one.locator("html")).to_have_attribute("data-list-updates", "open")
    session = create_chat(ada, "Fix the parser.", title="Fix the parser.", source="relay")
    row = page.locator(f"#hit-{session.pk}")
    until(page, lambda: row.count() == 1, doing=relayed_updates.refresh_session_lists)
    expect(beside.locator("#sidebar-list").get_by_text("Fix the parser.")).to_be_visible()
    row.get_by_role("checkbox").check()
    recorder.append(session, model_output("It is fixed."), after=1)
    until(page, lambda: "2 messages" in row.inner_text(), doing=relayed_updates.refresh_session_lists)
    expect(row.get_by_role("checkbox")).to_be_checked()
    expect(row.get_by_role("checkbox")).to_be_focused()
    expect(page).to_have_url(f"{site}/history/")


def test_a_hidden_list_is_updated_when_it_is_shown(page: Page, site: str, ada: Any) -> None:
    page.add_init_script("""
        window.away = false;
        window.told = [];
        Object.defineProperty(document, "hidden", { get: () => window.away });
        document.addEventListener("parley:sessions-changed", () => window.told.push(document.hidden));
    """)
    frames: list[str | bytes] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(frame)))
    enter(page, site, ada)
    page.goto("/history/")
    expect(page.locator("html")).to_have_attribute("data-list-updates", "open")
    page.evaluate("window.away = true")
    session = create_chat(ada, "Fix the parser.", source="relay")
    until(page, lambda: str(session.pk) in frames, doing=relayed_updates.refresh_session_lists)
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator(".hit")).to_have_count(1)
    assert True not in page.evaluate("window.told")


def test_a_list_connects_again_when_the_network_is_back_and_not_after_the_sign_in_is_over(
    signed_in: Page, anew: None
) -> None:
    page = signed_in
    opened: list[WebSocketRoute] = []
    page.route_web_socket(re.compile("/ws/lists/"), lambda socket: opened.append(socket))
    page.clock.install()
    page.goto("/history/")
    page.clock.pause_at(timezone.now() + timedelta(hours=1))
    html, back = page.locator("html"), "dispatchEvent(new Event('online'))"
    expect(html).to_have_attribute("data-list-updates", "open")
    opened[0].close(code=1001)
    expect(html).not_to_have_attribute("data-list-updates", "open")
    page.evaluate(back)
    expect(html).to_have_attribute("data-list-updates", "open")
    opened[1].close(code=4401)
    expect(html).not_to_have_attribute("data-list-updates", "open")
    page.evaluate(back)
    page.clock.run_for(60_000)
    assert len(opened) == 2


def test_updates_during_filtering_are_loaded_afterwards(signed_in: Page) -> None:
    signed_in.goto("/history/")
    with signed_in.expect_request(lambda request: request.headers.get("hx-trigger") == "found"):
        signed_in.evaluate("""
            htmx.trigger("#browse-form", "submit");
            document.dispatchEvent(new CustomEvent("parley:sessions-changed"));
        """)


def test_the_focus_stays_in_the_panel_while_a_program_continues(
    page: Page, site: str, ada: Any, session: Session
) -> None:
    def go_on() -> None:
        recorder.append_many(session, [model_input("Go on."), model_output("Done.")], after=session.head)
        session.refresh_from_db()
        now = timezone.now()
        times = {"started_at": now, "ended_at": now + timedelta(seconds=2)}
        Exchange.objects.create(session=session, owner=ada, model="m1", end_reason="done", **times)

    go_on()
    enter(page, site, ada)
    go_and_listen(page, f"/s/{session.pk}/")
    panel = page.locator("#panel")
    panel.get_by_role("link", name="Timeline").focus()
    go_on()
    until(page, lambda: panel.locator(".lanes").count() == 2, doing=relayed_updates.refresh_open_sessions)
    expect(panel.get_by_role("link", name="Timeline")).to_be_focused()


@NARROW
def test_an_older_branch_says_so_within_sight(page: Page, see: See, site: str, ada: Any, session: Session) -> None:
    recorder.append_many(
        session, [model_input(LONG), model_output(LONG), model_input(LONG), model_output(LONG)], after=2
    )
    recorder.append_many(session, [HeadMoved(to=0, reason="compacted"), model_input("A summary of it all.")], after=0)
    enter(page, site, ada)
    page.goto(f"/s/{session.pk}/")
    see("relayed-compacted")
    expect(page.get_by_text("The program summarised earlier messages.")).to_be_in_viewport()
    page.goto(f"/s/{session.pk}/?leaf=6")
    expect(page.get_by_text("This is another branch of the conversation.")).to_be_in_viewport()
    see("relayed-branch")
    page.goto(f"/s/{session.pk}/")
    page.get_by_role("link", name="Show the original").click()
    expect(page.locator("#m1 .prose")).to_be_in_viewport()


def test_what_a_program_wraps_around_words_opens_where_it_stands(page: Page, see: See, site: str, ada: Any) -> None:
    text = "<system-reminder>\nAs you answer, use the notes below.\n</system-reminder>\nFix the parser."
    session = create_chat(ada, text, "Done.", source="relay")
    enter(page, site, ada)
    page.goto(f"/s/{session.pk}/")
    notes = page.get_by_text("use the notes below")
    expect(notes).to_be_hidden()
    see("relayed-wrapped")
    page.locator("summary", has_text="system-reminder").press("Enter")
    expect(notes).to_be_visible()


def test_staff_see_who_called_how_it_ended_and_what_it_cost_without_scrolling(
    page: Page, site: str, staff: Any, ada: Any, session: Session
) -> None:
    staff.is_superuser = True
    staff.save()
    ended = {"ended_at": timezone.now(), "end_reason": "upstream_error", "status_code": 529}
    usage = {"input_tokens": 123_456, "output_tokens": 2_048}
    model = "claude-opus-5-5"
    Exchange.objects.create(session=session, owner=ada, api_key=session.api_key, model=model, usage=usage, **ended)
    enter(page, site, staff)
    page.goto("/admin/history/exchange/")
    for column in ("end_reason", "status_code", "shown_cost", "took", "tokens", "asked_by"):
        expect(page.locator(f"td.field-{column}")).to_be_in_viewport(ratio=1)


def test_the_way_back_from_a_page_of_the_admin_can_be_read_in_the_dark(
    page: Page, site: str, staff: Any, ada: Any, session: Session
) -> None:
    staff.is_superuser = True
    staff.save()
    exchange = Exchange.objects.create(session=session, owner=ada, model="m1")
    enter(page, site, staff)
    page.emulate_media(color_scheme="dark")
    page.goto(f"/admin/history/exchange/{exchange.pk}/change/")
    looks = "link => [getComputedStyle(link).color, getComputedStyle(link).backgroundColor]"
    assert contrast(*page.locator("a.closelink").evaluate(looks)) > 7


def contrast(*colours: str) -> float:
    """As WCAG counts it, of two colours as the browser names them."""
    light, dark = sorted((luminance(colour) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
