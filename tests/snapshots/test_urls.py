"""URLs of pages, the REST API, the sockets, the relay and the MCP server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from relay.gateway import application as gateway
from relay.mcp_server import application as mcp
from relay.routing import routes
from tests.snapshots.conftest import Snapshot

pytestmark = pytest.mark.any_database

# Every kind of path that the ASGI application sorts before Django sees a request.
PATHS = ["/v1/messages", "/v1beta/models/m:generateContent", "/v1", "/v1beta", "/v2/x", "/mcp", "/mcp/", "/mcp/x", "/"]


def test_urls_and_their_names_are_as_recorded(snapshot: Snapshot) -> None:
    lines = sorted(f"{pattern} {name}".rstrip() for pattern, name in _urls(get_resolver().url_patterns, "/", ""))
    snapshot("urls.txt", "\n".join(lines) + "\n")


def test_websocket_urls_are_as_recorded(snapshot: Snapshot) -> None:
    snapshot("websocket_urls.txt", "".join(f"/{route.pattern}\n" for route in routes))


def test_paths_outside_django_are_as_recorded(snapshot: Snapshot) -> None:
    snapshot("asgi_paths.json", {path: _server_of(path) for path in PATHS})


def _sorted_choices(match: re.Match[str]) -> str:
    return "|".join(sorted(match[0].split("|")))


def _urls(patterns: list[URLPattern | URLResolver], before: str, namespace: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        # The admin lists apps in the order in which they register, which depends on imports.
        url = before + re.sub(r"(?<=<app_label>)[\w|]+", _sorted_choices, str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from _urls(pattern.url_patterns, url, inner)
        else:
            yield url, f"{namespace}{pattern.name}" if pattern.name else ""


def _server_of(path: str) -> str:
    if gateway.serves(path):
        return "relay"
    return "mcp" if mcp.serves(path) else "django"
