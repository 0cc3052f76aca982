"""REST: tool calls as rows, exchanges, and search."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from history.access import keys
from history.models import Exchange, Session, ToolCall
from history.record import exchanges, recorder, tool_calls
from project.accounts.models import User
from tests.clients import Api, secret_of
from tests.factories import answered, call, chat_of, result, results, said
from tests.rows import by_hand

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 11, 1, 12, tzinfo=UTC)


def talk_with_tools(owner: User, *names: str, at: datetime = DAY, failed: bool = False, **fields: Any) -> Session:
    session = recorder.start_session(owner=owner, created_at=at, **fields)
    requests = [call(f"c{number}", name) for number, name in enumerate(names)]
    outcome = {"status": "failed", "error": "no such host"} if failed else {}
    outcomes = [result(f"c{number}", name=name, **outcome) for number, name in enumerate(names)]
    entries = [said("go", at=at), answered("", *requests, at=at), results(*outcomes, at=at)]
    recorder.append_many(session, entries, after=0)
    return session


def tools(page: Any) -> list[str]:
    return [row["tool_name"] for row in page["results"]]


def test_calls_across_sessions_are_rows(ada: User, bob: User) -> None:
    talk_with_tools(bob, "strangers_tool")
    session = talk_with_tools(ada, "search_history", "current_time")
    later = talk_with_tools(ada, "sys_monitor", at=DAY + timedelta(days=1), failed=True)
    page = Api(ada).get("/tool-calls")
    assert tools(page) == ["sys_monitor", "current_time", "search_history"]
    first, *_, last = page["results"]
    assert (first["session_id"], first["seq"], first["index"], first["status"]) == (str(later.pk), 2, 0, "failed")
    assert (first["error"], first["answered_by"], first["reason_needed"]) == ("no such host", 3, False)
    assert (last["session_id"], last["index"], last["arguments"]) == (str(session.pk), 0, {"metric": "cpu"})


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("tool=alpha", ["alpha", "alpha"]),
        ("status=failed", ["beta", "alpha"]),
        ("from=2026-11-02", ["beta", "alpha"]),
        ("to=2026-11-01", ["alpha"]),
        ("tool=alpha&status=success", ["alpha"]),
        ("tool=gamma", []),
    ],
)
def test_rows_are_narrowed(ada: User, asked: str, found: list[str]) -> None:
    first = talk_with_tools(ada, "alpha")
    talk_with_tools(ada, "alpha", "beta", at=DAY + timedelta(days=1), failed=True)
    assert tools(Api(ada).get(f"/tool-calls?{asked}")) == found
    assert tools(Api(ada).get(f"/tool-calls?session={first.pk}")) == ["alpha"]


def test_pages_of_rows_lead_on_through_sessions_large_and_small(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "FIRST_ROUND", 2)
    for number in range(7):
        names = [f"tool_{number}_{place}" for place in range(number)]
        talk_with_tools(ada, *names, at=DAY + timedelta(hours=number))
    whole = tools(Api(ada).get("/tool-calls?limit=200"))
    assert len(whole) == 21
    seen: list[Any] = []
    address: Any = "/tool-calls?limit=4"
    while address:
        page = Api(ada).get(address)
        assert page["previous"] is None
        seen += tools(page)
        address = page["next"]
    assert seen == whole


def test_a_filter_that_leaves_little_says_where_to_read_on(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "FIRST_ROUND", 1)
    monkeypatch.setattr(tool_calls, "LARGEST_ROUND", 1)
    monkeypatch.setattr(tool_calls, "ROUNDS", 2)
    talk_with_tools(ada, "rare")
    for hour in range(1, 4):
        talk_with_tools(ada, "common", at=DAY + timedelta(hours=hour))
    page = Api(ada).get("/tool-calls?tool=rare")
    assert tools(page) == []
    assert tools(Api(ada).get(page["next"])) == ["rare"]


def test_rows_cost_the_same_few_queries_however_many(ada: User, django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        talk_with_tools(ada, "alpha", "beta", at=DAY + timedelta(hours=number))
    api = Api(ada)
    with django_assert_max_num_queries(6):
        assert len(api.get("/tool-calls")["results"]) == 40


def test_a_long_result_is_cut_and_says_so(ada: User) -> None:
    session = talk_with_tools(ada, "alpha")
    by_hand(ToolCall.objects.filter(session=session)).update(result="x" * 2_001)
    (row,) = Api(ada).get("/tool-calls")["results"]
    assert (len(row["result"]), row["is_cut"]) == (2_000, True)


# Exchanges.


def test_an_exchange_says_what_became_of_a_call(ada: User) -> None:
    session = chat_of(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1, provider="openai", model="gpt-x")
    told = Api(ada).get(f"/exchanges/{exchange.pk}")
    assert (told["is_running"], told["ended_at"], told["session_id"]) == (True, None, str(session.pk))
    exchanges.finish(exchange, answered("hello!"), end_reason="done")
    told = Api(ada).get(f"/exchanges/{exchange.pk}")
    assert (told["is_running"], told["end_reason"], told["seq"], told["model"]) == (False, "done", 2, "gpt-x")
    assert told["duration"] >= 0


def test_an_exchange_without_a_session_is_seen_by_its_key_and_owner(ada: User, bob: User) -> None:
    secret = secret_of(ada, "read")
    key = keys.authenticate(secret)
    exchange = Exchange.objects.create(owner=ada, api_key=key, model="gpt-x", error="their words")
    for api in (Api(ada), Api(key=secret)):
        assert api.get(f"/exchanges/{exchange.pk}")["error"] == "their words"
    for other in (Api(bob), Api(key=secret_of(ada, "read")), Api(key=secret_of(bob, "read", owner_wide=True))):
        assert other.refused(f"/exchanges/{exchange.pk}") == (404, "not_found")
    for name in (uuid4(), "nonsense"):
        assert Api(ada).refused(f"/exchanges/{name}") == (404, "not_found")


# Search.


def test_search_finds_messages_and_shows_why(ada: User, bob: User) -> None:
    session = chat_of(ada, "Where are the punched cards?", "The punched cards are in the cellar.")
    chat_of(bob, "My punched cards")
    page = Api(ada).get("/search?q=%22punched+cards%22&count=true&facets=true")
    assert [hit["seq"] for hit in page["results"]] == [2, 1]
    hit = page["results"][1]
    assert (hit["session_id"], hit["title"], hit["role"]) == (str(session.pk), session.title, "user")
    assert {"text": "punched cards", "is_match": True} in hit["snippet"]["pieces"]
    assert hit["url"] == f"/s/{session.pk}/?at=1#m1"
    assert page["count"] == {"number": 2, "is_exact": True}
    assert page["facets"]["owner"] == [{"value": "ada", "number": 2, "is_exact": True}]
    assert Api(ada).get("/search?q=punched")["facets"] is None


def test_search_is_narrowed_by_any_of_several_values(ada: User) -> None:
    chat_of(ada, "loom one", title="first", agent="planner")
    second = chat_of(ada, "loom two", title="second", source="import")
    api = Api(ada)
    assert len(api.get("/search?q=loom&source=chat&source=import")["results"]) == 2
    assert [hit["title"] for hit in api.get(f"/search?q=loom&session={second.pk}")["results"]] == ["second"]
    assert [hit["title"] for hit in api.get("/search?source=import")["results"]] == ["second"]
    assert api.get("/search?q=loom&owner=nobody")["results"] == []
    assert api.get("/search?q=loom&owner=ada&role=assistant")["results"] == []


def test_pages_of_hits_lead_on(ada: User) -> None:
    chat_of(ada, *(f"loom {number}" for number in range(9)))
    seen: list[Any] = []
    address: Any = "/search?q=loom&limit=4"
    while address:
        page = Api(ada).get(address)
        assert page["previous"] is None
        seen += [hit["seq"] for hit in page["results"]]
        address = page["next"]
    assert seen == list(range(9, 0, -1))
