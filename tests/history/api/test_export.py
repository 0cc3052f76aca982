"""REST: export as a stream, and its permissions."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission
from django.db import connections
from django.test import AsyncClient

from history.formats.writers import EXPORTERS
from history.models import AuditEvent, Session
from project.accounts.models import User
from tests.clients import ApiClient, create_secret
from tests.factories import create_chat


async def downloaded(client: AsyncClient, query: str, **headers: str) -> tuple[Any, bytes]:
    """Read in pieces, as an ASGI server does."""
    response: Any = await client.get(f"/api/history/export?{query}", headers=headers)
    assert response.status_code == 200
    assert response.is_async
    content = b"".join([piece async for piece in response.streaming_content])
    await sync_to_async(connections.close_all)()
    return response, content


def titles(content: bytes) -> list[str]:
    lines = [json.loads(line) for line in content.splitlines()]
    assert lines[0]["type"] == "header"
    assert lines[-1]["type"] == "end"
    return sorted(line["title"] for line in lines if line["type"] == "session")


@pytest.mark.django_db(transaction=True)
async def test_an_export_is_a_stream_and_goes_on_from_its_cursor(async_client: AsyncClient, ada: User) -> None:
    await sync_to_async(create_chat)(ada, "one", "yes")
    key = await sync_to_async(create_secret)(ada, "export", owner_wide=True)
    bearer = {"Authorization": f"Bearer {key}"}
    response, content = await downloaded(async_client, "since=start", **bearer)
    assert response["Content-Type"] == "application/x-ndjson; charset=utf-8"
    assert response["Content-Disposition"].startswith("attachment; filename=")
    assert titles(content) == ["one"]
    cursor = json.loads(content.splitlines()[-1])["cursor"]
    later = await sync_to_async(create_chat)(ada, "two", "yes")
    _, content = await downloaded(async_client, f"since={cursor}", **bearer)
    assert "two" in titles(content)
    response, content = await downloaded(async_client, f"format=markdown&session={later.pk}", **bearer)
    assert (response["Content-Type"], b"two" in content) == ("text/markdown; charset=utf-8", True)
    response, content = await downloaded(async_client, "gzip=true&mine=true", **bearer)
    assert (response["Content-Type"], titles(gzip.decompress(content))) == ("application/gzip", ["one", "two"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", EXPORTERS)
async def test_every_text_export_says_that_it_is_utf_8(async_client: AsyncClient, ada: User, name: str) -> None:
    session = await sync_to_async(create_chat)(ada, "早上好", "yes")
    key = await sync_to_async(create_secret)(ada, "export", owner_wide=True)
    response, content = await downloaded(
        async_client, f"format={name}&session={session.pk}", **{"Authorization": f"Bearer {key}"}
    )
    assert response["Content-Type"].endswith("; charset=utf-8")
    assert content.decode("utf-8")


@pytest.fixture
def session(ada: User) -> Session:
    return create_chat(ada, "Ada's words", "yes")


def count(api: ApiClient, query: str = "", **headers: str) -> int:
    report = api.get(f"/export?report=true&{query}", **headers)
    assert set(report) == {"format", "sessions", "bytes", "notes", "cursor"}
    return int(report["sessions"])


@pytest.mark.django_db
def test_what_a_format_cannot_carry_is_told_without_the_bytes(ada: User, session: Session) -> None:
    report = ApiClient(ada).get("/export?format=csv&report=true")
    assert (report["format"], report["sessions"]) == ("csv", 1)
    assert all(note["level"] in ("lost", "repaired", "ignored") for note in report["notes"])


@pytest.mark.django_db
def test_an_export_is_narrowed_as_lists_are(ada: User, session: Session) -> None:
    other = create_chat(ada, "relayed", source="relay")
    api = ApiClient(ada)
    assert count(api) == 2
    assert count(api, "source=relay") == 1
    assert count(api, "owner=bob") == 0
    assert count(api, f"session={session.pk}&session={other.pk}") == 2
    assert count(api, "to=2020-01-01") == 0


@pytest.mark.django_db
def test_strangers_keys_and_staff_get_what_is_theirs(ada: User, bob: User, staff: User, session: Session) -> None:
    query = f"session={session.pk}"
    for stranger in (ApiClient(bob), ApiClient(staff), ApiClient(key=create_secret(bob, "export", owner_wide=True))):
        assert count(stranger) == 0
        assert stranger.refused(f"/export?{query}") == (404, "not_found")
    assert ApiClient(key=create_secret(ada, "read", owner_wide=True)).refused("/export") == (403, "scope_missing")
    assert ApiClient().refused("/export") == (401, "not_authenticated")
    staff.user_permissions.add(*Permission.objects.filter(codename="view_session"))
    assert ApiClient(staff).refused(f"/export?{query}") == (403, "not_permitted")
    staff.user_permissions.add(*Permission.objects.filter(codename="export_session"))
    assert ApiClient(staff).refused(f"/export?{query}") == (403, "reason_needed")
    assert count(ApiClient(staff), query, X_Parley_Reason="a request by law") == 1
    assert AuditEvent.objects.filter(action="session.exported", session=session.pk, actor=staff.pk).exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "query",
    [
        "format=docx", "format=", "since=x", "since=", "since=0~" + "9" * 400, "since=2026-13-01T00:00:00Z~1",
        "since=0~1~0~1~nonsense", "session=x", "mine=perhaps", "gzip=2", "limit=5",
        f"since=0~1~0~1~{'-' * 36}",
    ],
)  # fmt: skip
def test_an_export_that_makes_no_sense_is_400(ada: User, query: str) -> None:
    assert ApiClient(ada).refused(f"/export?{query}") == (400, "invalid")


@pytest.mark.django_db
def test_asking_for_the_headers_exports_nothing(ada: User, session: Session) -> None:
    assert ApiClient(ada).call("HEAD", "/export").status_code == 405
    assert not AuditEvent.objects.filter(action="export").exists()
