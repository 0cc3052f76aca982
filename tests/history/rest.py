"""A program that asks the REST API, for tests: as somebody signed in, or with a key."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from history.access import keys

HISTORY = "/api/history"


def secret_of(owner: Any, *scopes: str, **fields: Any) -> str:
    return keys.create(name="test", owner=owner, scopes=scopes or ("read",), **fields).secret


class Api:
    """Paths are below /api/history; answers come as (status, JSON)."""

    def __init__(self, who: Any = None, *, key: str = "") -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        if who is not None:
            self.client.force_login(who)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
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
