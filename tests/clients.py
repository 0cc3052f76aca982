"""REST API client and `manage.py history`, both inside the test process."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.test import Client

from history.access import keys

HISTORY = "/api/history"


def create_secret(owner: Any, *scopes: str, **fields: Any) -> str:
    return keys.create(name="test", owner=owner, scopes=scopes or ("read",), **fields).secret


class ApiClient:
    """Paths are below /api/history; answers come as (status, JSON)."""

    def __init__(self, who: Any = None, *, key: str = "") -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        if who is not None:
            self.client.force_login(who)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        path = path.removeprefix("http://testserver")  # links to other pages are absolute
        address = path if path.startswith("/api") else f"{HISTORY}{path}"
        sent = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None:
            return self.client.generic(method, address, headers=sent)
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.client.generic(method, address, content, content_type="application/json", headers=sent)

    def get(self, path: str, **headers: str) -> Any:
        response = self.call("GET", path, **headers)
        assert response.status_code == 200, response.content
        return response.json()

    def refused(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and code of an error, which has the one form that errors have."""
        response = self.call(method, path, body, **headers)
        assert response["Content-Type"].startswith("application/json"), response.content
        told = response.json()
        assert set(told) == {"error"}, told
        assert set(told["error"]) <= {"code", "message", "fields"}
        assert told["error"]["message"]
        return response.status_code, told["error"]["code"]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Lines(StringIO):
    """Keeps what was written, a line each, although the command fails."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def write(self, text: str) -> int:
        self.lines += text.splitlines()
        return len(text)


def run_history(*arguments: Any, out: StringIO | None = None) -> tuple[str, str]:
    out, err = out or StringIO(), StringIO()
    call_command("history", *map(str, arguments), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def run_history_json(*arguments: Any) -> Any:
    return json.loads(run_history(*arguments, "--json")[0])
