"""A conversation in a real browser: sent, streamed, stopped, left and come back to, branched, asked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from history.answers.events import ReasoningPiece, ToolCallPiece
from history.models import Message, Session
from history.record import recorder
from relay.live import groups, run_task
from relay.models import Run
from tests.browser.conftest import Scripted, enter, go_and_listen, until
from tests.factories import create_chat

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("one_agent")]
See = Callable[[str], None]


def let_go(gate: asyncio.Event) -> None:
    """Steps of a script wait in the server's loop, not in ours."""
    for live in list(run_task.local_tasks.values()):
        live.loop.call_soon_threadsafe(gate.set)


def send_message(page: Page, text: str) -> None:
    page.locator("#composer-text").fill(text)
    page.locator("#composer-text").press("Enter")


def begin(page: Page, text: str) -> None:
    page.goto("/")
    send_message(page, text)
    page.wait_for_url(re.compile("/s/[0-9a-f-]+/"))


def finished(page: Page) -> None:
    """The answer is complete."""
    expect(page.locator("article.answer").last).to_be_visible()
    expect(page.locator("article.live")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def answered(page: Page, words: str) -> None:
    """By one answer that says this, and no other."""
    expect(page.locator("article.answer").last).to_contain_text(words)
    expect(page.locator("article.answer")).to_have_count(1)


def announced(page: Page, words: str) -> None:
    expect(page.locator("#announcer")).to_have_text(words)


def test_a_first_message_becomes_a_conversation_that_is_answered_as_one_watches(
    signed_in: Page, scripted: Scripted, see: See
) -> None:
    gate = asyncio.Event()
    scripted(["## Lighthouses\n\nThey **shine**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAnd then", gate, " they stop."])
    begin(signed_in, "Tell me about lighthouses")
    live = signed_in.locator("article.live")
    expect(live.locator("strong")).to_have_text("shine")
    expect(live.locator("table")).to_be_visible()
    expect(live).to_contain_text("And then")
    expect(signed_in.get_by_role("button", name="Stop")).to_be_visible()
    see("chat-streaming")
    let_go(gate)
    announced(signed_in, "The answer is finished.")
    finished(signed_in)
    answered(signed_in, "And then they stop.")
    expect(signed_in.locator("#composer-text")).to_have_value("")
    expect(signed_in.locator("#panel .lanes").first).to_be_attached()
    expect(signed_in.locator("#sidebar .sidebar-answering")).to_have_count(0)
    see("chat-answered")


LISTEN = """() => {
    window.heard = [];
    const listen = new MutationObserver(changes => {
        for (const { target } of changes) {
            const place = target.parentElement?.closest("[aria-live], [role=status], [role=alert], [role=log]");
            const region = target.matches?.("[aria-live], [role=status], [role=alert], [role=log]") ? target : place;
            const words = region?.textContent.trim();
            if (words && words !== window.heard.at(-1)) window.heard.push(words);
        }
    });
    listen.observe(document.body, { childList: true, characterData: true, subtree: true });
}"""


@pytest.mark.any_database
def test_a_screen_reader_hears_that_the_answer_is_finished_and_none_of_its_words(
    signed_in: Page, scripted: Scripted, ada: Any
) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    scripted(["one ", gates[0], "two ", gates[1], "three ", gates[2], "four"])
    go_and_listen(signed_in, f"/s/{create_chat(ada, 'Hello?', 'Hello.').pk}/")
    signed_in.evaluate(LISTEN)
    send_message(signed_in, "Count")
    for gate, word in zip(gates, ("one", "two", "three"), strict=True):
        expect(signed_in.locator("article.live")).to_contain_text(word)
        let_go(gate)
    expect(signed_in.locator("article.answer").last).to_contain_text("four")
    finished(signed_in)
    announced(signed_in, "The answer is finished.")
    assert signed_in.evaluate("window.heard") == ["The answer is finished."]


def test_a_reload_in_mid_stream_and_another_browser_show_the_same_and_go_on(
    signed_in: Page, scripted: Scripted, browser: Browser, site: str, ada: Any
) -> None:
    gate = asyncio.Event()
    scripted(["one two three ", gate, "four five"])
    begin(signed_in, "Count")
    expect(signed_in.locator("article.live")).to_contain_text("one two three")
    signed_in.reload()
    expect(signed_in.locator("article.live")).to_contain_text("one two three")
    context = browser.new_context(base_url=site)
    other = context.new_page()
    enter(other, site, ada)
    other.goto(signed_in.url)
    expect(other.locator("article.live")).to_contain_text("one two three")
    let_go(gate)
    for each in (signed_in, other):
        finished(each)
        answered(each, "one two three four five")


def test_a_long_answer_stays_whole_where_it_was_watched(signed_in: Page, scripted: Scripted) -> None:
    gate = asyncio.Event()
    text = "".join(f"## Part {number}\n\nSome words.\n\n" for number in range(1, 1_000))
    scripted([text, gate, "The end."])
    begin(signed_in, "Write a long one")
    expect(signed_in.locator("article.live h3", has_text="Part 999")).to_have_count(1)
    talk = signed_in.locator("#talk")
    talk.evaluate("(talk) => (talk.scrollTop = -3000)")
    let_go(gate)
    finished(signed_in)
    expect(signed_in.locator("article.answer")).to_contain_text("The end.")
    expect(signed_in.locator("article.answer .cut")).to_have_count(0)
    until(signed_in, lambda: abs(talk.evaluate("(talk) => talk.scrollTop") + 3000) < 200)


def test_closing_the_tab_loses_nothing(signed_in: Page, scripted: Scripted) -> None:
    gate = asyncio.Event()
    scripted(["A long ", gate, "answer."])
    tab = signed_in.context.new_page()
    begin(tab, "Write")
    expect(tab.locator("article.live")).to_contain_text("A long")
    address = tab.url
    tab.close()
    let_go(gate)
    signed_in.goto(address)
    answered(signed_in, "A long answer.")


def test_stop_keeps_the_text_and_the_page_offers_to_continue(signed_in: Page, scripted: Scripted) -> None:
    scripted(["The first half", asyncio.Event()], " and the second.")
    begin(signed_in, "Write")
    expect(signed_in.locator("article.live")).to_contain_text("The first half")
    signed_in.get_by_role("button", name="Stop").click()
    announced(signed_in, "The answer was stopped.")
    finished(signed_in)
    answered(signed_in, "The first half")
    signed_in.get_by_role("button", name="Continue").click()
    finished(signed_in)
    expect(signed_in.locator("article.answer").last).to_contain_text("and the second.")


@pytest.mark.any_database
def test_a_tool_is_a_card_that_opens(signed_in: Page, scripted: Scripted, see: See) -> None:
    call = ToolCallPiece(part="c", call_id="c", name="sys_monitor", arguments='{"metric": "cpu"}')
    scripted([ReasoningPiece(part="r", text="Look at the processor first."), call], "It is idle.")
    begin(signed_in, "Is the server busy?")
    finished(signed_in)
    card = signed_in.locator("details.tool")
    expect(card).to_have_count(1)
    expect(card.locator("summary")).to_contain_text("success")
    card.locator("summary").click()
    expect(card).to_contain_text("CPU")
    expect(signed_in.locator("article.answer").last).to_contain_text("It is idle.")
    see("chat-tool")


@pytest.mark.any_database
def test_a_question_of_the_agent_is_answered_in_its_place(signed_in: Page, scripted: Scripted, see: See) -> None:
    question = ToolCallPiece(part="q", call_id="q", name="ask_user", arguments='{"question": "Which server?"}')
    scripted([question], "The second one, then.")
    begin(signed_in, "Restart it")
    finished(signed_in)
    asked = signed_in.locator("form", has_text="Which server?").or_(
        signed_in.locator("article.answer", has_text="Which server?")
    )
    expect(asked.first).to_be_visible()
    see("chat-question")
    box = signed_in.locator("article.answer textarea, article.answer input[name=text]").first
    box.fill("The second")
    box.press("Enter")
    finished(signed_in)
    expect(signed_in.locator("article.answer").last).to_contain_text("The second one, then.")


@pytest.mark.any_database
def test_edit_and_regenerate_make_branches_and_one_moves_among_them(signed_in: Page, scripted: Scripted) -> None:
    scripted("First answer.", "Second answer.", "Third answer.")
    begin(signed_in, "Question for you")
    finished(signed_in)
    signed_in.locator("article.answer").get_by_role("button", name="Regenerate").click()
    answered(signed_in, "Second answer.")
    finished(signed_in)
    expect(signed_in.locator("article.answer .versions").last).to_contain_text("2")
    signed_in.locator("article.answer").get_by_role("link", name="Previous version").click()
    answered(signed_in, "First answer.")
    signed_in.goto(signed_in.url.split("?")[0])
    signed_in.locator("article.you").hover()
    signed_in.locator("article.you").get_by_role("button", name="Edit").click()
    box = signed_in.locator("article.you textarea")
    box.fill("A better question")
    box.press("Enter")
    expect(signed_in.locator("article.you").last).to_contain_text("A better question")
    answered(signed_in, "Third answer.")
    finished(signed_in)
    assert Message.objects.filter(kind="model_output").count() == 3


def test_what_is_written_during_an_answer_waits_and_is_sent_by_itself(signed_in: Page, scripted: Scripted) -> None:
    gate = asyncio.Event()
    scripted(["First", gate], "Second")
    begin(signed_in, "one")
    expect(signed_in.locator("article.live")).to_contain_text("First")
    send_message(signed_in, "two")
    expect(signed_in.locator("#queue")).to_contain_text("two")
    let_go(gate)
    expect(signed_in.locator("article.you").last).to_contain_text("two")
    expect(signed_in.locator("article.answer").last).to_contain_text("Second")
    expect(signed_in.locator("#queue")).not_to_contain_text("two")


@pytest.mark.any_database
def test_commands_work_without_a_model_and_leave_the_composer_empty(signed_in: Page, scripted: Scripted) -> None:
    provider = scripted("never")
    begin(signed_in, "/sys_monitor cpu")
    expect(signed_in.locator("details.tool summary")).to_contain_text("success")
    send_message(signed_in, "/help")
    expect(signed_in.locator("#notices")).to_contain_text("/rollback")
    expect(signed_in.locator("#commands")).to_be_hidden()
    expect(signed_in.locator("#notices li").first).to_be_visible()
    expect(signed_in.locator("#composer-text")).to_have_value("")
    send_message(signed_in, "/title The build server")
    expect(signed_in.get_by_role("heading", level=1)).to_have_text("The build server")
    send_message(signed_in, "/fork")
    signed_in.wait_for_url(
        lambda url: Session.objects.count() == 2 and str(Session.objects.latest("stored_at").pk) in url
    )
    assert provider.calls == []


def test_two_tabs_that_write_at_once_get_two_branches(signed_in: Page, scripted: Scripted, site: str, ada: Any) -> None:
    scripted("Hello.", lambda context, options: f"You said {context.entries[-1].content}.")
    begin(signed_in, "Hello")
    finished(signed_in)
    other = signed_in.context.new_page()
    other.goto(signed_in.url)
    seen = other.locator("#composer-after").input_value()
    send_message(signed_in, "one")
    expect(other.locator("article.answer").last).to_contain_text("You said one.")
    finished(other)
    # It sends what a tab sends that has not seen the first message yet, also if an update comes meanwhile.
    other.evaluate(
        """(seen) => document.addEventListener("htmx:wsConfigSend", ({ detail: { parameters } }) => {
            parameters.after = seen;
            parameters.run = "";
        })""",
        seen,
    )
    send_message(other, "two")
    expect(other.locator("#notices")).to_contain_text("branch")
    expect(other.locator("article.answer").last).to_contain_text("You said two.")
    assert Message.objects.filter(kind="model_input").count() == 3


@pytest.mark.usefixtures("anew")
def test_a_server_that_is_away_is_said_and_what_was_missed_comes_when_it_is_back(
    signed_in: Page, scripted: Scripted
) -> None:
    gate = asyncio.Event()
    scripted(["Before ", gate, "and after."])
    begin(signed_in, "Write")
    expect(signed_in.locator("article.live")).to_contain_text("Before")
    signed_in.context.set_offline(True)
    signed_in.evaluate("() => window.dispatchEvent(new Event('offline'))")
    expect(signed_in.locator("#connection")).to_be_visible(timeout=40_000)
    let_go(gate)
    until(signed_in, lambda: not Run.objects.filter(ended_at=None).exists())
    signed_in.context.set_offline(False)
    expect(signed_in.locator("article.answer .prose").last).to_have_text("Before and after.", timeout=40_000)
    answered(signed_in, "Before and after.")


@pytest.mark.parametrize("name", ["Summarise", "Send"])
def test_the_focus_stays_on_a_button_while_the_page_is_updated(signed_in: Page, ada: Any, name: str) -> None:
    page, session = signed_in, create_chat(ada, "one row")
    go_and_listen(page, f"/s/{session.pk}/")
    button = page.get_by_role("button", name=name, exact=True)
    button.focus()
    recorder.rename(session, title="A long carpet")
    groups.refresh_local_sockets(session.pk)
    expect(page.get_by_role("heading", level=1)).to_have_text("A long carpet")
    expect(button).to_be_focused()


def test_the_focus_stays_on_stop_when_a_part_of_the_answer_is_stored(
    signed_in: Page, ada: Any, scripted: Scripted
) -> None:
    page, first, second = signed_in, asyncio.Event(), asyncio.Event()
    call = ToolCallPiece(part="c", call_id="c", name="current_time", arguments="{}")
    scripted([first, call], ["And", second, "so on."])
    session = create_chat(ada, "one row", "Yes.")
    go_and_listen(page, f"/s/{session.pk}/")
    send_message(page, "What time is it?")
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.focus()
    let_go(first)
    expect(page.locator("#rows .live")).to_contain_text("And")
    expect(stop).to_be_focused()
    stop.press("Enter")
    expect(page.locator("#announcer")).to_have_text("The answer was stopped.")
    expect(stop).to_have_count(0)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()


def test_older_messages_are_summarised_shown_and_brought_back(
    signed_in: Page, ada: Any, scripted: Scripted, see: See
) -> None:
    page, gate = signed_in, asyncio.Event()
    scripted([gate, "## Goal\nTo weave a long carpet.\n## Next step\nWeave on, row by row, until it is done."])
    session = create_chat(ada, *["one row, and then another one " * 30] * 8)
    go_and_listen(page, f"/s/{session.pk}/")
    expect(page.locator("#summarising")).to_be_empty()
    page.locator("#panel").get_by_role("button", name="Summarise").press("Enter")
    expect(page.get_by_role("status").filter(has_text="Summarising older messages …")).to_be_visible()
    expect(page.locator("#panel").get_by_role("button", name="Summarising …")).to_be_disabled()
    see("chat-summarising")
    let_go(gate)
    fold, goal = page.locator(".summary-fold"), page.get_by_text("To weave a long carpet.")
    expect(fold).to_contain_text("4 messages summarised")
    expect(goal).to_be_hidden()
    fold.locator("summary").click()
    expect(goal).to_be_visible()
    expect(page.locator("#summarising")).to_be_empty()
    expect(page.locator("#panel").get_by_role("button", name="Summarise")).to_be_enabled()
    page.locator("[data-undo-summary]").click()
    expect(fold).to_contain_text("undone")
    expect(page.locator("[data-undo-summary]")).to_have_count(0)
    page.reload()
    expect(fold).to_contain_text("undone")


@pytest.mark.any_database
def test_after_stop_what_waits_is_sent_or_dropped_by_its_buttons(signed_in: Page, scripted: Scripted, see: See) -> None:
    scripted(["First", asyncio.Event()], "Second")
    begin(signed_in, "one")
    expect(signed_in.locator("article.live")).to_contain_text("First")
    for text in ("two", "three"):
        send_message(signed_in, text)
        expect(signed_in.locator("#queue")).to_contain_text(text)
    expect(signed_in.locator("#queue-send")).to_have_count(0)
    signed_in.get_by_role("button", name="Stop").click()
    expect(signed_in.locator("#queue")).to_contain_text("Not sent")
    see("messages-not-sent")
    signed_in.locator("#queue .queued", has_text="three").get_by_role("button", name="Do not send").click()
    expect(signed_in.locator("#queue")).not_to_contain_text("three")
    signed_in.get_by_role("button", name="Send now").click()
    expect(signed_in.locator("article.answer").last).to_contain_text("Second")
    expect(signed_in.locator("#queue")).not_to_contain_text("two")
    expect(signed_in.locator("article.you")).to_have_count(2)


@pytest.mark.any_database
def test_a_message_written_as_the_answer_ends_continues_it(signed_in: Page, scripted: Scripted) -> None:
    """The page hears nothing of the end, as with a slow network, and sends what it showed."""
    gate = asyncio.Event()
    provider = scripted(["First", gate], "Second")
    begin(signed_in, "one")
    expect(signed_in.locator("article.live")).to_contain_text("First")
    after = signed_in.locator("#composer-after").get_attribute("value")
    run = signed_in.locator("#composer-run").get_attribute("value")
    version = signed_in.locator("#composer-version").get_attribute("value")
    let_go(gate)
    finished(signed_in)
    signed_in.evaluate(
        """([after, run, version]) => {
            document.getElementById("composer-after").value = after;
            document.getElementById("composer-run").value = run;
            document.getElementById("composer-version").value = version;
        }""",
        [after, run, version],
    )
    send_message(signed_in, "two")
    expect(signed_in.locator("article.answer").last).to_contain_text("Second")
    signed_in.reload()
    expect(signed_in.locator("article.you")).to_have_count(2)
    assert [entry.content for entry in provider.calls[-1].context.entries][-3:] == ["one", "First", "two"]
