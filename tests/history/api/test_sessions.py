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
from tests.clients import Api, secret_of
from tests.factories import answered, call, chat_of, result, results, said

pytestmark = pytest.mark.django_db


def titles(page: Any) -> list[str]:
    return [session["title"] for session in page["results"]]


def at(session: Session, moment: datetime) -> None:
    Session.objects.filter(pk=session.pk).update(last_activity_at=moment)


def test_a_list_has_what_lists_show_and_no_text(ada: User) -> None:
    session = chat_of(ada, "Where is my loom?", "In the cellar.", agent="assistant")
    (told,) = Api(ada).get("/sessions")["results"]
    assert told["id"] == str(session.pk)
    assert told["title"] == "Where is my loom?"
    assert (told["owner"], told["key"], told["source"]) == ("ada", None, "chat")
    assert (told["message_count"], told["version"], told["head"]) == (2, 2, 2)
    assert (told["pinned"], told["archived"], told["hidden"], told["hold"]) == (False, False, False, False)
    assert told["url"] == f"/s/{session.pk}/"
    assert told["created_at"].endswith("Z")
    assert "In the cellar" not in json.dumps(told)


def test_pages_lead_on_until_the_last_and_miss_nothing(ada: User) -> None:
    for number in range(7):
        at(chat_of(ada, f"number {number}"), datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=number // 2))
    seen: list[Any] = []
    address: Any = "/sessions?limit=3"
    while address:
        page = Api(ada).get(address)
        assert page["previous"] is None
        assert len(page["results"]) <= 3
        seen += titles(page)
        address = page["next"]
    assert sorted(seen) == [f"number {number}" for number in range(7)]
    assert seen[0] == "number 6"


@pytest.mark.parametrize(
    ("asked", "found"),
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
        ("owner=nobody", []),
        ("workspace=nowhere", []),
    ],
)
def test_a_list_is_narrowed(ada: User, bob: User, asked: str, found: list[str]) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    chat_of(bob, "a stranger's")
    chat_of(ada, "one", title="by key", source="relay", api_key=key, client="Codex")
    second = chat_of(ada, "two", title="by model", model="model-9")
    at(second, datetime(2026, 11, 3, 12, tzinfo=UTC))
    recorder.archive(second, archived=True)
    third = chat_of(ada, "three", "a unicorn", title="by agent", agent="reviewer")
    recorder.pin(third, pinned=True)
    fourth = recorder.start_session(owner=ada, title="by error")
    recorder.append_many(fourth, [said("four"), answered("no", status="failed", error="down")], after=0)
    assert sorted(titles(Api(ada).get(f"/sessions?{asked}"))) == found
    assert titles(Api(ada).get(f"/sessions?key={key.prefix}")) == ["by key"]


def test_a_list_costs_the_same_few_queries_however_long_it_is(ada: User, django_assert_max_num_queries: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    api = Api(ada)
    for number in range(30):
        chat_of(ada, f"number {number}", api_key=key, source="relay")
    with django_assert_max_num_queries(4) as context:
        assert len(api.get("/sessions")["results"]) == 30
    assert not any("history_message" in query["sql"] for query in context.captured_queries)


def test_what_has_not_changed_is_not_sent_again(ada: User) -> None:
    session = chat_of(ada, "hello")
    api = Api(ada)
    for path in ("/sessions", f"/sessions/{session.pk}", f"/sessions/{session.pk}/messages"):
        tag = api.call("GET", path)["ETag"]
        again = api.call("GET", path, If_None_Match=tag)
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag)
        assert api.call("GET", path, If_None_Match=f'"other", W/{tag}').status_code == 304
        assert api.call("GET", path, If_None_Match='"other"').status_code == 200
    tags = [api.call("GET", f"/sessions{path}")["ETag"] for path in ("", f"/{session.pk}", f"/{session.pk}/messages")]
    recorder.append(session, answered("hello!"), after=1)
    for path, tag in zip(("", f"/{session.pk}", f"/{session.pk}/messages"), tags, strict=True):
        assert api.call("GET", f"/sessions{path}", If_None_Match=tag).status_code == 200


def test_a_new_title_is_a_new_tag_though_the_version_is_the_same(ada: User) -> None:
    session = chat_of(ada, "hello")
    before = Api(ada).call("GET", f"/sessions/{session.pk}")["ETag"]
    recorder.rename(session, title="another")
    assert Api(ada).call("GET", f"/sessions/{session.pk}", If_None_Match=before).status_code == 200


def test_an_owner_renames_pins_and_archives(ada: User) -> None:
    session = chat_of(ada, "hello")
    told = Api(ada).call("PATCH", f"/sessions/{session.pk}", {"title": "  The   loom ", "pinned": True}).json()
    assert (told["title"], told["pinned"], told["archived"]) == ("The loom", True, False)
    told = Api(ada).call("PATCH", f"/sessions/{session.pk}", {"archived": True, "pinned": False}).json()
    assert (told["title"], told["pinned"], told["archived"]) == ("The loom", False, True)
    assert Api(ada).call("PATCH", f"/sessions/{session.pk}", {}).json() == told


def test_a_change_can_insist_on_what_was_read(ada: User) -> None:
    session = chat_of(ada, "hello")
    api = Api(ada)
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
    session = chat_of(ada, "hello")
    assert Api(ada).refused(f"/sessions/{session.pk}", method="PATCH", body=json.dumps(body)) == (400, "invalid")
    session.refresh_from_db()
    assert (session.title, session.pinned_at) == ("hello", None)


def test_delete_puts_it_into_the_trash(ada: User) -> None:
    session = chat_of(ada, "a unicorn")
    api = Api(ada)
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
    session = chat_of(ada, "evidence")
    retention.hold(session, actor=staff, reason="a lawsuit")
    assert Api(ada).call("DELETE", f"/sessions/{session.pk}").status_code == 204
    assert Api(ada).refused(f"/sessions/{session.pk}") == (404, "not_found")
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=400))
    assert Session.objects.filter(pk=session.pk, hidden_at__isnull=False).exists()


def test_who_deleted_it_and_why_is_in_the_audit_chain(ada: User) -> None:
    session = chat_of(ada, "hello")
    key = secret_of(ada, "delete", owner_wide=True)
    assert Api(key=key).call("DELETE", f"/sessions/{session.pk}?reason=too+old").status_code == 204
    event = AuditEvent.objects.get(action="hide")
    assert (event.session, event.actor, event.reason) == (session.pk, None, "too old")
    assert event.key is not None


def test_staff_delete_somebody_elses_for_a_reason_and_nothing_that_is_held(ada: User, staff: User) -> None:
    going, held = chat_of(ada, "hello"), chat_of(ada, "evidence")
    retention.hold(held, actor=staff, reason="a lawsuit")
    api = Api(key=secret_of(staff, "delete", "read", "admin"))
    assert api.refused(f"/sessions/{going.pk}", method="DELETE") == (403, "reason_needed")
    assert api.refused(f"/sessions/{held.pk}?reason=too+old", method="DELETE") == (409, "under_hold")
    assert not Session.objects.filter(hidden_at__isnull=False).exists()
    assert api.call("DELETE", f"/sessions/{going.pk}?reason=too+old").status_code == 204
    assert Session.objects.get(hidden_at__isnull=False) == going


def test_a_tool_call_leaves_its_count_in_the_list(ada: User) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append_many(session, [said("load?"), answered("", call("c1")), results(result("c1"))], after=0)
    (told,) = Api(ada).get("/sessions")["results"]
    assert (told["message_count"], told["tool_call_count"], told["error_count"]) == (2, 1, 0)
