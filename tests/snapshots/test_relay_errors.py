"""Errors of the relay in every dialect, the paths that it serves, and the headers of its replies."""

from __future__ import annotations

import json
from typing import Any, get_args
from uuid import uuid4

import pytest

from history.access import keys
from history.answers.events import AnswerFailed, AnswerStarted, ErrorKind, TextPiece
from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.record import recorder
from project.accounts.models import User
from relay.providers import registry
from relay.providers.http import HttpProvider
from tests.clients import SMALLEST_CALLS, Reply, RunningRelay, send_request
from tests.servers.processes import free_port
from tests.snapshots.conftest import Snapshot
from tests.snapshots.masks import Masks
from tests.vendors import Vendors
from tests.vendors.setup import endpoint_at

pytestmark = pytest.mark.any_database

UNKNOWN_KEY = "parley_unknown123_" + "x" * 43
PATHS = [
    *(("POST", path) for path, _ in SMALLEST_CALLS.values()),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/responses/input_tokens"),
    *(("POST", f"/v1/{name}") for name in ("embeddings", "moderations")),
    *(("POST", f"/v1/audio/{name}") for name in ("speech", "transcriptions", "translations")),
    *(("POST", f"/v1/images/{name}") for name in ("generations", "edits", "variations")),
    *(
        ("POST", f"/{version}/models/model:{verb}")
        for version in ("v1", "v1beta")
        for verb in (
            *("generateContent", "streamGenerateContent", "countTokens"),
            *("embedContent", "batchEmbedContents", "unknownVerb"),
        )
    ),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/model"),
    ("GET", "/v1/models/none"),
    ("GET", "/v1beta/models"),
    ("GET", "/v1beta/models/model"),
    ("GET", "/v1beta/models/none"),
    ("GET", "/v1/me"),
    ("GET", "/v1/messages"),
    ("POST", "/v1/files"),
    ("POST", "/v1/messages/batches"),
    ("POST", "/v1beta/files"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/models/model"),
]
# Headers that clients act on.
RECORDED_HEADERS = ("accept-encoding", "content-type", "retry-after", "www-authenticate", "x-parley-error")


def test_error_envelopes_of_each_kind_are_as_recorded(snapshot: Snapshot) -> None:
    failed = {kind: AnswerFailed(message="<message>", kind=kind) for kind in get_args(ErrorKind)}
    encoded = {
        name: {kind: list(dialect.encode_error(error)) for kind, error in failed.items()}
        for name, dialect in DIALECTS.items()
    }
    snapshot("relay_error_kinds.json", encoded)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_fails_half_way_ends_as_recorded(snapshot: Snapshot, dialect: str) -> None:
    encoder = DIALECTS[dialect].stream_encoder(model="model", reply_id="<id>")
    sent = encoder.feed(AnswerStarted(model="model")) + encoder.feed(TextPiece(part="text", text="Half"))
    sent += encoder.feed(AnswerFailed(message="<message>", kind="overloaded"))
    snapshot(f"relay_failed_stream_{dialect}.txt", sent.decode())


def test_paths_of_the_relay_answer_as_recorded(relay: RunningRelay, key: str, snapshot: Snapshot) -> None:
    """A path that is served reaches the provider, which refuses the empty request, and is recorded."""
    lines = []
    for method, path in PATHS:
        reply = send_request(relay, path, {"model": "model"} if method == "POST" else b"", method=method, x_api_key=key)
        envelope = _masked_reply(reply)["body"] if reply.status >= 400 else sorted(reply.json)
        is_served = reply.status < 400 or "x-parley-recording" in reply.headers
        lines.append(f"{method} {path} {'served' if is_served else 'refused'} {reply.status} {json.dumps(envelope)}\n")
    snapshot("relay_paths.txt", "".join(sorted(set(lines))))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_refusals_of_the_relay_are_as_recorded(
    relay: RunningRelay, key: str, ada: User, bob: User, settings: Any, snapshot: Snapshot, dialect: str
) -> None:
    path, body = SMALLEST_CALLS[dialect]
    unknown = {**body, "model": "none"}, path.replace("models/model", "models/none")
    limited = keys.create(name="limited", owner=ada, requests_per_minute=1).secret
    theirs = recorder.start_session(owner=bob)
    found = {
        "no key": send_request(relay, path, body),
        "another vendor's key": send_request(relay, path, body, x_api_key="sk-proj-1"),
        "unknown key": send_request(relay, path, body, x_api_key=UNKNOWN_KEY),
        "scope missing": send_request(relay, path, body, x_api_key=_key(ada, scopes=["read"])),
        "unknown model": send_request(relay, unknown[1], unknown[0], x_api_key=key),
        "not JSON": send_request(relay, path, b"{", x_api_key=key),
        "not an object": send_request(relay, path, b"[]", x_api_key=key),
        "unknown encoding": send_request(relay, path, b"{}", x_api_key=key, content_encoding="compress"),
        "broken encoding": send_request(relay, path, b"{}", x_api_key=key, content_encoding="gzip"),
        "another user's session": send_request(relay, path, body, x_api_key=key, x_parley_session_id=str(theirs.pk)),
        "unknown session": send_request(relay, path, body, x_api_key=key, x_parley_session_id=str(uuid4())),
        # Three, because another minute of the clock may begin between two.
        "over the limit": max((send_request(relay, path, body, x_api_key=limited) for _ in range(3)), key=_status),
    }
    settings.PARLEY_RELAY_BODY_MB = 0
    found["too large"] = send_request(relay, path, body, x_api_key=key)
    told = {name: _masked_reply(reply) for name, reply in found.items()}
    # How long to wait depends on the second in which the test runs.
    told["over the limit"]["headers"]["retry-after"] = "<seconds>"
    snapshot(f"relay_refusals_{dialect}.json", told)


def test_an_upstream_out_of_reach_is_reported_as_recorded(
    relay: RunningRelay, key: str, vendors: Vendors, snapshot: Snapshot
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    told = {}
    for dialect, (path, body) in SMALLEST_CALLS.items():
        endpoint = endpoint_at(vendors, dialect, base_url=nowhere)
        process_state.set(registry.Router([HttpProvider(endpoint)]))
        told[dialect] = _masked_reply(send_request(relay, path, body, x_api_key=key))
    snapshot("relay_unreachable.json", told)


def test_reply_headers_of_the_relay_are_as_recorded(relay: RunningRelay, key: str, snapshot: Snapshot) -> None:
    path, body = SMALLEST_CALLS["openai-chat"]
    requests: dict[str, dict[str, str]] = {
        "plain": {},
        "named": {"x_parley_session_id": "job-1"},
        "named in the other header": {"x_crs_session_id": "job-1"},
        "new": {"x_parley_new_session": "true"},
        "new in the other header": {"x_crs_new_session": "true"},
        "new in the body": {},
    }
    masks, told = Masks(), {}
    for name, headers in requests.items():
        sent = body | ({"sessionId": "new"} if name == "new in the body" else {})
        reply = send_request(relay, path, sent, x_api_key=key, **headers)
        ours = {name: value for name, value in reply.headers.items() if name.startswith(("x-parley-", "x-crs-"))}
        told[name] = {"status": reply.status, "headers": masks(ours)}
    snapshot("relay_reply_headers.json", told)


def _key(owner: User, **fields: Any) -> str:
    return keys.create(name="other", owner=owner, **fields).secret


def _status(reply: Reply) -> int:
    return reply.status


def _masked_reply(reply: Reply) -> dict[str, Any]:
    try:
        body = Masks()(reply.json, sentences=("message",), varying=("prefix", "limits", "use"))
    except json.JSONDecodeError:
        body = f"<{len(reply.body)} bytes>"
    headers = {name: reply.headers[name] for name in RECORDED_HEADERS if name in reply.headers}
    return {"status": reply.status, "headers": headers, "body": body}
