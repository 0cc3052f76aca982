"""Counts by day, and the charts that are drawn from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client, override_settings
from django.utils import timezone

from history import retention
from history.access import keys
from history.entries import Usage
from history.models import DayTally, Message, Session
from history.pages.charts import latency_percentile
from history.record import exchanges, recorder
from history.record.daily_count_rules import WAIT_NAMES
from history.retention import removal
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db

LONG_AGO = datetime(2026, 3, 1, 12, tzinfo=UTC)


def talk(owner: Any, *, at: datetime, model: str = "model-1", **fields: Any) -> Session:
    """A question, a call that failed, and an answer."""
    session = recorder.start_session(owner=owner, **fields)
    usage = Usage(input_tokens=100, output_tokens=20)
    entries = [
        model_input("Why?", at=at),
        model_output("", tool_request("a"), at=at, model=model, agent="coder"),
        tool_results(tool_result("a", duration=1.5, status="failed", error="no"), at=at, agent="coder"),
        model_output("So.", at=at, model=model, agent="coder", usage=usage, latency=0.8),
    ]
    recorder.append_many(session, entries, after=0)
    return session


def counted(day: date, *names: str) -> list[tuple[Any, ...]]:
    return list(DayTally.objects.filter(day=day).order_by("model").values_list(*names))


# Counting.


def test_a_day_is_counted_by_owner_key_source_agent_and_model(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    talk(ada, at=LONG_AGO, source="relay", api_key=key)
    talk(ada, at=LONG_AGO, model="model-2")
    names = ("source", "api_key", "agent", "model", "sessions", "messages", "answers")
    assert set(counted(LONG_AGO.date(), *names)) == {
        ("relay", key.pk, "", "", 1, 1, 0),
        ("chat", None, "", "", 1, 1, 0),
        ("relay", key.pk, "coder", "model-1", 0, 2, 2),
        ("chat", None, "coder", "model-2", 0, 2, 2),
    }
    sums = ("errors", "tool_calls", "tool_milliseconds", "input_tokens", "output_tokens", "wait_2", "cut_short")
    assert counted(LONG_AGO.date(), *sums)[-1] == (1, 1, 1500, 100, 20, 1, 0)


def test_the_cost_of_a_call_counts_on_the_day_of_its_answer(ada: Any) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.finish(exchange, model_output("hi"), end_reason="done", cost=Decimal("0.25"))
    assert sum(DayTally.objects.values_list("cost", flat=True)) == Decimal("0.25")


def test_calls_that_left_no_answer_are_counted_too_with_what_they_took(ada: Any) -> None:
    """A title that a program asks for, a key that keeps no replies or counts only: all of it was paid for."""
    key = keys.create(name="laptop", owner=ada).api_key
    session = talk(ada, at=LONG_AGO, source="relay", api_key=key)
    spent = {"input_tokens": 7, "output_tokens": 3}
    aside = exchanges.open_exchange(session, owner=ada, api_key=key, model="model-0", started_at=LONG_AGO)
    exchanges.finish(aside, None, end_reason="done", cost=Decimal("0.5"), usage=spent)
    day_after = LONG_AGO + timedelta(days=1)
    loose = exchanges.open_exchange(None, owner=ada, api_key=key, model="model-0", started_at=day_after)
    exchanges.finish(loose, None, end_reason="done", cost=Decimal("0.5"), usage=spent)
    columns = ("source", "api_key", "model", "input_tokens", "output_tokens", "cost")
    expected = ("relay", key.pk, "model-0", 7, 3, Decimal("0.5"))
    assert expected in counted(LONG_AGO.date(), *columns)
    assert counted(day_after.date(), *columns) == [expected]
    removal.remove_exchanges([loose.pk])
    assert counted(day_after.date(), *columns) == []


def test_what_a_trimmed_turn_took_goes_with_it_however_it_was_told(ada: Any) -> None:
    """The cost of an answer, and that of a call beside it that left none."""
    session = create_chat(ada, "hello", source="relay")
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.finish(exchange, model_output("hi"), end_reason="done", cost=Decimal("0.25"))
    aside = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.finish(aside, None, end_reason="done", cost=Decimal("0.5"))
    recorder.append_many(session, [model_input("and?"), model_output("so")], after=2)
    assert sum(DayTally.objects.values_list("cost", flat=True)) == Decimal("0.75")
    with override_settings(CHAT_HISTORY_MAX_MESSAGES=2):
        retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.trimmed_through == 2
    assert sum(DayTally.objects.values_list("cost", flat=True)) == 0
    assert sum(DayTally.objects.values_list("messages", flat=True)) == 2


def test_what_is_removed_is_gone_from_the_counts_at_once(ada: Any) -> None:
    session = talk(ada, at=LONG_AGO)
    other = talk(ada, at=LONG_AGO)
    assert sum(DayTally.objects.values_list("sessions", flat=True)) == 2
    retention.erase(session, actor=None, reason="asked to")
    assert sum(DayTally.objects.values_list("sessions", flat=True)) == 1
    retention.erase(other, actor=None, reason="asked to")
    assert not DayTally.objects.exists()


def test_what_a_fork_copied_is_counted_once(ada: Any) -> None:
    session = talk(ada, at=LONG_AGO)
    recorder.fork(session, at=4, owner=ada)
    assert Message.objects.count() == 8
    assert sum(DayTally.objects.values_list("messages", flat=True)) == 3


@pytest.mark.parametrize(
    ("waits", "share", "expected"),
    [({}, 0.5, None), ({2: 10}, 0.5, 0.75), ({2: 10}, 1.0, 1.0), ({0: 5, 4: 5}, 0.5, 0.25), ({9: 3}, 0.5, 60.0)],
)
def test_a_median_is_read_off_the_classes(waits: dict[int, int], share: float, expected: float | None) -> None:
    sums = {name: waits.get(number, 0) for number, name in enumerate(WAIT_NAMES)}
    assert latency_percentile(share, sums) == expected


# The page.


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def grant(staff: Any) -> Callable[..., Any]:
    def grant(*rights: str) -> Any:
        staff.user_permissions.set(Permission.objects.filter(codename__in=[f"{right}_session" for right in rights]))
        return type(staff).objects.get(pk=staff.pk)

    return grant


def read(client: Client, query: str = "") -> str:
    response = client.get("/charts/" + query)
    assert response.status_code == 200
    return response.content.decode()


def numbers(html: str, chart: str) -> dict[str, dict[str, str]]:
    """Day → line → what the table says, without the zeros."""
    part = html.split(f'id="chart-{chart}"')[1].split("</section>")[0]
    names = re.findall(r'<th scope="col" data-line="\d">([^<]*)</th>', part)
    shown_days = {}
    for day, cells in re.findall(r'datetime="([^"]*)".*?</th>(.*?)</tr>', part):
        cells_by_name = dict(zip(names, re.findall(r"<td[^>]*>([^<]*)</td>", cells), strict=True))
        if shown := {name: words for name, words in cells_by_name.items() if words not in ("0", "–", "0.0 s")}:
            shown_days[day] = shown
    return shown_days


def test_each_chart_has_a_table_of_its_numbers(reader: Client, ada: Any) -> None:
    at = timezone.now() - timedelta(days=3)
    talk(ada, at=at)
    day = at.date().isoformat()
    html = read(reader)
    assert numbers(html, "sessions") == {day: {"started": "1"}}
    assert numbers(html, "messages") == {day: {"messages": "3"}}
    assert numbers(html, "tokens") == {day: {"read": "100", "written": "20"}}
    assert numbers(html, "errors") == {day: {"errors": "1"}}
    assert numbers(html, "tools") == {day: {"time of tools": "1.5 s"}}
    assert numbers(html, "latency")[day]["median"] == "0.8 s"
    assert html.count("<polyline") >= 6


def test_charts_and_lists_count_the_same_messages(reader: Client, ada: Any) -> None:
    session = talk(ada, at=timezone.now())
    recorder.append(session, model_input("Go on.", is_internal=True, channel="agent"), after=session.head)
    counted = numbers(read(reader), "messages")
    assert [int(day["messages"]) for day in counted.values()] == [Session.objects.get().message_count] == [3]


def test_what_was_measured_on_a_single_day_is_drawn_too(reader: Client, ada: Any) -> None:
    talk(ada, at=timezone.now())
    lines = {
        "/charts/": read(reader).split('id="chart-latency"')[1].split("</section>")[0],
        "/history/": reader.get("/history/").content.decode().split("#chart-latency")[1].split("</li>")[0],
    }
    for html in lines.values():
        [(left, height), (right, same)] = re.findall(r"([\d.]+),([\d.]+)", html.split('points="')[1].split('"')[0])
        assert float(left) < float(right) <= 600
        assert height == same


def test_the_axes_of_times_speak_the_reader_s_language(reader: Client, ada: Any) -> None:
    talk(ada, at=timezone.now())
    html = reader.get("/charts/", headers={"Accept-Language": "zh-hans"}).content.decode()
    assert 'data-seconds="{number} 秒" data-minutes="{number} 分钟" data-hours="{number} 小时"' in html


def test_it_is_grouped_by_model_key_or_agent(reader: Client, ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    now = timezone.now()
    talk(ada, at=now, model="model-1", source="relay", api_key=key)
    talk(ada, at=now, model="model-2")
    day = now.astimezone(UTC).date().isoformat()
    assert numbers(read(reader, "?by=model"), "messages")[day] == {"model-1": "2", "model-2": "2"}
    assert numbers(read(reader, "?by=key"), "messages")[day] == {"laptop": "3", "no key": "3"}
    assert numbers(read(reader, "?by=agent"), "tools")[day] == {"coder": "3.0 s"}


def test_the_smallest_are_drawn_together(reader: Client, ada: Any) -> None:
    for number in range(8):
        for _ in range(8 - number):
            talk(ada, at=timezone.now(), model=f"model-{number}")
    day = timezone.now().astimezone(UTC).date().isoformat()
    shown = numbers(read(reader, "?by=model"), "messages")[day]
    assert len(shown) <= 6
    assert shown["model-0"] == "16"
    assert "others" in shown


@pytest.mark.parametrize(("name", "points"), [("7d", 7), ("30d", 30), ("90d", 90), ("1y", 53)])
def test_range_and_grouping_are_in_the_address(reader: Client, ada: Any, name: str, points: int) -> None:
    talk(ada, at=timezone.now())
    html = read(reader, f"?range={name}&by=source")
    assert html.split('id="chart-messages"')[1].split("</section>")[0].count("<time") in (points, points + 1)
    assert 'aria-current="page">by source' in html
    other = "7d" if name != "7d" else "90d"
    assert f'href="?range={other}&amp;by=source"' in html


def test_everything_is_told_by_month_from_the_first_one_on(reader: Client, ada: Any) -> None:
    now = timezone.now()
    talk(ada, at=now)
    talk(ada, at=now - timedelta(days=100))
    assert len(numbers(read(reader, "?range=all"), "sessions")) == 2


def test_a_person_sees_their_own_numbers_and_staff_what_they_may_list(
    client: Client, ada: Any, bob: Any, grant: Callable[..., Any]
) -> None:
    now = timezone.now()
    talk(ada, at=now)
    talk(bob, at=now)
    day = now.astimezone(UTC).date().isoformat()
    client.force_login(bob)
    assert numbers(read(client, "?by=owner"), "sessions") == {day: {"started": "1"}}
    grace = grant()
    client.force_login(grace)
    assert "Nothing was recorded in this period" in read(client)
    client.force_login(grant("view"))
    assert numbers(read(client), "sessions") == {day: {"started": "2"}}
    assert numbers(read(client, "?by=owner"), "sessions") == {day: {"ada": "1", "bob": "1"}}
    assert "Nothing was recorded in this period" in read(client, "?whose=me")


def test_history_begins_with_the_last_thirty_days_in_four_numbers(reader: Client, ada: Any, bob: Any) -> None:
    assert 'class="headlines"' not in reader.get("/history/").content.decode()
    talk(ada, at=timezone.now() - timedelta(days=2))
    talk(ada, at=timezone.now() - timedelta(days=40))
    talk(bob, at=timezone.now())
    html = reader.get("/history/").content.decode()
    shown = re.findall(r"<strong>([^<]*)</strong><span>([^<]*)</span>", html)
    assert shown == [
        ("1", "sessions in 30 days"),
        ("120", "tokens"),
        ("0.8 s", "time to first token, median"),
        ("0.0 %", "answers cut short"),
    ]
    assert 'class="headlines"' not in reader.get("/history/?q=why").content.decode()


@pytest.mark.parametrize("query", ["?range=x&by=y", "?range=all", "?by=owner", "?whose=me", "?range=%00&by=%00"])
def test_no_address_is_an_error(reader: Client, query: str) -> None:
    assert "Nothing was recorded in this period" in read(reader, query)


def test_anonymous_users_are_asked_to_sign_in(client: Client) -> None:
    assert client.get("/charts/")["Location"] == "/accounts/signin/?next=/charts/"
