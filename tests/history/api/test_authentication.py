"""REST: authentication and permissions. Strangers get 404, viewers who may only list get 403."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.test import Client

from history.access import keys
from history.models import AuditEvent, Session
from history.record import exchanges, recorder
from project.accounts.models import User
from tests.clients import ApiClient, create_secret
from tests.factories import model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(ada: User) -> Session:
    """Ada's, with a tool call and an exchange that failed."""
    session = recorder.start_session(owner=ada)
    entries = [
        model_input("the secret loom"),
        model_output("", tool_request("c1")),
        tool_results(tool_result("c1", "a secret")),
    ]
    recorder.append_many(session, entries, after=0)
    return session


@pytest.fixture
def exchange(session: Session) -> str:
    exchange = exchanges.open_exchange(session, owner=session.owner, after=3)
    exchanges.finish(exchange, None, end_reason="upstream_error", error="a secret error")
    return str(exchange.pk)


def permit(person: User, *rights: str) -> User:
    person.user_permissions.add(*Permission.objects.filter(codename__in=rights))
    return User.objects.get(pk=person.pk)


def everything_of(session: Session, exchange: str) -> list[tuple[str, str]]:
    of_session = f"/sessions/{session.pk}"
    paths = [of_session, f"{of_session}/messages", f"{of_session}/messages/1", f"/exchanges/{exchange}"]
    return [*(("GET", path) for path in paths), ("PATCH", of_session), ("DELETE", of_session)]


# Anonymous callers and strangers.


def test_requests_without_sign_in_are_refused(session: Session, exchange: str) -> None:
    lists = [("GET", path) for path in ("/sessions", "/tool-calls", "/search?q=loom")]
    for method, path in [*everything_of(session, exchange), *lists]:
        assert ApiClient().refused(path, method=method) == (401, "not_authenticated")
    assert ApiClient().call("GET", "/sessions")["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("way", ["signed in", "key", "owner-wide key", "every scope"])
def test_a_stranger_is_told_that_there_is_nothing(session: Session, exchange: str, bob: User, way: str) -> None:
    api = {
        "signed in": lambda: ApiClient(bob),
        "key": lambda: ApiClient(key=create_secret(bob, "read", "write", "delete")),
        "owner-wide key": lambda: ApiClient(key=create_secret(bob, "read", "write", "delete", owner_wide=True)),
        "every scope": lambda: ApiClient(key=create_secret(bob, *set(keys.SCOPES) - {"admin"}, owner_wide=True)),
    }[way]()
    for method, path in everything_of(session, exchange):
        assert api.refused(path, method=method, body={} if method == "PATCH" else None) == (404, "not_found")
        assert api.refused(path, method=method, X_Parley_Reason="I am curious") == (404, "not_found")
    assert api.get("/sessions")["results"] == []
    assert api.get("/sessions?q=loom")["results"] == []
    assert api.get("/tool-calls")["results"] == []
    assert api.get("/search?q=loom")["results"] == []
    assert api.refused(f"/tool-calls?session={session.pk}") == (404, "not_found")
    session.refresh_from_db()
    assert session.hidden_at is None


def test_a_key_sees_what_was_recorded_under_it(ada: User, session: Session) -> None:
    secret = create_secret(ada, "read")
    mine = recorder.start_session(owner=ada, api_key=keys.authenticate(secret), source="relay")
    assert [item["id"] for item in ApiClient(key=secret).get("/sessions")["results"]] == [str(mine.pk)]
    assert ApiClient(key=secret).refused(f"/sessions/{session.pk}") == (404, "not_found")
    wide = ApiClient(key=create_secret(ada, "read", owner_wide=True))
    assert {item["id"] for item in wide.get("/sessions")["results"]} == {str(mine.pk), str(session.pk)}


# Keys.


def test_a_key_is_taken_from_either_header(ada: User, session: Session) -> None:
    secret = create_secret(ada, "read", owner_wide=True)
    for headers in ({"Authorization": f"bearer {secret}"}, {"x_api_key": secret}):
        assert len(ApiClient().call("GET", "/sessions", **headers).json()["results"]) == 1


def test_a_key_that_is_not_valid_is_refused_even_from_who_is_signed_in(ada: User) -> None:
    secret = create_secret(ada, "read")
    keys.revoke(keys.authenticate(secret), actor=None)
    for wrong in (secret, "nonsense", "parley_aaaaaaaaaa_" + "a" * 43, "\xff"):
        assert ApiClient(ada).refused("/sessions", Authorization=f"Bearer {wrong}") == (401, "bad_key")


@pytest.mark.parametrize("scope", ["read", "write", "delete", "relay", "export", "import"])
def test_a_scope_opens_its_own_endpoint_only(ada: User, session: Session, exchange: str, scope: str) -> None:
    api = ApiClient(key=create_secret(ada, scope, owner_wide=True))
    needed = {"GET": "read", "PATCH": "write", "DELETE": "delete"}
    for method, path in [*everything_of(session, exchange), ("GET", "/search"), ("GET", "/tool-calls")]:
        if needed[method] == scope:
            assert api.call(method, path, {} if method == "PATCH" else None).status_code in (200, 204)
        else:
            assert api.refused(path, method=method, body={} if method == "PATCH" else None) == (403, "scope_missing")


def test_a_cookie_alone_changes_nothing(ada: User, session: Session) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    path = f"/api/history/sessions/{session.pk}"
    refused = client.delete(path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf")
    assert client.get(path).status_code == 200
    client.get("/")
    token = client.cookies["parley_csrf"].value
    assert client.delete(path, headers={"X-CSRFToken": token}).status_code == 204


def test_a_key_needs_no_csrf_token(ada: User, session: Session) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    headers = {"Authorization": f"Bearer {create_secret(ada, 'delete', owner_wide=True)}"}
    assert client.delete(f"/api/history/sessions/{session.pk}", headers=headers).status_code == 204


# Staff.


def test_staff_without_rights_are_strangers(staff: User, session: Session, exchange: str) -> None:
    assert ApiClient(staff).get("/sessions")["results"] == []
    for method, path in everything_of(session, exchange):
        assert ApiClient(staff).refused(path, method=method, body={} if method == "PATCH" else None) == (
            404,
            "not_found",
        )


def test_staff_with_metadata_only_see_no_text(staff: User, session: Session, exchange: str) -> None:
    api = ApiClient(permit(staff, "view_session"))
    assert [item["id"] for item in api.get("/sessions?owner=ada")["results"]] == [str(session.pk)]
    assert api.get(f"/sessions/{session.pk}")["message_count"] == 2
    assert api.get("/sessions?q=loom")["results"] == []
    assert api.get("/search?q=loom")["results"] == []
    (row,) = api.get("/tool-calls")["results"]
    assert (row["tool_name"], row["reason_needed"]) == ("sys_monitor", True)
    assert (row["arguments"], row["result"], row["error"]) == (None, None, None)
    assert api.get(f"/exchanges/{exchange}")["error"] is None
    for path in (f"/sessions/{session.pk}/messages", f"/sessions/{session.pk}/messages/1"):
        for reason in ("", "?reason=an+audit"):
            assert api.refused(f"{path}{reason}") == (403, "not_permitted")
    for path in (f"/tool-calls?session={session.pk}", f"/exchanges/{exchange}"):
        assert api.refused(path, X_Parley_Reason="audit") == (403, "not_permitted")
    for method in ("PATCH", "DELETE"):
        assert api.refused(f"/sessions/{session.pk}", method=method, body={}) == (403, "not_permitted")


def test_staff_with_the_right_to_read_say_why(staff: User, ada: User, session: Session, exchange: str) -> None:
    api = ApiClient(permit(staff, "view_session", "read_session"))
    path = f"/sessions/{session.pk}/messages"
    (hit,) = [hit for hit in api.get("/search?q=loom")["results"] if hit["seq"] == 1]
    assert (hit["snippet"], hit["reason_needed"]) == (None, True)
    for reason in ({}, {"X_Parley_Reason": "hm"}):
        assert api.refused(path, **reason) == (403, "reason_needed")
    assert not AuditEvent.objects.filter(action="session.read").exists()
    assert api.get(path, X_Parley_Reason="a complaint")["results"][0]["content"] == "the secret loom"
    event = AuditEvent.objects.get(action="session.read")
    assert (event.actor, event.session, event.reason) == (staff.pk, session.pk, "a complaint")
    assert api.get(path)["results"]
    assert api.get("/search?q=loom")["results"][0]["snippet"]["pieces"]
    assert api.get("/tool-calls")["results"][0]["result"] == "a secret"
    assert api.get(f"/exchanges/{exchange}")["error"] == "a secret error"
    assert ApiClient(ada).get(path)["results"]
    assert AuditEvent.objects.filter(action="session.read").count() == 1


@pytest.mark.parametrize("where", ["tool-calls", "exchange", "message"])
def test_a_reason_can_be_given_wherever_there_are_texts(
    staff: User, session: Session, exchange: str, where: str
) -> None:
    api = ApiClient(permit(staff, "view_session", "read_session"))
    path = {
        "tool-calls": f"/tool-calls?session={session.pk}&reason=",
        "exchange": f"/exchanges/{exchange}?reason=",
        "message": f"/sessions/{session.pk}/messages/1?reason=",
    }[where]
    assert "secret" in str(api.get(f"{path}a+complaint", X_CSRFToken="x"))
    assert AuditEvent.objects.filter(action="session.read", reason="a complaint").count() == 1


def test_a_link_of_another_user_gives_no_reason_for_the_reader(staff: User, session: Session) -> None:
    """A browser sends its cookie with it: the link must not record a read by staff, or its reason."""
    api = ApiClient(permit(staff, "view_session", "read_session", "export_session"))
    for path in (f"/sessions/{session.pk}/messages?reason=curious", f"/export?session={session.pk}&reason=curious"):
        assert api.refused(path) == (403, "reason_needed")
    page = api.client.get(f"/history/export/?session={session.pk}&format=jsonl&reason=curious")
    assert page.status_code == 403
    assert not AuditEvent.objects.exists()


def test_a_reason_lasts_no_longer_than_the_right_it_was_given_for(staff: User, session: Session, exchange: str) -> None:
    api = ApiClient(permit(staff, "view_session", "read_session"))
    assert api.get(f"/sessions/{session.pk}/messages", X_Parley_Reason="a complaint")["results"]
    staff.user_permissions.remove(Permission.objects.get(codename="read_session"))
    (row,) = api.get("/tool-calls")["results"]
    assert (row["arguments"], row["result"], row["reason_needed"]) == (None, None, True)
    assert api.get(f"/exchanges/{exchange}")["error"] is None


def test_staff_delete_by_right_and_never_rename(staff: User, session: Session) -> None:
    api = ApiClient(permit(staff, "view_session", "delete_session"))
    assert api.refused(f"/sessions/{session.pk}", method="PATCH", body={"title": "mine"}) == (403, "not_permitted")
    api.headers["X-Parley-Reason"] = "asked for"
    assert api.call("DELETE", f"/sessions/{session.pk}").status_code == 204


def test_a_key_of_the_scope_admin_lists_everything_and_says_why_it_reads(staff: User, session: Session) -> None:
    api = ApiClient(key=create_secret(staff, "read", "admin"))
    assert len(api.get("/sessions")["results"]) == 1
    assert api.refused(f"/sessions/{session.pk}/messages") == (403, "reason_needed")
    assert api.get(f"/sessions/{session.pk}/messages?reason=backup+check")["results"]


# Throttling.


def test_so_many_requests_a_minute_and_no_more(ada: User, bob: User, settings: Any, monkeypatch: Any) -> None:
    cache.clear()
    settings.PARLEY_API_REQUESTS_PER_MINUTE = 3
    now = 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    api, key = ApiClient(ada), ApiClient(key=create_secret(ada, "read"))
    for _ in range(3):
        assert api.call("GET", "/sessions").status_code == 200
        assert key.call("GET", "/sessions").status_code == 200
    refused = api.call("GET", "/sessions")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "throttled")
    assert 0 < int(refused["Retry-After"]) <= 60
    assert key.refused("/sessions") == (429, "throttled")
    assert ApiClient(bob).call("GET", "/sessions").status_code == 200
    now += 60
    assert api.call("GET", "/sessions").status_code == 200
    settings.PARLEY_API_REQUESTS_PER_MINUTE = 0
    assert all(api.call("GET", "/sessions").status_code == 200 for _ in range(10))


def test_requests_are_counted_by_each_process_while_redis_is_away(ada: User, settings: Any, monkeypatch: Any) -> None:
    away = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES, settings.PARLEY_API_REQUESTS_PER_MINUTE = {"default": away}, 2
    now = 1_800_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    api = ApiClient(ada)
    assert [api.call("GET", "/sessions").status_code for _ in range(3)] == [200, 200, 429]
    now += 60
    assert api.call("GET", "/sessions").status_code == 200
