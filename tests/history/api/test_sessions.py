"""REST: sessions in lists, and what becomes of one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from history import retention
from history.access import keys
from history.models import AuditEvent, Session
from history.record import recorder
from project.accounts.models import User
from tests.clients import ApiClient, create_secret
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db


def titles(page: Any) -> list[str]:
    return [session["title"] for session in page["results"]]


def at(session: Session, moment: datetime) -> None:
    Session.objects.filter(pk=session.pk).update(last_activity_at=moment)


def test_a_list_has_what_lists_show_and_no_text(ada: User) -> None:
    session = create_chat(ada, "Where is my loom?", "In the cellar.", agent="assistant")
    (listed,) = ApiClient(ada).get("/sessions")["results"]
    assert listed["id"] == str(session.pk)
    assert listed["title"] == "Where is my loom?"
    assert (listed["owner"], listed["key"], listed["source"]) == ("ada", None, "chat")
    assert (listed["message_count"], listed["version"], listed["head"]) == (2, 2, 2)
    assert (listed["pinned"], listed["archived"], listed["hidden"], listed["hold"]) == (False, False, False, False)
    assert listed["url"] == f"/s/{session.pk}/"
    assert listed["created_at"].endswith("Z")
    assert "In the cellar" not in json.dumps(listed)


def test_pages_lead_on_until_the_last_and_miss_nothing(ada: User) -> None:
    for number in range(7):
        at(create_chat(ada, f"number {number}"), datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=number // 2))
    seen: list[Any] = []
    address: Any = "/sessions?limit=3"
    while address:
        page = ApiClient(ada).get(address)
        assert page["previous"] is None
        assert len(page["results"]) <= 3
        seen += titles(page)
        address = page["next"]
    assert sorted(seen) == [f"number {number}" for number in range(7)]
    assert seen[0] == "number 6"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ("source=relay", ["by key"]),
        ("client=Codex", ["by key"]),
        ("model=model-9", ["by model"]),
        ("agent=reviewer", ["by agent"]),
        ("has_error=true", ["by error"]),
        ("has_error=false&source=relay", ["by key"]),
        ("pinned=true", ["by agent"]),
        ("archived=true", ["by model"]),
        ("from=2026-11-03&to=2026-11-03", ["by model"]),
        ("from=2026-11-03T00:00:00%2B00:00&to=2026-11-04T00:00:00Z", ["by model"]),
        ("from=2026-11-03T00:00:00+00:00&to=2026-11-04T00:00:00Z", ["by model"]),
        ("q=unicorn", ["by agent"]),
        ("q=nothing-like-this", []),
        ("q=", ["by agent", "by error", "by key", "by model"]),
        ("owner=ada&source=relay", ["by key"]),
        ("owner=bob", []),
        ("owner=unknown", []),
        ("workspace=nowhere", []),
    ],
)
def test_a_list_is_narrowed(ada: User, bob: User, filters: str, expected: list[str]) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    create_chat(bob, "a stranger's")
    create_chat(ada, "one", title="by key", source="relay", api_key=key, client="Codex")
    second = create_chat(ada, "two", title="by model", model="model-9")
    at(second, datetime(2026, 11, 3, 12, tzinfo=UTC))
    recorder.archive(second, archived=True)
    third = create_chat(ada, "three", "a unicorn", title="by agent", agent="reviewer")
    recorder.pin(third, pinned=True)
    fourth = recorder.start_session(owner=ada, title="by error")
    recorder.append_many(fourth, [model_input("four"), model_output("no", status="failed", error="down")], after=0)
    assert sorted(titles(ApiClient(ada).get(f"/sessions?{filters}"))) == expected
    assert titles(ApiClient(ada).get(f"/sessions?key={key.prefix}")) == ["by key"]


def test_a_list_costs_the_same_few_queries_however_long_it_is(ada: User, django_assert_max_num_queries: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    api = ApiClient(ada)
    for number in range(30):
        create_chat(ada, f"number {number}", api_key=key, source="relay")
    with django_assert_max_num_queries(5) as context:
        assert len(api.get("/sessions")["results"]) == 30
    assert not any("history_message" in query["sql"] for query in context.captured_queries)


def test_what_has_not_changed_is_not_sent_again(ada: User) -> None:
    session = create_chat(ada, "hello")
    api = ApiClient(ada)
    for path in ("/sessions", f"/sessions/{session.pk}", f"/sessions/{session.pk}/messages"):
        tag = api.call("GET", path)["ETag"]
        again = api.call("GET", path, If_None_Match=tag)
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag)
        assert api.call("GET", path, If_None_Match=f'"other", W/{tag}').status_code == 304
        assert api.call("GET", path, If_None_Match='"other"').status_code == 200
    tags = [api.call("GET", f"/sessions{path}")["ETag"] for path in ("", f"/{session.pk}", f"/{session.pk}/messages")]
    recorder.append(session, model_output("hello!"), after=1)
    for path, tag in zip(("", f"/{session.pk}", f"/{session.pk}/messages"), tags, strict=True):
        assert api.call("GET", f"/sessions{path}", If_None_Match=tag).status_code == 200


def test_a_new_title_is_a_new_tag_though_the_version_is_the_same(ada: User) -> None:
    session = create_chat(ada, "hello")
    before = ApiClient(ada).call("GET", f"/sessions/{session.pk}")["ETag"]
    recorder.rename(session, title="another")
    assert ApiClient(ada).call("GET", f"/sessions/{session.pk}", If_None_Match=before).status_code == 200


def test_an_owner_renames_pins_and_archives(ada: User) -> None:
    session = create_chat(ada, "hello")
    listed = ApiClient(ada).call("PATCH", f"/sessions/{session.pk}", {"title": "  The   loom ", "pinned": True}).json()
    assert (listed["title"], listed["pinned"], listed["archived"]) == ("The loom", True, False)
    listed = ApiClient(ada).call("PATCH", f"/sessions/{session.pk}", {"archived": True, "pinned": False}).json()
    assert (listed["title"], listed["pinned"], listed["archived"]) == ("The loom", False, True)
    assert ApiClient(ada).call("PATCH", f"/sessions/{session.pk}", {}).json() == listed


def test_a_change_can_insist_on_what_was_read(ada: User) -> None:
    session = create_chat(ada, "hello")
    api = ApiClient(ada)
    tag = api.call("GET", f"/sessions/{session.pk}")["ETag"]
    done = api.call("PATCH", f"/sessions/{session.pk}", {"title": "first"}, If_Match=tag)
    assert (done.status_code, done["ETag"] != tag) == (200, True)
    assert api.refused(f"/sessions/{session.pk}", method="PATCH", body={"title": "second"}, If_Match=tag) == (
        412,
        "changed",
    )
    assert api.refused(f"/sessions/{session.pk}", method="DELETE", If_Match=tag) == (412, "changed")
    session.refresh_from_db()
    assert (session.title, session.hidden_at) == ("first", None)


@pytest.mark.parametrize(
    "body",
    [
        {"title": ""},
        {"title": " \n"},
        {"title": "x" * 201},
        {"title": None},
        {"title": ["a"]},
        {"title": "a\0b"},
        {"title": 7},
        {"archived": 1},
        {"pinned": "true"},
        {"pinned": "perhaps"},
        {"pinned": None},
        {"hold": True},
        {"owner": "bob"},
        [],
        "title",
        7,
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(ada: User, body: Any) -> None:
    session = create_chat(ada, "hello")
    assert ApiClient(ada).refused(f"/sessions/{session.pk}", method="PATCH", body=json.dumps(body)) == (400, "invalid")
    session.refresh_from_db()
    assert (session.title, session.pinned_at) == ("hello", None)


def test_delete_puts_it_into_the_trash(ada: User) -> None:
    session = create_chat(ada, "a unicorn")
    api = ApiClient(ada)
    done = api.call("DELETE", f"/sessions/{session.pk}")
    assert (done.status_code, done.content) == (204, b"")
    assert api.get("/sessions")["results"] == []
    assert api.get("/search?q=unicorn")["results"] == []
    for path in (f"/sessions/{session.pk}", f"/sessions/{session.pk}/messages"):
        assert api.refused(path) == (404, "not_found")
    assert api.refused(f"/sessions/{session.pk}", method="DELETE") == (404, "not_found")
    session.refresh_from_db()
    assert session.hidden_at is not None
    retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=25))
    assert not Session.objects.filter(pk=session.pk).exists()


def test_delete_of_a_held_session_hides_it_and_keeps_it(ada: User, staff: User) -> None:
    session = create_chat(ada, "evidence")
    retention.hold(session, actor=staff, reason="a lawsuit")
    assert ApiClient(ada).call("DELETE", f"/sessions/{session.pk}").status_code == 204
    assert ApiClient(ada).refused(f"/sessions/{session.pk}") == (404, "not_found")
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=400))
    assert Session.objects.filter(pk=session.pk, hidden_at__isnull=False).exists()


def test_who_deleted_it_and_why_is_in_the_audit_chain(ada: User) -> None:
    session = create_chat(ada, "hello")
    key = create_secret(ada, "delete", owner_wide=True)
    assert ApiClient(key=key).call("DELETE", f"/sessions/{session.pk}?reason=too+old").status_code == 204
    event = AuditEvent.objects.get(action="hide")
    assert (event.session, event.actor, event.reason) == (session.pk, None, "too old")
    assert event.key is not None


def test_staff_delete_others_sessions_with_a_reason_unless_held(ada: User, staff: User) -> None:
    going, held = create_chat(ada, "hello"), create_chat(ada, "evidence")
    retention.hold(held, actor=staff, reason="a lawsuit")
    api = ApiClient(key=create_secret(staff, "delete", "read", "admin"))
    assert api.refused(f"/sessions/{going.pk}", method="DELETE") == (403, "reason_needed")
    assert api.refused(f"/sessions/{held.pk}?reason=too+old", method="DELETE") == (409, "under_hold")
    assert not Session.objects.filter(hidden_at__isnull=False).exists()
    assert api.call("DELETE", f"/sessions/{going.pk}?reason=too+old").status_code == 204
    assert Session.objects.get(hidden_at__isnull=False) == going


def test_a_tool_call_leaves_its_count_in_the_list(ada: User) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append_many(
        session, [model_input("load?"), model_output("", tool_request("c1")), tool_results(tool_result("c1"))], after=0
    )
    (listed,) = ApiClient(ada).get("/sessions")["results"]
    assert (listed["message_count"], listed["tool_call_count"], listed["error_count"]) == (2, 1, 0)
