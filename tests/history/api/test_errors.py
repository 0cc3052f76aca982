"""REST: errors have one form, and no request causes a server error."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from history.api import base, views
from project.accounts.models import User
from tests.clients import ApiClient, create_secret
from tests.factories import create_chat

# A refusal needs no database query.
pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
UNKNOWN = "8f14e45f-ceea-467f-a8f4-5d9f1e1b2c3d"


@pytest.mark.parametrize(
    "path",
    [
        "/api/", "/api/nonsense", "/api/history", "/api/history/", "/api/history/sessions/nonsense",
        "/api/history/sessions/%00", "/api/history/sessions/%FF/messages", "/api/history/sessions/a/b/c",
        f"/api/history/sessions/{UNKNOWN}", f"/api/history/sessions/{UNKNOWN}/messages",
        f"/api/history/sessions/{UNKNOWN}/messages/99999999999999999999999999", "/api/history/exchanges/1",
    ],
)  # fmt: skip
def test_what_is_not_there_is_404(ada: User, path: str) -> None:
    assert ApiClient(ada).refused(path) == (404, "not_found")


@pytest.mark.parametrize("path", ["/sessions", "/tool-calls", "/search", "/api/schema", "/api/docs"])
def test_addresses_work_with_and_without_a_slash_at_the_end(ada: User, path: str) -> None:
    for address in (path, f"{path}/"):
        assert ApiClient(ada).call("GET", address).status_code == 200
        assert ApiClient(ada).call("HEAD", address).status_code == 200


def test_a_session_works_with_and_without_a_slash_at_the_end(ada: User) -> None:
    session = create_chat(ada, "hello")
    for address in (
        f"/sessions/{session.pk}",
        f"/sessions/{session.pk}/messages",
        f"/sessions/{session.pk}/messages/1",
    ):
        assert ApiClient(ada).get(address) == ApiClient(ada).get(f"{address}/")
    assert ApiClient(ada).call("PATCH", f"/sessions/{session.pk}/", {"title": "x"}).status_code == 200
    assert ApiClient(ada).call("DELETE", f"/sessions/{session.pk}/").status_code == 204


@pytest.mark.parametrize("path", ["/sessions", "/search", "/api/schema", "/api/docs"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_a_method_that_is_not_there_is_405(ada: User, path: str, method: str) -> None:
    assert ApiClient(ada).refused(path, method=method) == (405, "method_not_allowed")
    assert "GET" in ApiClient(ada).call(method, path)["Allow"]


@pytest.mark.parametrize(
    ("body", "kind", "refusal"),
    [
        (b"{", "application/json", (400, "malformed")),
        (b"\xff\xfe{}", "application/json", (400, "malformed")),
        (b'{"pinned": NaN}', "application/json", (400, "malformed")),
        (b"[" * 50_000, "application/json", (400, "malformed")),
        (b"1" * 10_000, "application/json", (400, "malformed")),
        (b'{"title": "\\ud800"}', "application/json", (400, "invalid")),
        (b"title=x", "application/x-www-form-urlencoded", (415, "unsupported_media_type")),
        (b"x", "text/plain", (415, "unsupported_media_type")),
        (b"x", "multipart/form-data", (415, "unsupported_media_type")),
        (b" " * (base.BODY_BYTES + 1), "application/json", (413, "too_large")),
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_told_so(ada: User, body: bytes, kind: str, refusal: tuple[int, str]) -> None:
    session = create_chat(ada, "hello")
    response = ApiClient(ada).client.patch(f"/api/history/sessions/{session.pk}", body, content_type=kind)
    assert (response.status_code, response.json()["error"]["code"]) == refusal


HUGE = "9" * 400
WRONG = [
    *(f"limit={value}" for value in ("0", "-1", "201", "x", "1.5", "", HUGE, "%00", "1&limit=2")),
    *(f"from={value}" for value in ("yesterday", "", "2026-13-01", "2026-02-30T00:00:00Z", "9" * 30, "%00", "%FF")),
    *(f"cursor={value}" for value in ("x", "", "1", f"{HUGE}.{'a' * 32}", f"1.{'g' * 32}", "%00", "-", "١.a")),
    "nonsense=1",
    "%00=1",
]


@pytest.mark.parametrize("query", WRONG)
@pytest.mark.parametrize("path", ["/sessions", "/tool-calls"])
def test_a_parameter_that_makes_no_sense_is_named(ada: User, path: str, query: str) -> None:
    assert ApiClient(ada).refused(f"{path}?{query}") == (400, "invalid")
    fields = ApiClient(ada).call("GET", f"{path}?{query}").json()["error"]["fields"]
    assert list(fields) == [query.partition("=")[0].replace("%00", "\0")]


@pytest.mark.parametrize(
    "query",
    [
        "/sessions?source=nowhere", "/sessions?has_error=perhaps", "/sessions?owner=", "/sessions?owner=a%00",
        f"/sessions?q={'x' * 2_001}", "/sessions?q=%00", f"/sessions?model={'x' * 201}", "/sessions?reason=why",
        "/tool-calls?session=nonsense", "/tool-calls?status=broken", "/tool-calls?tool=%00", "/search?role=king",
        "/search?session=1", "/search?cursor=0", "/search?cursor=-5", f"/search?cursor={HUGE}", "/search?limit=101",
        f"/search?{'&'.join(f'agent={number}' for number in range(21))}", "/search?count=perhaps", "/search?q=%00",
        "/search?q=a&q=b",
    ],
)  # fmt: skip
def test_a_filter_that_makes_no_sense_is_400(ada: User, query: str) -> None:
    assert ApiClient(ada).refused(query) == (400, "invalid")


@pytest.mark.parametrize("query", ["before=0", "before=x", "after=-1", "leaf=0", f"before={HUGE}"])
def test_a_place_among_messages_that_makes_no_sense_is_400(ada: User, query: str) -> None:
    session = create_chat(ada, "hello")
    assert ApiClient(ada).refused(f"/sessions/{session.pk}/messages?{query}") == (400, "invalid")


@pytest.mark.parametrize(
    "query",
    [
        "from=0001-01-01T00:00:00%2B14:00", "to=9999-12-31T23:59:59-14:00", "to=9999-12-31", "from=2026-11-01",
        "from=2026-11-01T10:00", "cursor=-9999999999999999." + "0" * 32, "cursor=9999999999999999." + "f" * 32,
    ],
)  # fmt: skip
def test_the_ends_of_the_calendar_are_no_error(ada: User, query: str) -> None:
    assert ApiClient(ada).get(f"/sessions?{query}")["results"] == []
    if "cursor" not in query:
        assert ApiClient(ada).get(f"/search?{query}")["results"] == []
        assert ApiClient(ada).get(f"/tool-calls?{query}")["results"] == []


def test_any_header_gets_json(ada: User) -> None:
    for accept in ("text/html", "application/xml", "nonsense", "image/png;q=x"):
        assert ApiClient(ada).call("GET", "/sessions", Accept=accept)["Content-Type"] == "application/json"
    assert ApiClient(ada).refused("/sessions?format=api") == (400, "invalid")


def test_a_fault_of_ours_is_told_in_the_same_form(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a secret of the machine")

    monkeypatch.setattr(views, "list_sessions", fail)
    assert ApiClient(ada).refused("/sessions") == (500, "internal")
    assert b"secret" not in ApiClient(ada).call("GET", "/sessions").content


def test_a_database_that_is_away_asks_to_try_again(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("could not connect to db.internal")

    monkeypatch.setattr(views, "list_sessions", fail)
    assert ApiClient(ada).refused("/sessions") == (503, "unavailable")
    response = ApiClient(ada).call("GET", "/sessions")
    assert response["Retry-After"]
    assert b"db.internal" not in response.content


def test_a_foreign_host_is_refused_in_the_same_form(ada: User) -> None:
    assert ApiClient(ada).refused("/sessions", Host="evil.example") == (400, "malformed")


def test_pages_are_still_told_to_people(ada: User) -> None:
    assert "This page does not exist" in ApiClient(ada).client.get("/nowhere/").content.decode()


def test_nothing_is_for_a_cache_that_others_share(ada: User) -> None:
    response = ApiClient(ada).call("GET", "/sessions")
    assert response["Cache-Control"] == "private, no-cache"
    assert {"Authorization", "Cookie", "X-Api-Key"} <= {name.strip() for name in response["Vary"].split(",")}


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite raises the same class for every outage")
def test_a_database_that_is_read_only_is_unavailable(ada: Any) -> None:
    session = create_chat(ada, "hello")
    api = ApiClient(key=create_secret(ada, "read", "write", owner_wide=True))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")
        assert api.refused(f"/sessions/{session.pk}", method="PATCH", body={"pinned": True}) == (503, "unavailable")
        transaction.set_rollback(True)
