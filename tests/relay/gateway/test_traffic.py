"""Every request that the known clients were seen to send, through the relay: to the byte, and into one session each."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live_settings

from history.db.process_state import process_state
from history.models import Exchange, Session
from relay.digest.digester import Digester
from relay.gateway.call import calls, session_ids
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from tests.clients import RunningRelay, send_request
from tests.relay.digest.programs import TRAFFIC, captured
from tests.vendors.raw_upstream import RawUpstream, complete_reply, raw_endpoint

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = pytest.mark.any_database

NAMES = sorted(path.stem for path in Path(TRAFFIC).glob("*.json"))
POSTED = [name for name in NAMES if captured(name)["method"] == "POST"]
BASES = {"anthropic-messages": "", "openai-chat": "/v1", "openai-responses": "/v1", "gemini-generate": "/v1beta"}


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    """One that speaks every language and has every model that was asked for."""
    models = tuple(Model(name=name) for name in {_model(captured(name)) for name in POSTED})
    router = registry.Router(
        [
            HttpProvider(raw_endpoint(bare, name=dialect, dialect=dialect, base_url=f"{bare.url}{base}", models=models))
            for dialect, base in BASES.items()
        ]
    )
    process_state.set(router)
    return router


def _model(request: dict[str, Any]) -> str:
    found = calls.find_address("POST", request["path"].partition("?")[0])
    return (found.model if found else "") or str(request["body"].get("model", ""))


@pytest.mark.parametrize("name", POSTED)
def test_what_a_client_sends_arrives_to_the_byte_and_becomes_at_most_one_session(
    name: str, relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    request = captured(name)
    body = json.dumps(request["body"], ensure_ascii=False).encode()
    reply = b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    bare.says.append(complete_reply(reply, status="529 Overloaded"))
    headers = {one.lower().replace("-", "_"): value for one, value in request["headers"].items()}
    answered = send_request(relay, request["path"], body, **{**headers, "x_api_key": key})
    assert hashlib.sha256(bare.heard[0].body).digest() == hashlib.sha256(body).digest()
    assert hashlib.sha256(answered.body).digest() == hashlib.sha256(reply).digest()
    sent = {one.lower(): value for one, value in request["headers"].items()}
    kept = {
        one: value for one, value in sent.items() if one.startswith(("anthropic-", "x-stainless", "x-codex", "user-"))
    }
    assert kept.items() <= bare.heard[0].headers.items()
    relay.ended()
    digester = Digester(relay.journal.folder, name="test", end_wait=0)
    for _ in range(4):
        digester.step()
    assert Exchange.objects.get().status_code == 529
    assert Session.objects.count() <= 1


def test_the_list_of_models_is_answered_here(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    request = captured("sdk-python-5")
    headers = {one.lower().replace("-", "_"): value for one, value in request["headers"].items()}
    told = send_request(relay, request["path"], method="GET", **{**headers, "authorization": f"Bearer {key}"})
    assert {"m", "claude-opus-4-8"} <= {model["id"] for model in told.json["data"]}
    assert bare.heard == []


# How to point them here: docs/clients/.

CLIENTS = Path(live_settings.BASE_DIR) / "docs" / "clients"
PAGES = sorted(path.stem for path in CLIENTS.glob("*.md"))


def page_of(name: str) -> str:
    return (CLIENTS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_every_client_has_a_page_that_says_how_what_is_grouped_and_what_is_kept(name: str) -> None:
    page = page_of(name)
    for heading in ("## How to connect", "## Sessions", "## Recorded data"):
        assert heading in page
    assert "http://127.0.0.1:8000" in page
    assert re.search(r"Tested with [^.]*\d+\.\d+", page)
    assert f"(clients/{name}.md)" in (CLIENTS.parent / "relay.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "request_of", "address", "header"),
    [
        ("claude-code", "claude-code-2", "/v1/messages?beta=true", "X-Claude-Code-Session-Id"),
        ("claude-code", "claude-code-latest-1", "/v1/messages?beta=true", "X-Claude-Code-Session-Id"),
        ("codex", "codex-1", "/v1/responses", "thread-id"),
        ("gemini-cli", "gemini-cli-2", "/v1beta", ""),
        ("sdks", "sdk-python-2", "", ""),
        ("sdks", "sdk-python-7", "", ""),
        ("sdks", "sdk-python-10", "", ""),
    ],
)
def test_a_page_says_what_the_requests_of_its_client_show(
    page: str, request_of: str, address: str, header: str
) -> None:
    request, told = captured(request_of), page_of(page)
    headers = {one.lower(): value for one, value in request["headers"].items()}
    assert address in told
    assert request["path"].startswith(address)
    found = session_ids.read_session(headers, request["body"], key=1)
    if header:
        assert header in told.partition("## Sessions")[2]
        assert header.lower() in headers
        assert (found.recognised_by, found.session is not None) == ("client id", True)
    else:
        assert re.search(r"recognises \w+ conversations by the messages", " ".join(told.split()))
        assert found.session is None
