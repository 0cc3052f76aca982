"""REST: tool calls as rows, exchanges, and search."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from history.access import keys
from history.models import Exchange, Session, ToolCall
from history.record import exchanges, listing, recorder
from project.accounts.models import User
from tests.clients import ApiClient, create_secret
from tests.factories import (
    create_chat,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 11, 1, 12, tzinfo=UTC)


def talk_with_tools(owner: User, *names: str, at: datetime = DAY, failed: bool = False, **fields: Any) -> Session:
    session = recorder.start_session(owner=owner, created_at=at, **fields)
    requests = [tool_request(f"c{number}", name) for number, name in enumerate(names)]
    outcome = {"status": "failed", "error": "no such host"} if failed else {}
    outcomes = [tool_result(f"c{number}", name=name, **outcome) for number, name in enumerate(names)]
    entries = [model_input("go", at=at), model_output("", *requests, at=at), tool_results(*outcomes, at=at)]
    recorder.append_many(session, entries, after=0)
    return session


def tools(page: Any) -> list[str]:
    return [row["tool_name"] for row in page["results"]]


def test_calls_across_sessions_are_rows(ada: User, bob: User) -> None:
    talk_with_tools(bob, "strangers_tool")
    session = talk_with_tools(ada, "search_history", "current_time")
    later = talk_with_tools(ada, "sys_monitor", at=DAY + timedelta(days=1), failed=True)
    page = ApiClient(ada).get("/tool-calls")
    assert tools(page) == ["sys_monitor", "current_time", "search_history"]
    first, *_, last = page["results"]
    assert (first["session_id"], first["seq"], first["index"], first["status"]) == (str(later.pk), 2, 0, "failed")
    assert (first["error"], first["answered_by"], first["reason_needed"]) == ("no such host", 3, False)
    assert (last["session_id"], last["index"], last["arguments"]) == (str(session.pk), 0, {"metric": "cpu"})


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tool=alpha", ["alpha", "alpha"]),
        ("status=failed", ["beta", "alpha"]),
        ("from=2026-11-02", ["beta", "alpha"]),
        ("to=2026-11-01", ["alpha"]),
        ("tool=alpha&status=success", ["alpha"]),
        ("tool=gamma", []),
    ],
)
def test_rows_are_narrowed(ada: User, query: str, expected: list[str]) -> None:
    first = talk_with_tools(ada, "alpha")
    talk_with_tools(ada, "alpha", "beta", at=DAY + timedelta(days=1), failed=True)
    assert tools(ApiClient(ada).get(f"/tool-calls?{query}")) == expected
    assert tools(ApiClient(ada).get(f"/tool-calls?session={first.pk}")) == ["alpha"]


def test_pages_of_rows_lead_on_through_sessions_large_and_small(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FIRST_ROUND", 2)
    for number in range(7):
        names = [f"tool_{number}_{place}" for place in range(number)]
        talk_with_tools(ada, *names, at=DAY + timedelta(hours=number))
    whole = tools(ApiClient(ada).get("/tool-calls?limit=200"))
    assert len(whole) == 21
    seen: list[Any] = []
    address: Any = "/tool-calls?limit=4"
    while address:
        page = ApiClient(ada).get(address)
        assert page["previous"] is None
        seen += tools(page)
        address = page["next"]
    assert seen == whole


def test_a_filter_that_leaves_little_says_where_to_read_on(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FIRST_ROUND", 1)
    monkeypatch.setattr(listing, "LARGEST_ROUND", 1)
    monkeypatch.setattr(listing, "ROUNDS", 2)
    talk_with_tools(ada, "rare")
    for hour in range(1, 4):
        talk_with_tools(ada, "common", at=DAY + timedelta(hours=hour))
    page = ApiClient(ada).get("/tool-calls?tool=rare")
    assert tools(page) == []
    assert tools(ApiClient(ada).get(page["next"])) == ["rare"]


def test_rows_cost_the_same_few_queries_however_many(ada: User, django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        talk_with_tools(ada, "alpha", "beta", at=DAY + timedelta(hours=number))
    api = ApiClient(ada)
    with django_assert_max_num_queries(6):
        assert len(api.get("/tool-calls")["results"]) == 40


def test_a_long_result_is_cut_and_says_so(ada: User) -> None:
    session = talk_with_tools(ada, "alpha")
    without_guards(ToolCall.objects.filter(session=session)).update(result="x" * 2_001)
    (row,) = ApiClient(ada).get("/tool-calls")["results"]
    assert (len(row["result"]), row["is_cut"]) == (2_000, True)


# Exchanges.


def test_an_exchange_says_what_became_of_a_call(ada: User) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1, provider="openai", model="gpt-x")
    body = ApiClient(ada).get(f"/exchanges/{exchange.pk}")
    assert (body["is_running"], body["ended_at"], body["session_id"]) == (True, None, str(session.pk))
    exchanges.finish(exchange, model_output("hello!"), end_reason="done")
    body = ApiClient(ada).get(f"/exchanges/{exchange.pk}")
    assert (body["is_running"], body["end_reason"], body["seq"], body["model"]) == (False, "done", 2, "gpt-x")
    assert body["duration"] >= 0


def test_an_exchange_without_a_session_is_seen_by_its_key_and_owner(ada: User, bob: User) -> None:
    secret = create_secret(ada, "read")
    key = keys.authenticate(secret)
    exchange = Exchange.objects.create(owner=ada, api_key=key, model="gpt-x", error="their words")
    for api in (ApiClient(ada), ApiClient(key=secret)):
        assert api.get(f"/exchanges/{exchange.pk}")["error"] == "their words"
    for other in (
        ApiClient(bob),
        ApiClient(key=create_secret(ada, "read")),
        ApiClient(key=create_secret(bob, "read", owner_wide=True)),
    ):
        assert other.refused(f"/exchanges/{exchange.pk}") == (404, "not_found")
    for name in (uuid4(), "nonsense"):
        assert ApiClient(ada).refused(f"/exchanges/{name}") == (404, "not_found")


# Search.


def test_search_finds_messages_and_shows_why(ada: User, bob: User) -> None:
    session = create_chat(ada, "Where are the punched cards?", "The punched cards are in the cellar.")
    create_chat(bob, "My punched cards")
    page = ApiClient(ada).get("/search?q=%22punched+cards%22&count=true&facets=true")
    assert [hit["seq"] for hit in page["results"]] == [2, 1]
    hit = page["results"][1]
    assert (hit["session_id"], hit["title"], hit["role"]) == (str(session.pk), session.title, "user")
    assert {"text": "punched cards", "is_match": True} in hit["snippet"]["pieces"]
    assert hit["url"] == f"/s/{session.pk}/?at=1#m1"
    assert page["count"] == {"number": 2, "is_exact": True}
    assert page["facets"]["owner"] == [{"value": "ada", "number": 2, "is_exact": True}]
    assert ApiClient(ada).get("/search?q=punched")["facets"] is None


def test_search_is_narrowed_by_any_of_several_values(ada: User) -> None:
    create_chat(ada, "loom one", title="first", agent="planner")
    second = create_chat(ada, "loom two", title="second", source="import")
    api = ApiClient(ada)
    assert len(api.get("/search?q=loom&source=chat&source=import")["results"]) == 2
    assert [hit["title"] for hit in api.get(f"/search?q=loom&session={second.pk}")["results"]] == ["second"]
    assert [hit["title"] for hit in api.get("/search?source=import")["results"]] == ["second"]
    assert api.get("/search?q=loom&owner=unknown")["results"] == []
    assert api.get("/search?q=loom&owner=ada&role=assistant")["results"] == []


def test_pages_of_hits_lead_on(ada: User) -> None:
    create_chat(ada, *(f"loom {number}" for number in range(9)))
    seen: list[Any] = []
    address: Any = "/search?q=loom&limit=4"
    while address:
        page = ApiClient(ada).get(address)
        assert page["previous"] is None
        seen += [hit["seq"] for hit in page["results"]]
        address = page["next"]
    assert seen == list(range(9, 0, -1))
