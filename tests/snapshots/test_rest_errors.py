"""Errors of the REST API and of the MCP server: status, code, headers and form."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from channels.testing import ApplicationCommunicator
from django.conf import settings as live_settings
from django.contrib.auth.models import Permission
from django.db import OperationalError
from django.test import Client

from history import retention
from history.api import views
from project.accounts.models import User
from relay.mcp_server import application as mcp
from tests.clients import ApiClient, create_secret
from tests.factories import create_chat
from tests.servers.databases import close_connections
from tests.snapshots.conftest import Snapshot
from tests.snapshots.masks import Masks

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

NO_SESSION = "/sessions/8f14e45f-ceea-467f-a8f4-5d9f1e1b2c3d"
DOCS = Path(live_settings.BASE_DIR) / "docs" / "rest.md"


def test_errors_of_the_rest_api_are_as_recorded(
    ada: User, staff: User, settings: Any, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    session, held = create_chat(ada, "hello"), create_chat(ada, "kept")
    retention.hold(held, actor=staff, reason="audit")
    path = f"/sessions/{session.pk}"
    api, read_only = ApiClient(ada), ApiClient(key=create_secret(ada, "read"))
    found = {
        "not signed in": ApiClient().call("GET", "/sessions"),
        "unknown key": ApiClient(key="parley_unknown1_" + "x" * 43).call("GET", "/sessions"),
        "scope missing": read_only.call("DELETE", path),
        "unknown path": api.call("GET", "/api/none"),
        "unknown session": api.call("GET", NO_SESSION),
        "method not allowed": api.call("PUT", "/sessions"),
        "unknown parameter": api.call("GET", "/sessions?nonsense=1"),
        "wrong parameter": api.call("GET", "/sessions?limit=many"),
        "body is not JSON": api.call("PATCH", path, "{"),
        "wrong field": api.call("PATCH", path, {"pinned": "perhaps"}),
        "wrong type of body": api.client.generic("PATCH", f"/api/history{path}", "x", content_type="text/plain"),
        "body too large": api.call("PATCH", path, {"title": "x" * 70_000}),
        "changed meanwhile": api.call("PATCH", path, {"title": "x"}, If_Match='"other"'),
        "foreign host": api.call("GET", "/sessions", Host="evil.example"),
        "no CSRF token": _without_csrf_token(ada, path),
    }
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "delete_session"]))
    staff = User.objects.get(pk=staff.pk)
    found["another user's session"] = ApiClient(staff).call("GET", f"{path}/messages")
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="history"))
    staff = User.objects.get(pk=staff.pk)
    found["reason needed"] = ApiClient(staff).call("GET", f"{path}/messages")
    found["under hold"] = ApiClient(staff).call("DELETE", f"/sessions/{held.pk}", X_Parley_Reason="too old")
    settings.CHAT_HISTORY_ENABLED = False
    found["history is off"] = ApiClient(key=create_secret(ada, "import")).call("POST", "/import", b"x")
    settings.CHAT_HISTORY_ENABLED, settings.PARLEY_API_REQUESTS_PER_MINUTE = True, 1
    # Three, because another minute of the clock may begin between two.
    found["too many requests"] = max((api.call("GET", "/sessions") for _ in range(3)), key=_status)
    settings.PARLEY_API_REQUESTS_PER_MINUTE = 0
    for what, error in (("database away", OperationalError("gone")), ("a defect", RuntimeError("defect"))):
        monkeypatch.setattr(views.Sessions, "get", _raising(error))
        found[what] = api.call("GET", "/sessions")
    snapshot("rest_errors.json", {name: _masked_response(response) for name, response in found.items()})


def test_documented_codes_of_the_rest_api_are_as_recorded(snapshot: Snapshot) -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    snapshot(
        "rest_documented_codes.json", {status: sorted(re.findall(r"`([a-z_]+)`", codes)) for status, codes in rows}
    )


@pytest.mark.django_db(transaction=True)
async def test_refusals_of_the_mcp_server_are_as_recorded(snapshot: Snapshot) -> None:
    requests: dict[str, tuple[str, dict[str, str]]] = {
        "GET": ("GET", {}),
        "foreign host": ("POST", {"host": "evil.example"}),
        "foreign origin": ("POST", {"origin": "http://evil.example"}),
        "no key": ("POST", {}),
        "unknown key": ("POST", {"authorization": "Bearer parley_unknown1_" + "x" * 43}),
    }
    found = {name: await _mcp_refusal(method, headers) for name, (method, headers) in requests.items()}
    await asyncio.to_thread(close_connections)
    snapshot("mcp_refusals.json", found)


def _without_csrf_token(user: User, path: str) -> Any:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client.generic("DELETE", f"/api/history{path}")


def _raising(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def _status(response: Any) -> int:
    return int(response.status_code)


def _masked_response(response: Any) -> dict[str, Any]:
    body = Masks()(response.json(), sentences=("message",))
    if "fields" in body["error"]:
        body["error"]["fields"] = dict.fromkeys(body["error"]["fields"], "<list>")
    headers = {name: response[name] for name in ("Allow", "WWW-Authenticate") if name in response}
    if "Retry-After" in response:
        headers["Retry-After"] = "<seconds>"
    return {"status": response.status_code, "headers": headers, "body": body}


async def _mcp_refusal(method: str, headers: dict[str, str]) -> dict[str, Any]:
    pairs = [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
    scope = {"type": "http", "method": method, "path": "/mcp", "query_string": b"", "headers": pairs, "scheme": "http"}
    server = ApplicationCommunicator(mcp.application, scope)  # type: ignore[no-untyped-call]
    await server.send_input({"type": "http.request", "body": b"{}"})
    start, body = await server.receive_output(timeout=10), await server.receive_output(timeout=10)
    told = {name.decode(): value.decode() for name, value in start["headers"] if name != b"content-length"}
    return {
        "status": start["status"],
        "headers": told,
        "body": Masks()(json.loads(body["body"]), sentences=("message",)),
    }
