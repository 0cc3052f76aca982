"""History, charts and timelines in a browser: found, narrowed, selected, and read without a script."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from history.access import keys
from history.models import DayTally, Session
from history.record import recorder
from tests.browser.conftest import enter
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.browser

See = Callable[[str], None]
twice = pytest.mark.parametrize("look", [(1280, "light"), (390, "light")], indirect=True, ids=["1280", "390"])


@pytest.fixture
def sessions(ada: Any) -> list[Session]:
    """Of every source, with calls, errors and costs, as a record of some weeks has them."""
    laptop, ci = (keys.create(name=name, owner=ada).api_key for name in ("laptop", "ci"))
    given: list[tuple[float, str, dict[str, Any]]] = [
        (0, "Refactor the payment retry loop", {"source": "relay", "client": "Claude Code", "api_key": laptop}),
        (2, "Why is the build server slow?", {"agent": "assistant"}),
        (26, "支付失败后的处理", {"agent": "assistant"}),
        (50, "Nightly job: 3 of 40 uploads fail", {"source": "relay", "api_key": ci}),
        (24 * 9, "Trip to Hangzhou", {"source": "import", "client": "ChatGPT"}),
        (24 * 40, "Summarise what a very long title of a session may look like when it was not shortened", {}),
    ]
    made = []
    for place, (hours, title, fields) in enumerate(given):
        at = timezone.now() - timedelta(hours=hours)
        session = create_chat(ada, title=title, **fields)
        words = "如果第三次重试仍然失败，就把订单标记为待人工处理" if place == 2 else "The retry must not run twice."
        entries = [
            model_output("Looking.", tool_request("a", name="shell"), at=at, model="claude-sonnet"),
            tool_results(tool_result("a", name="shell", duration=1.5), at=at),
            model_output(words, at=at, model="claude-sonnet" if place < 4 else "gpt", latency=0.8, duration=4.0),
        ]
        recorder.append(session, model_input(title, at=at), after=0)
        recorder.append_many(session, entries, after=1)
        if place == 3:
            recorder.append(session, model_output("", status="failed", error="quota", at=at), after=session.head)
        tokens = {"input_tokens": 18_600 * (place + 1), "output_tokens": 2_400, "cost": "0.42"}
        Session.objects.filter(pk=session.pk).update(last_activity_at=at, **tokens)
        made.append(session)
    return made


def test_the_list_is_searched_narrowed_and_taken_back(
    signed_in: Page, see: See, ada: Any, sessions: list[Session]
) -> None:
    record_of_weeks(ada)
    signed_in.goto("/history/")
    expect(signed_in.locator(".hit")).to_have_count(6)
    see("history")
    signed_in.get_by_label("relay", exact=False).first.check()
    expect(signed_in.locator(".hit")).to_have_count(2)
    expect(signed_in).to_have_url(re.compile(r"/history/\?source=relay$"))
    expect(signed_in.get_by_label("chat", exact=False).first).not_to_be_checked()
    signed_in.get_by_label("Search everything").fill("retry 重试 OR twice")
    expect(signed_in.locator(".quote mark").first).to_be_visible()
    signed_in.get_by_label("Search everything").fill("twice")
    expect(signed_in).to_have_url(re.compile(r"/history/\?q=twice&source=relay$"))
    see("history-found")
    signed_in.evaluate("history.go(-2)")
    expect(signed_in).to_have_url(re.compile(r"/history/\?source=relay$"))
    expect(signed_in.locator(".quote")).to_have_count(0)
    expect(signed_in.locator(".hit")).to_have_count(2)


@pytest.mark.parametrize("look", [(390, "dark")], indirect=True, ids=["390"])
def test_on_a_phone_the_filters_are_a_sheet(signed_in: Page, see: See, sessions: list[Session]) -> None:
    signed_in.goto("/history/")
    expect(signed_in.get_by_label("relay", exact=False).first).to_be_hidden()
    signed_in.get_by_role("button", name="Filters").click()
    see("history-filters")
    signed_in.get_by_label("relay", exact=False).first.check()
    expect(signed_in).to_have_url(re.compile(r"/history/\?source=relay$"))
    expect(signed_in.get_by_label("chat", exact=False).first).to_be_visible()
    signed_in.get_by_role("button", name="Show").click()
    expect(signed_in.locator(".hit")).to_have_count(2)
    expect(signed_in.get_by_label("relay", exact=False).first).to_be_hidden()


@twice
def test_several_are_selected_deleted_and_brought_back(signed_in: Page, sessions: list[Session]) -> None:
    signed_in.goto("/history/")
    expect(signed_in.get_by_role("button", name="Delete")).to_be_hidden()
    signed_in.get_by_label("Select Refactor").check()
    signed_in.get_by_label("Select 支付").click(modifiers=["Shift"])
    expect(signed_in.get_by_text("3 selected")).to_be_visible()
    signed_in.reload()
    expect(signed_in.get_by_text("3 selected")).to_be_visible()
    signed_in.get_by_role("button", name="Delete").click()
    expect(signed_in.get_by_text("3 sessions deleted")).to_be_visible()
    expect(signed_in.locator(".hit")).to_have_count(3)
    signed_in.get_by_role("button", name="Undo").click()
    expect(signed_in.locator(".hit")).to_have_count(6)


def test_charts_are_drawn_from_their_tables(signed_in: Page, see: See, ada: Any, sessions: list[Session]) -> None:
    record_of_weeks(ada)
    signed_in.goto("/charts/")
    expect(signed_in.locator(".plot.drawn canvas")).to_have_count(6)
    see("charts")
    signed_in.get_by_role("link", name="by model").click()
    expect(signed_in).to_have_url(re.compile(r"by=model"))
    signed_in.get_by_text("Numbers", exact=False).nth(1).click()
    expect(signed_in.get_by_role("cell").first).to_be_visible()
    signed_in.locator(".plot").first.hover()
    expect(signed_in.locator(".chart-tip").first).to_be_visible()
    see("charts-by-model")


def test_a_single_day_is_a_dot_and_axes_speak_the_reader_s_language(signed_in: Page, ada: Any) -> None:
    signed_in.add_init_script("""
        const written = (window.written = []), fillText = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
          written.push(text);
          fillText.call(this, text, ...place);
        };
    """)
    type(ada).objects.filter(pk=ada.pk).update(language="zh-hans")
    recorder.append_many(create_chat(ada), [model_input("Why?"), model_output("So.", latency=0.8)], after=0)
    signed_in.goto("/charts/")
    canvas = signed_in.locator(".chart:has(#chart-latency) .plot.drawn canvas")
    expect(canvas).to_be_visible()
    assert "1 秒" in signed_in.evaluate("window.written")
    drawn = """canvas => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), inks = new Set();
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) inks.add(data.slice(at, at + 3).join());
        const line = getComputedStyle(document.querySelector(".chart-names .line-1 path")).stroke.match(/\\d+/g).join();
        return inks.has(line);
    }"""
    assert canvas.evaluate(drawn)


def test_a_timeline_shows_where_the_time_went(signed_in: Page, see: See, ada: Any) -> None:
    noon = timezone.now() - timedelta(hours=3)
    session = create_chat(ada, title="Why is the build server slow?", created_at=noon)
    at = noon
    for turn in range(3):
        at += timedelta(minutes=20)
        entries: list[Any] = [model_input("What is it now?", at=at)]
        for step in range(2 + turn):
            took = 2.5 + step
            tool = tool_result(f"{turn}-{step}", name="shell" if step % 2 else "sys_monitor", duration=3.0 + turn)
            asks = model_output(
                "", tool_request(tool.call_id, name=tool.name), at=at + timedelta(seconds=took), duration=took
            )
            begun = replace(tool, started_at=asks.at, status="failed" if step == 3 else "success")
            at = asks.at + timedelta(seconds=3 + turn)
            entries += [asks, tool_results(begun, at=at)]
        at += timedelta(seconds=4)
        entries.append(model_output("The disk.", at=at, duration=4.0, model="claude-sonnet"))
        recorder.append_many(session, entries, after=session.head)
    signed_in.goto(session.get_absolute_url())
    signed_in.get_by_role("link", name="Timeline").first.click()
    expect(signed_in.get_by_role("heading", name="Timeline")).to_be_visible()
    see("timeline")
    signed_in.get_by_role("link", name="shell").first.click()
    expect(signed_in).to_have_url(re.compile(r"\?at=\d+#m\d+$"))


def record_of_weeks(owner: Any) -> None:
    """Counts of two months, in place of those of the sessions so far."""
    DayTally.objects.filter(owner=owner).delete()
    chance = random.Random(5)
    today = timezone.now().date()
    for day in range(60):
        for model, size in (("", 14), ("claude-sonnet", 9), ("gpt", 4), ("gemini-flash", 2)):
            number = max(1, round(size * (1.4 if (today - timedelta(days=day)).weekday() < 5 else 0.3)))
            DayTally.objects.create(
                day=today - timedelta(days=day + 1),
                owner=owner,
                source="chat",
                model=model,
                sessions=chance.randint(2, 2 + number) if not model else 0,
                messages=number * chance.randint(3, 6),
                answers=number * chance.randint(1, 3) if model else 0,
                input_tokens=number * chance.randint(2_000, 9_000),
                output_tokens=number * chance.randint(200, 900),
                errors=chance.randint(0, 2) if model else 0,
                cut_short=chance.randint(0, 1) if model else 0,
                tool_milliseconds=number * chance.randint(0, 20_000) if model else 0,
                **({f"wait_{chance.randint(1, 3)}": number, "wait_4": 1} if model else {}),
            )


@pytest.mark.parametrize("look", [(1280, "light")], indirect=True, ids=["1280"])
def test_a_long_list_goes_on_as_one_scrolls(signed_in: Page, ada: Any) -> None:
    for number in range(40):
        create_chat(ada, title=f"Session {number}")
    signed_in.goto("/history/")
    expect(signed_in.locator(".hit")).to_have_count(30)
    signed_in.locator(".hits-further").scroll_into_view_if_needed()
    expect(signed_in.locator(".hit")).to_have_count(40)


def test_without_a_script_everything_can_be_reached(plain: Page, site: str, ada: Any) -> None:
    for number in range(35):
        create_chat(ada, f"words of {number}", title=f"Session {number}", source="relay" if number % 2 else "chat")
    page = plain
    enter(page, site, ada)
    page.goto("/history/")
    page.get_by_role("link", name="Older").click()
    expect(page.locator(".hit")).to_have_count(5)
    page.goto("/history/")
    page.get_by_label("relay", exact=False).first.check()
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".hit")).to_have_count(17)
    page.get_by_label("Search everything").fill("words")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".quote mark").first).to_be_visible()
    page.locator(".pick").first.check()
    page.get_by_role("button", name="Archive").click()
    expect(page).to_have_url(re.compile(r"q=words"))
