"""The chat page in a browser: what a person sees, writes and presses, at two widths, light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone
from playwright.sync_api import Page, WebSocketRoute, expect

from history.entries import ModelOutput, Reasoning, SystemInstructionSet, Text, Usage
from history.models import Exchange, Session
from history.record import recorder
from relay.models import Agent
from tests.browser.conftest import enter, go_and_listen, opened, until
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.browser
See = Callable[[str], None]

ANSWER = """The processor is idle, so the build is **waiting**, not computing. Three places to look, in this order:

| Suspect | What speaks for it | Check |
|---|---|---|
| Package cache | slow since Monday’s image | `du -sh ~/.cache` |
| Disk | the disk query itself timed out | `iostat -x 1` |

```python
def slow(disk: str) -> bool:
    # more than nine tenths busy
    return utilisation(disk) > 0.9
```

- [x] looked at the processor
- [ ] 再看一次磁盘
"""


@pytest.fixture
def conversation(ada: Any) -> Session:
    Agent.objects.all().delete()
    Agent.objects.create(name="operator", label="Operator", is_default=True)
    Agent.objects.create(name="writer", label="Writer")
    session = recorder.start_session(owner=ada, title="Why is the build server slow?", agent="operator")
    began = timezone.now() - timedelta(minutes=2)
    usage = Usage(input_tokens=76_000, output_tokens=412)
    asked = ModelOutput(
        parts=(
            Reasoning(text="CPU first, then the disk."), Text(text="I will look."),
            tool_request("a"), tool_request("b"),
        ),
        model="claude-sonnet", usage=usage, duration=2.2, at=began + timedelta(seconds=3),
    )  # fmt: skip
    outcomes = tool_results(
        tool_result(
            "a", "CPU 3.0 %   load 0.41 0.38 0.36   2 cores", duration=0.5, started_at=began + timedelta(seconds=3)
        ),
        tool_result("b", "", status="failed", error="timed out", duration=1.2, started_at=began + timedelta(seconds=3)),
    )
    entries = [
        SystemInstructionSet(instruction="You look after the build machines. Prefer evidence to guesses."),
        model_input("The build takes twice as long since Monday. Can you look at the machine?", at=began),
        asked,
        outcomes,
        model_output(ANSWER, usage=usage, duration=3.1, model="claude-sonnet"),
        model_input("It prints 98 % for nvme0n1."),
        model_output(
            "Then the disk is the bottleneck. A likely cause is",
            status="interrupted",
            end_reason="upstream_cut",
            model="claude-sonnet",
        ),
    ]
    recorder.append_many(session, entries, after=0)
    for offset, seconds in ((0.4, 2.2), (4.5, 3.1)):
        start = began + timedelta(seconds=offset)
        Exchange.objects.create(
            session=session, owner=ada, model="claude-sonnet", started_at=start,
            ended_at=start + timedelta(seconds=seconds), end_reason="done",
        )  # fmt: skip
    return session


def test_nothing_said_yet_offers_three_examples(signed_in: Page, see: See) -> None:
    signed_in.goto("/")
    expect(signed_in.get_by_role("heading", name="Hello, ada")).to_be_visible()
    expect(signed_in.locator(".example")).to_have_count(3)
    expect(signed_in.get_by_label("Message", exact=True)).to_be_focused()
    see("chat-new")


def test_a_conversation_opens_at_its_end_and_everything_in_it_can_be_opened(
    signed_in: Page, conversation: Session, see: See
) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    expect(page.locator("#m7")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    for beside in ("#sidebar", "#panel"):
        expect(page.locator(beside)).to_be_visible()
    see("chat-session")
    for folded in page.locator("#rows details.tool > summary, #rows details.fold > summary").all():
        folded.click()
    expect(page.get_by_text("timed out", exact=True)).to_be_visible()
    page.evaluate("document.querySelector('#talk').scrollTo(0, -1e6)")
    see("chat-session-open")


@pytest.mark.parametrize("look", [(390, "light"), (390, "dark")], indirect=True)
def test_on_a_phone_the_list_and_the_panel_are_sheets(signed_in: Page, conversation: Session, see: See) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    sidebar, panel = page.locator("#sidebar"), page.locator("#panel")
    expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="Sessions").click()
    expect(sidebar).to_be_visible()
    see("chat-sidebar-sheet")
    page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="About this session").click()
    expect(panel.get_by_role("meter")).to_be_hidden()  # the window of that model is unknown
    expect(panel.get_by_text("76\u202f412 tokens")).to_be_visible()
    see("chat-panel-sheet")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()


def test_staff_give_a_reason_and_read_another_users_session(
    page: Page, site: str, staff: Any, conversation: Session, see: See
) -> None:
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "read_session"]))
    enter(page, site, staff)
    page.goto(f"/s/{conversation.pk}/")
    why = page.get_by_role("textbox", name="Reason")
    why.fill("    ")
    page.get_by_role("button", name="Read session", exact=True).click()
    see("chat-say-why")
    why.fill("ticket 7")
    page.get_by_role("button", name="Read session", exact=True).click()
    expect(page.get_by_text("This conversation belongs to ada.")).to_be_visible()
    expect(page.locator("#composer")).to_have_count(0)
    see("chat-read-only")


@pytest.mark.parametrize("look", [(900, "light"), (2560, "dark")], indirect=True)
def test_between_and_beyond_those_widths_it_is_laid_out_too(signed_in: Page, conversation: Session, see: See) -> None:
    signed_in.goto(f"/s/{conversation.pk}/")
    expect(signed_in.locator("#sidebar")).to_be_visible()
    see("chat-session")


def test_the_panel_can_be_put_away_and_stays_away(signed_in: Page, conversation: Session) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    page.keyboard.press("Escape")
    page.keyboard.press("i")
    expect(page.locator("#panel")).to_be_hidden()
    page.reload()
    expect(page.locator("#panel")).to_be_hidden()
    page.get_by_role("button", name="About this session").click()
    expect(page.locator("#panel")).to_be_visible()


# Long conversations


def position(page: Page, entry: str) -> float:
    box = page.locator(entry).bounding_box()
    assert box
    return box["y"]


def test_older_entries_come_in_above_and_what_is_read_stays_in_place(signed_in: Page, ada: Any) -> None:
    page = signed_in
    session = create_chat(ada, *[f"text {number}\n\nand more of it" for number in range(1, 61)])
    page.goto(f"/s/{session.pk}/")
    expect(page.locator("#m60")).to_be_in_viewport()
    page.evaluate("document.querySelector('#talk').scrollTo(0, -1e6)")
    before = position(page, "#m41")
    expect(page.locator("#rows > article").first).to_have_attribute("id", "m21")
    assert abs(position(page, "#m41") - before) < 120  # the skeleton above it went
    settled = position(page, "#m41")
    page.evaluate("document.querySelector('#talk').scrollBy(0, -60)")
    assert abs(position(page, "#m41") - settled - 60) < 2


def test_newer_entries_come_in_below_and_what_is_read_stays_in_place(signed_in: Page, ada: Any) -> None:
    page = signed_in
    session = create_chat(ada, *[f"text {number}\n\nand more of it" for number in range(1, 101)])
    page.goto(f"/s/{session.pk}/?at=42#m42")
    expect(page.locator("#m42")).to_be_in_viewport()
    page.locator("#m51").scroll_into_view_if_needed()
    expect(page.locator("#m60")).to_be_attached()
    expect(page.locator("#m51")).to_be_in_viewport()
    expect(page.locator("#m72")).not_to_be_in_viewport()
    page.get_by_role("link", name="To the end").click()
    expect(page.locator("#m100")).to_be_in_viewport()


def test_what_grows_at_the_end_is_followed_there_and_nowhere_else(signed_in: Page, ada: Any) -> None:
    page = signed_in
    page.goto(f"/s/{create_chat(ada, *[f'text {number}' for number in range(1, 21)]).pk}/")
    grow = """() => {
        const more = document.createElement("p");
        more.textContent = "and so on ".repeat(400);
        document.getElementById("rows").append(more);
    }"""
    page.evaluate(grow)
    expect(page.get_by_text("and so on").last).to_be_in_viewport()
    page.evaluate("document.querySelector('#talk').scrollTo(0, -600)")
    expect(page.locator("#to-end")).to_be_visible()
    before = position(page, "#m15")
    page.evaluate(grow)
    new = page.get_by_role("link", name="New", exact=True)
    expect(new).to_be_visible()
    assert abs(position(page, "#m15") - before) < 2
    new.click()
    expect(page.get_by_text("and so on").last).to_be_in_viewport()
    expect(page.locator("#to-end")).to_be_hidden()


def transferred(page: Page, address: str) -> int:
    """Bytes of the page and of everything that it loads, as they travel."""
    sizes: list[int] = []
    page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return sum(sizes)


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("length", [10, 10_000])
def test_the_first_load_is_small_however_long_the_conversation_is(signed_in: Page, ada: Any, length: int) -> None:
    texts = [f"Message {number}: {ANSWER}" for number in range(1, 21)]
    session = create_chat(ada, *(["so it goes on"] * max(0, length - 20)), *texts[:length])
    assert session.version == length
    total = transferred(signed_in, f"/s/{session.pk}/")
    assert 10_000 < total < 150_000
    expect(signed_in.locator(f"#m{length}")).to_be_in_viewport()


# Writing


def compose(page: Page, script: str) -> None:
    page.evaluate(f"""() => {{
        const box = document.getElementById("composer-text");
        {script}
    }}""")


def test_the_enter_that_ends_a_chinese_word_does_not_send(signed_in: Page) -> None:
    page = signed_in
    page.goto("/")
    page.get_by_label("Message", exact=True).fill("你好")
    page.evaluate("document.getElementById('composer').addEventListener('submit', (event) => {"
                  " event.preventDefault(); document.title = 'sent'; })")  # fmt: skip
    press = 'box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true, %s}));'
    compose(page, 'box.dispatchEvent(new CompositionEvent("compositionstart"));' + press % "isComposing: true")
    assert page.title() != "sent"
    compose(page, press % "keyCode: 229")  # as Safari tells it, after the composition has ended
    assert page.title() != "sent"
    compose(page, press % "shiftKey: true")
    assert page.title() != "sent"
    compose(page, press % "keyCode: 13")
    expect(page).to_have_title("sent")


def test_the_box_grows_with_a_draft_which_outlives_the_page_and_belongs_to_its_session(
    signed_in: Page, conversation: Session, ada: Any, see: See
) -> None:
    page, other = signed_in, create_chat(ada, "something else")
    page.goto(f"/s/{conversation.pk}/")
    box = page.get_by_label("Message", exact=True)
    height = "(box) => box.offsetHeight"
    empty = box.evaluate(height)
    box.fill("not yet\nfinished\nbut long")
    until(page, lambda: bool(box.evaluate(height) > empty + 20))
    see("chat-draft")
    page.reload()
    expect(box).to_have_value("not yet\nfinished\nbut long")
    page.goto(f"/s/{other.pk}/")
    expect(box).to_have_value("")


def test_a_slash_lists_the_commands_and_they_narrow(signed_in: Page, see: See) -> None:
    page = signed_in
    page.goto("/")
    box = page.get_by_label("Message", exact=True)
    options = page.get_by_role("listbox", name="Commands").get_by_role("option")
    box.press_sequentially("/")
    expect(options.first).to_be_visible()
    see("chat-commands")
    box.press_sequentially("sys")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    expect(box).to_have_value("/sys_monitor ")
    expect(page.get_by_role("listbox", name="Commands")).to_be_hidden()


def test_files_are_attached_by_picking_pasting_and_dropping(signed_in: Page) -> None:
    page = signed_in
    page.goto("/")
    page.locator("#composer-pick").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"one"})
    expect(page.locator("#composer-files .chip")).to_have_count(1)
    give = """(kind) => {
        const data = new DataTransfer();
        data.items.add(new File(["from " + kind], kind + ".txt", { type: "text/plain" }));
        const target = document.getElementById(kind === "drop" ? "talk" : "composer-text");
        const event = kind === "drop"
          ? new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data })
          : new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData: data });
        target.dispatchEvent(event);
    }"""
    for number, kind in enumerate(("paste", "drop"), start=2):
        page.evaluate(give, kind)
        expect(page.locator("#composer-files .chip")).to_have_count(number)
        expect(page.get_by_text(f"{kind}.txt", exact=True)).to_be_visible()
    page.get_by_role("button", name="Remove a.txt").click()
    expect(page.locator("#composer-files input[name=attachment]")).to_have_count(2)


def test_a_refused_file_blocks_sending_until_it_is_removed(signed_in: Page, ada: Any) -> None:
    page, session = signed_in, create_chat(ada, "one row", "Yes.")
    go_and_listen(page, f"/s/{session.pk}/")
    page.locator("#composer-pick").set_input_files({"name": "a.exe", "mimeType": "text/plain", "buffer": b"MZ\0\0"})
    expect(page.locator(".chip.refused")).to_contain_text("Only pictures")
    box = page.get_by_label("Message", exact=True)
    box.fill("Look at this.")
    box.press("Enter")
    page.wait_for_timeout(500)
    expect(page.locator("article.you"), "nothing is sent without the file").to_have_count(1)
    expect(page.locator("#composer-problem")).to_have_text("Remove the rejected file, then send.")
    expect(page.get_by_role("button", name="Remove a.exe")).to_be_focused()
    expect(box).to_have_value("Look at this.")
    page.route("**/attachments/", lambda route: route.fulfill(status=413, body="too large"))
    page.locator("#composer-pick").set_input_files({"name": "b.txt", "mimeType": "text/plain", "buffer": b"b"})
    expect(page.locator(".chip.refused").last).to_contain_text("This file was not uploaded.")
    page.get_by_role("button", name="Remove a.exe").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator("#composer-problem")).to_be_hidden()
    expect(box).to_be_focused()
    box.press("Enter")
    expect(page.locator("article.you").last).to_contain_text("Look at this.")


# Keys


def test_a_question_mark_lists_the_keys(signed_in: Page, conversation: Session, see: See) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    see("chat-keys")
    dialog.get_by_role("checkbox").uncheck()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("?")
    expect(dialog).to_be_hidden()


def test_j_and_k_walk_from_message_to_message(signed_in: Page, conversation: Session) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    page.keyboard.press("Escape")
    expect(page.locator("#m7")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#m6")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator("#m7")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.press("k")
    expect(page.get_by_label("Message", exact=True)).to_have_value("k")


def test_up_in_the_empty_box_edits_what_was_said_last(signed_in: Page, conversation: Session, see: See) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    page.get_by_label("Message", exact=True).press("ArrowUp")
    edit = page.get_by_label("Edit message")
    expect(edit).to_have_value("It prints 98 % for nvme0n1.")
    expect(edit).to_be_focused()
    see("chat-edit")
    page.keyboard.press("Escape")
    expect(edit).to_be_hidden()
    expect(page.locator("#m6 .bubble")).to_be_visible()


def test_a_message_is_copied_as_it_was_written(signed_in: Page, conversation: Session) -> None:
    page = signed_in
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/s/{conversation.pk}/")
    page.locator("#m5").get_by_role("button", name="Copy", exact=True).click()
    expect(page.locator("#m5 [data-done]")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == ANSWER


# The socket, played: what the page does when the other end is silent, gone or closed


class Sockets:
    """Every socket that the page opens, and what it sent over it."""

    def __init__(self, page: Page, *, answers_pings: bool = True) -> None:
        self.opened: list[WebSocketRoute] = []
        self.frames: list[dict[str, Any]] = []
        self.answers_pings = answers_pings
        page.route_web_socket(re.compile("/ws/s/"), self.open)

    def open(self, socket: WebSocketRoute) -> None:
        self.opened.append(socket)
        socket.on_message(lambda text: self.receive(socket, json.loads(text)))

    def receive(self, socket: WebSocketRoute, intent: dict[str, Any]) -> None:
        self.frames.append(intent)
        if intent["type"] == "ping" and self.answers_pings:
            socket.send('<div id="pong" hidden></div>')

    def sent(self) -> list[dict[str, Any]]:
        return [intent for intent in self.frames if intent["type"] == "send"]


@pytest.mark.usefixtures("anew")
def test_a_socket_whose_other_end_is_silent_is_replaced(signed_in: Page, conversation: Session) -> None:
    page, sockets = signed_in, Sockets(signed_in, answers_pings=False)
    page.clock.install()
    go_and_listen(page, f"/s/{conversation.pk}/")
    assert len(sockets.opened) == 1
    page.clock.run_for(20_500)
    until(page, lambda: sockets.frames == [{"type": "ping"}])
    sockets.answers_pings = True
    until(page, lambda: len(sockets.opened) == 2, doing=lambda: page.clock.run_for(1_000))
    assert "shown=7" in sockets.opened[1].url
    opened(page, times=2)
    expect(page.locator("#connection")).to_be_hidden()
    until(page, lambda: len(sockets.frames) == 2, doing=lambda: page.clock.run_for(1_000))
    expect(page.locator("#pong")).to_have_count(1)
    page.clock.run_for(15_000)
    assert len(sockets.opened) == 2  # this one answers, and stays


@pytest.mark.usefixtures("anew")
def test_what_is_sent_without_a_connection_stays_in_the_box_and_goes_once_when_it_is_back(
    signed_in: Page, conversation: Session, see: See
) -> None:
    page, sockets = signed_in, Sockets(signed_in)
    page.clock.install()
    go_and_listen(page, f"/s/{conversation.pk}/")
    page.evaluate("htmx.config.wsReconnectDelay = () => 600_000")
    sockets.opened[0].close(code=1011)
    expect(page.get_by_text("No connection. Reconnecting")).to_be_visible()
    box = page.get_by_label("Message", exact=True)
    box.fill("are you there?")
    box.press("Enter")
    box.press("Enter")
    expect(page.get_by_text("Your message will be sent when it is back.")).to_be_visible()
    expect(box).to_have_value("are you there?")
    see("chat-offline")
    page.clock.fast_forward(600_000)
    expect(page.locator("#connection")).to_be_hidden()
    expect(box).to_have_value("")
    until(page, lambda: bool(sockets.sent()))
    assert [(it["text"], it["after"], it["leaf"]) for it in sockets.sent()] == [("are you there?", "7", "")]
    assert not {"csrfmiddlewaretoken", "HEADERS"} & set(sockets.sent()[0])


def test_words_that_were_refused_come_back_into_the_box(signed_in: Page, conversation: Session) -> None:
    page, sockets = signed_in, Sockets(signed_in)
    go_and_listen(page, f"/s/{conversation.pk}/")
    box = page.get_by_label("Message", exact=True)
    box.fill("too much")
    box.press("Enter")
    expect(box).to_have_value("")
    sockets.opened[0].send('<div id="notices"><div class="note error">Not now.</div></div>')
    expect(page.get_by_text("Not now.")).to_be_visible()
    expect(box).to_have_value("too much")


def test_only_the_last_answer_can_be_continued(signed_in: Page, ada: Any) -> None:
    session = create_chat(ada, "one")
    cut = model_output("Beca", status="interrupted", end_reason="server_lost")
    recorder.append_many(session, [cut, model_input("two"), cut], after=1)
    signed_in.goto(f"/s/{session.pk}/")
    expect(signed_in.get_by_role("button", name="Try again")).to_have_count(2)
    expect(signed_in.get_by_role("button", name="Continue")).to_have_count(1)
    last = signed_in.locator("#rows > article").last
    expect(last.get_by_role("button", name="Continue")).to_be_visible()


def test_a_page_whose_sign_in_ended_says_so_when_it_connects_again(signed_in: Page, conversation: Session) -> None:
    page, opened = signed_in, list[WebSocketRoute]()

    def pass_on(socket: WebSocketRoute) -> None:
        opened.append(socket)
        socket.connect_to_server()

    page.route_web_socket("**/ws/s/**", pass_on)
    go_and_listen(page, f"/s/{conversation.pk}/")
    page.context.clear_cookies()
    page.evaluate("htmx.config.wsReconnectDelay = () => 10")
    opened[0].close(code=1012)
    line = page.locator("#connection")
    expect(line).to_contain_text("You are signed out. Sign in again", use_inner_text=True)
    box = page.get_by_label("Message", exact=True)
    box.fill("still here?")
    box.press("Enter")
    expect(line).to_contain_text("You are signed out. Sign in again", use_inner_text=True)
    expect(box).to_have_value("still here?")
    line.get_by_role("link", name="Sign in again").click()
    expect(page.get_by_label("Username")).to_be_visible()


def test_a_connection_that_the_server_ends_for_good_says_so(signed_in: Page, conversation: Session) -> None:
    page, sockets = signed_in, Sockets(signed_in)
    go_and_listen(page, f"/s/{conversation.pk}/")
    sockets.opened[0].close(code=4404)
    expect(page.get_by_text("The server closed this connection.")).to_be_visible()
    page.get_by_role("link", name="Reload the page").click()
    expect(page.locator("#connection")).to_be_hidden()


SLOW = """
    window.said = [];
    window.WebSocket = class extends EventTarget {
        static OPEN = 1;
        OPEN = 1;
        readyState = 0;
        constructor() { super(); window.slow = this; }
        send(text) { window.said.push(JSON.parse(text).type); }
        open() { this.readyState = 1; this.onopen(new Event("open")); }
    };
"""


def test_a_button_pressed_before_there_is_a_connection_does_its_work_once_there_is(
    signed_in: Page, conversation: Session
) -> None:
    page = signed_in
    page.add_init_script(SLOW)
    page.goto(f"/s/{conversation.pk}/")
    page.get_by_role("button", name="Continue").click()
    assert page.evaluate("window.said") == []
    page.evaluate("window.slow.open()")
    until(page, lambda: bool(page.evaluate("window.said") == ["continue"]))


def test_a_page_that_never_got_a_socket_posts_its_form(signed_in: Page, conversation: Session) -> None:
    page = signed_in
    page.add_init_script(SLOW)
    page.goto(f"/s/{conversation.pk}/")
    page.get_by_label("Message", exact=True).fill("/title By post")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("By post")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")


# Without


@pytest.mark.parametrize("look", [(1280, "light"), (390, "light")], indirect=True)
def test_it_can_be_read_and_its_older_pages_found_without_javascript(
    plain: Page, site: str, ada: Any, conversation: Session
) -> None:
    page = plain
    enter(page, site, ada)
    page.goto(f"/s/{conversation.pk}/")
    expect(page.get_by_text("The answer was cut short.")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Copy", exact=True).first).to_be_hidden()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    session = create_chat(ada, *[f"text {number}" for number in range(1, 51)])
    page.goto(f"/s/{session.pk}/")
    expect(page.locator("#m50")).to_be_in_viewport()
    page.get_by_role("link", name="Older", exact=True).click()
    expect(page.locator("#m30")).to_be_in_viewport()


def test_on_paper_there_is_the_conversation_and_nothing_else(signed_in: Page, conversation: Session) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    page.emulate_media(media="print")
    for part in ("#sidebar", "#panel", "#composer", ".entry-actions >> nth=0"):
        expect(page.locator(part)).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollHeight > 900")  # all of it, not one screen


# Formulas and diagrams

RICH = r"""Euler: $e^{i\pi} + 1 = 0$, and

$$
\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}
$$

```mermaid
graph LR
  A[Question] --> B{Known?}
  B -->|yes| C[Answer]
  B -->|no| D[Ask]
```
"""


def test_formulas_are_typeset_and_diagrams_drawn_where_there_are_any(signed_in: Page, ada: Any, see: See) -> None:
    page, asked = signed_in, []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"/s/{create_chat(ada, 'no formula', 'and no diagram').pk}/")
    page.wait_for_load_state("networkidle")
    assert not [address for address in asked if "katex" in address or "mermaid" in address]
    page.goto(f"/s/{create_chat(ada, 'Draw it.', RICH).pk}/")
    expect(page.locator(".math.inline .katex")).to_be_visible()
    expect(page.locator(".math.block .katex")).to_be_visible()
    expect(page.frame_locator("iframe.diagram").locator("svg")).to_be_visible()
    expect(page.locator(".code.drawn")).to_be_visible()
    see("chat-rich")
    expect(page.locator("pre.mermaid-source")).to_be_hidden()
    page.get_by_role("button", name="Show the source").click()
    expect(page.locator("pre.mermaid-source")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_of_edges_have_the_colour_of_the_page(signed_in: Page, ada: Any, scheme: Any) -> None:
    diagram = "```mermaid\ngraph LR\n  A -->|yes| B\n  B -- maybe --> C\n```"
    page, session = signed_in, create_chat(ada, "Draw it.", diagram)
    page.emulate_media(color_scheme=scheme)
    page.goto(f"/s/{session.pk}/")
    labels = page.frame_locator("iframe.diagram").locator(".edgeLabel p")
    expect(labels).to_have_count(2)
    paper = page.locator(".code").evaluate("element => getComputedStyle(element).backgroundColor")
    for label in labels.all():
        assert label.evaluate("element => getComputedStyle(element).backgroundColor") == paper


def test_a_diagram_that_makes_no_sense_is_shown_as_it_was_written(signed_in: Page, ada: Any) -> None:
    page, session = signed_in, create_chat(ada, "Draw it.", "```mermaid\ngraph LR\n  A[[[ -->\n```")
    page.goto(f"/s/{session.pk}/")
    expect(page.locator("iframe.diagram")).to_have_count(0)
    expect(page.locator("pre.mermaid-source")).to_be_visible()
