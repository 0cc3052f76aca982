"""Who may call what: keys wherever an SDK puts them, addresses, sessions by name, and refusals in the caller's form."""

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from aiohttp import web

from history.access import keys
from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.models import ApiKey
from history.record import recorder
from project.accounts.models import User
from relay.gateway.references import ownership
from relay.models import IssuedId
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from tests.clients import HI_BODY, SMALLEST_CALLS, RunningRelay, send_request
from tests.vendors import Vendors, raw
from tests.vendors.setup import endpoint_at

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = pytest.mark.any_database

UNKNOWN = "parley_unknown123_" + "x" * 43


@pytest.fixture(autouse=True)
def _answers(vendors: Vendors) -> Iterator[None]:
    yield
    assert all(seen.problem is None for seen in vendors.requests)


def places(key: str) -> list[tuple[str, dict[str, str]]]:
    return [
        ("", {"authorization": f"Bearer {key}"}),
        ("", {"x-api-key": key}),
        ("", {"x-goog-api-key": key}),
        (f"?key={key}", {}),
        ("", {"authorization": "Bearer sk-of-a-vendor", "x-api-key": key}),
    ]


def test_a_key_is_found_wherever_an_sdk_puts_it(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    for query, headers in places(key):
        assert send_request(relay, f"/v1/chat/completions{query}", HI_BODY, **headers).status == 200
    assert all(key not in str((seen.headers, seen.query)) for seen in vendors.requests)
    assert len(vendors.requests) == 5


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_a_good_key_each_language_gets_its_own_envelope(
    relay: RunningRelay, dialect: str, vendors: Vendors
) -> None:
    path, body = SMALLEST_CALLS[dialect]
    for headers in ({}, {"authorization": "Bearer sk-proj-1"}, {"authorization": f"Bearer {UNKNOWN}"}):
        answered = send_request(relay, path, body, **headers)
        failed = DIALECTS[dialect].decode_error(answered.status, answered.body)
        assert (answered.status, failed.kind) == (401, "authentication")
        assert "key" in failed.message
        assert uuid.UUID(answered.headers["x-parley-exchange-id"])
    assert vendors.requests == []
    assert relay.accepted() == []


def test_a_key_without_the_scope_is_told_so(relay: RunningRelay, ada: User) -> None:
    reader = keys.create(name="reader", owner=ada, scopes=["read"]).secret
    answered = send_request(relay, "/v1/messages", HI_BODY, x_api_key=reader)
    assert (answered.status, answered.json["error"]["type"]) == (403, "permission_error")


def test_a_revoked_key_stops_within_a_second(relay: RunningRelay, key: str) -> None:
    assert send_request(relay, "/v1/chat/completions", HI_BODY, x_api_key=key).status == 200
    keys.revoke(ApiKey.objects.get(), actor=None)
    assert send_request(relay, "/v1/chat/completions", HI_BODY, x_api_key=key).status == 401


ELSEWHERE = [
    ("GET", "/v1/files", {}, "openai-chat"),
    ("POST", "/v1/batches", {}, "openai-chat"),
    ("GET", "/v1/responses/resp_1", {}, "openai-chat"),
    ("GET", "/v1/messages", {"anthropic-version": "2023-06-01"}, "anthropic-messages"),
    ("POST", "/v1/messages/batches", {"anthropic-version": "2023-06-01"}, "anthropic-messages"),
    ("GET", "/v1beta/files", {}, "gemini-generate"),
    ("POST", "/v1beta/models/model:predict", {}, "gemini-generate"),
]


@pytest.mark.parametrize(("method", "path", "headers", "dialect"), ELSEWHERE)
def test_what_is_not_carried_is_not_found_in_the_callers_envelope(
    relay: RunningRelay, key: str, vendors: Vendors, method: str, path: str, headers: dict[str, str], dialect: str
) -> None:
    answered = send_request(relay, path, b"", method=method, authorization=f"Bearer {key}", **headers)
    failed = DIALECTS[dialect].decode_error(answered.status, answered.body)
    assert (answered.status, failed.kind) == (404, "not_found")
    assert set(answered.json) == set(DIALECTS[dialect].encode_error(failed)[1])
    assert vendors.requests == []


def test_a_path_that_the_operator_lists_is_passed_on_and_recorded_nowhere(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    endpoint = endpoint_at(vendors, "openai-chat", paths=("GET /v1/files", "/v1/batches/*"))
    process_state.set(registry.Router([HttpProvider(endpoint)]))
    vendors.pages["/v1/files"] = {"object": "list", "data": []}
    vendors.pages["/v1/batches/batch_1"] = {"id": "batch_1"}
    answered = send_request(relay, "/v1/files?limit=2", method="GET", x_api_key=key)
    assert (answered.status, answered.json["object"]) == (200, "list")
    assert answered.headers["x-parley-recording"] == "off"
    assert send_request(relay, "/v1/batches/batch_1", method="GET", x_api_key=key).json == {"id": "batch_1"}
    refused = send_request(relay, "/v1/files", b"{}", x_api_key=key)
    assert (refused.status, refused.json["error"]["code"]) == (404, None)
    assert relay.accepted() == []


def test_embeddings_pictures_and_sounds_are_passed_on_unrecorded(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    vendors.pages["/v1/embeddings"] = {"data": [{"embedding": [0.1]}]}
    vendors.pages["/v1/audio/transcriptions"] = lambda _: {"text": "hi"}
    answered = send_request(relay, "/v1/embeddings", {"model": "model", "input": "hi"}, x_api_key=key)
    assert (answered.status, answered.json["data"][0]["embedding"]) == (200, [0.1])
    assert relay.accepted() == []


def test_that_nothing_has_changed_at_a_listed_path_is_passed_on(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, "openai-chat", paths=("GET /v1/files",)))]))
    vendors.pages["/v1/files"] = web.Response(status=304, headers={"etag": '"1"'})
    answered = send_request(relay, "/v1/files", method="GET", x_api_key=key, if_none_match='"1"')
    assert (answered.status, answered.headers["etag"], answered.body) == (304, '"1"', b"")


# Models, and how it stands with a key.


def test_models_are_listed_in_the_dialect_of_the_caller(relay: RunningRelay, key: str) -> None:
    of_openai = send_request(relay, "/v1/models", method="GET", x_api_key=key).json
    assert {model["id"] for model in of_openai["data"]} >= {"model"}
    assert of_openai["object"] == "list"
    of_anthropic = send_request(
        relay, "/v1/models?limit=1000", method="GET", x_api_key=key, anthropic_version="2023-06-01"
    ).json
    assert {model["type"] for model in of_anthropic["data"]} == {"model"}
    assert of_anthropic["has_more"] is False
    of_gemini = send_request(relay, "/v1beta/models", method="GET", x_goog_api_key=key).json
    assert "models/model" in {model["name"] for model in of_gemini["models"]}
    assert send_request(relay, "/v1/models/model", method="GET", x_api_key=key).json["id"] == "model"
    assert send_request(relay, "/v1/models/missing", method="GET", x_api_key=key).status == 404


def test_model_with_a_colon_in_its_name_has_the_dialect_of_the_caller(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    models = (Model(name="qwen3:8b"),)
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, "openai-chat", models=models))]))
    of_openai = openai.OpenAI(api_key=key, base_url=f"{relay.url}/v1", max_retries=0)
    assert of_openai.models.retrieve("qwen3:8b").object == "model"
    assert (
        send_request(relay, "/v1beta/models/qwen3:8b", method="GET", x_goog_api_key=key).json["name"]
        == "models/qwen3:8b"
    )
    with pytest.raises(openai.NotFoundError, match="qwen3:9b"):
        of_openai.models.retrieve("qwen3:9b")


def test_a_model_of_two_providers_is_found_by_each_name_that_leads_to_it(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    endpoints = [endpoint_at(vendors, "openai-chat", name=name) for name in ("first", "second")]
    process_state.set(registry.Router([HttpProvider(endpoint) for endpoint in endpoints]))
    listed = send_request(relay, "/v1/models", method="GET", x_api_key=key).json["data"]
    assert [(model["id"], model["owned_by"]) for model in listed] == [("model", "first"), ("second/model", "second")]
    for name, owner in (("model", "first"), ("first/model", "first"), ("second/model", "second")):
        found = send_request(relay, f"/v1/models/{name}", method="GET", x_api_key=key).json
        assert (found["id"], found["owned_by"]) == (name, owner)
    assert send_request(relay, "/v1/models/third/model", method="GET", x_api_key=key).status == 404


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/responses/input_tokens"])
def test_a_name_that_no_model_can_have_is_not_found_and_not_remembered(
    relay: RunningRelay, key: str, vendors: Vendors, path: str
) -> None:
    """What is known of a model is kept by its name; so much of a caller's text would be kept with it."""
    process_state.set(
        registry.Router([HttpProvider(endpoint_at(vendors, "openai-chat", name="openai", lists_models=True))])
    )
    vendors.pages[path] = {"data": []}
    answered = send_request(relay, path, {**HI_BODY, "model": "gpt-" + "x" * 100_000, "input": "hi"}, x_api_key=key)
    assert (answered.status, len(answered.body) < 1_000) == (404, True)
    assert (
        send_request(relay, path, {**HI_BODY, "model": "gpt-" + "x" * 200, "input": "hi"}, x_api_key=key).status == 200
    )


def test_a_key_can_ask_how_it_stands(relay: RunningRelay, ada: User) -> None:
    made = keys.create(name="ci", owner=ada, recording="metadata", requests_per_minute=10, tokens_per_day=1_000)
    send_request(relay, "/v1/chat/completions", HI_BODY, x_api_key=made.secret)
    answer = send_request(relay, "/v1/me", method="GET", x_api_key=made.secret).json
    assert (answer["name"], answer["recording"]) == ("ci", "metadata")
    assert (answer["limits"]["requests_per_minute"], answer["limits"]["tokens_per_day"]) == (10, 1_000)
    assert answer["limits"]["cost_per_month"] is None
    assert answer["use"]["day"] == {"requests": 1, "tokens": 17, "cost": 0.0}
    assert made.secret not in json.dumps(answer)


# Sessions by name.


def session_of(relay: RunningRelay, key: str, body: Any = None, **headers: str) -> str | None:
    answered = send_request(relay, "/v1/chat/completions", body or HI_BODY, x_api_key=key, **headers)
    assert answered.status == 200, answered.body
    answer = answered.headers.get("x-parley-session-id")
    assert answered.headers.get("x-crs-session-id") == answer
    return answer


def test_a_call_that_names_no_session_is_told_none(relay: RunningRelay, key: str) -> None:
    assert session_of(relay, key) is None
    assert relay.accepted()[0].session is None


OLD_USER_ID = f"user_{'a' * 64}_account__session_{uuid.UUID(int=1)}"
NEW_USER_ID = json.dumps({"device_id": "d", "account_uuid": "", "session_id": str(uuid.UUID(int=1))})
NAMES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"x-claude-code-session-id": "one"}, {}),
    ({"thread-id": "one"}, {}),
    ({"session_id": "one"}, {}),
    ({"x-session-id": "one"}, {}),
    ({"x-session-affinity": "one"}, {}),
    ({"x-qwen-code-session-id": "one"}, {}),
    ({"x-parley-session-id": "one"}, {}),
    ({}, {"sessionId": "one"}),
]


@pytest.mark.parametrize(("headers", "fields"), NAMES)
def test_a_name_that_a_client_gives_is_one_session_of_its_key(
    relay: RunningRelay, key: str, ada: User, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    other_key = keys.create(name="other", owner=ada, recording="full").secret
    first, again = (session_of(relay, key, {**HI_BODY, **fields}, **headers) for _ in range(2))
    assert first == again is not None
    assert session_of(relay, other_key, {**HI_BODY, **fields}, **headers) not in (None, first)


def test_claude_codes_session_is_read_from_both_forms_of_its_user_id(relay: RunningRelay, key: str) -> None:
    body = {**HI_BODY, "metadata": {"user_id": OLD_USER_ID}}
    old = send_request(relay, "/v1/messages", body, x_api_key=key, anthropic_version="2023-06-01")
    body = {**HI_BODY, "metadata": {"user_id": NEW_USER_ID}}
    new = send_request(relay, "/v1/messages", body, x_api_key=key, anthropic_version="2023-06-01")
    assert old.headers["x-parley-session-id"] == new.headers["x-parley-session-id"]


def test_a_subagent_of_claude_code_is_a_session_of_its_own(relay: RunningRelay, key: str) -> None:
    main = session_of(relay, key, x_claude_code_session_id="one")
    agent = session_of(relay, key, x_claude_code_session_id="one", x_claude_code_agent_id="a1")
    assert main != agent is not None


@pytest.mark.parametrize("header", ["x-parley-new-session", "x-crs-new-session"])
def test_a_new_session_can_be_asked_for_and_continued_by_its_id_at_once(
    relay: RunningRelay, key: str, header: str
) -> None:
    new = session_of(relay, key, **{header: "true", "x-session-id": "one"})
    assert new is not None
    assert session_of(relay, key, **{header: "true"}) != new
    assert session_of(relay, key, x_parley_session_id=new) == new
    assert session_of(relay, key, x_crs_session_id=new) == new
    assert session_of(relay, key, {**HI_BODY, "sessionId": "new"}) not in (new, None)
    assert [accepted.new_session for accepted in relay.accepted()] == [True, True, False, False, True]


def test_a_session_of_another_key_is_not_found_and_nothing_is_sent(
    relay: RunningRelay, key: str, ada: User, bob: User, vendors: Vendors
) -> None:
    theirs = keys.create(name="theirs", owner=bob, recording="full")
    issued = session_of(relay, theirs.secret, x_session_id="one")
    own_key = ApiKey.objects.get(name="laptop")
    stored = recorder.start_session(owner=bob, api_key=theirs.api_key, source="relay")
    ours = recorder.start_session(owner=ada, api_key=own_key, source="relay")
    before = len(vendors.requests)
    for session in (issued, stored.pk, uuid.uuid4()):
        answered = send_request(relay, "/v1/chat/completions", HI_BODY, x_api_key=key, x_parley_session_id=str(session))
        error = answered.json["error"]
        assert (answered.status, error["type"], error["code"]) == (404, "invalid_request_error", None)
        assert error["message"] == f"Session {session} not found."
    assert len(vendors.requests) == before
    assert session_of(relay, key, x_parley_session_id=str(ours.pk)) == str(ours.pk)


def test_of_a_reply_that_is_not_recorded_the_name_is_kept(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    ApiKey.objects.update(recording="no_replies")
    vendors.plays("openai-responses", raw(b'{"id":"resp_abc123","object":"response","output":[]}'))
    send_request(relay, "/v1/responses", {"model": "model", "input": "hi"}, x_api_key=key)
    assert relay.ended()[0].metadata["reply_id"] == "resp_abc123"


@pytest.mark.usefixtures("one_process")
def test_an_answer_that_the_vendor_keeps_is_continued_only_by_the_key_it_was_given_to(
    relay: RunningRelay, key: str, bob: User, vendors: Vendors
) -> None:
    theirs = keys.create(name="theirs", owner=bob).secret
    vendors.plays("openai-responses", raw(b'{"id":"resp_abc123","object":"response","output":[]}'))
    first = {"model": "model", "input": "hi"}
    assert send_request(relay, "/v1/responses", first, x_api_key=key).json["id"] == "resp_abc123"
    then = {**first, "previous_response_id": "resp_abc123"}
    assert send_request(relay, "/v1/responses", then, x_api_key=key).status == 200
    assert send_request(relay, "/v1/responses", then, x_api_key=theirs).status == 404
    assert send_request(relay, "/v1/responses", {**first, "conversation": "conv_1"}, x_api_key=key).status == 404
    ownership.flush_issued_ids()
    process_state.reset(ownership.IssuedIdCache)
    assert send_request(relay, "/v1/responses", then, x_api_key=key).status == 200
    assert send_request(relay, "/v1/responses", then, x_api_key=theirs).status == 404
    assert IssuedId.objects.filter(name="resp_abc123").count() == 1


def test_continuation_of_a_stored_answer_stays_at_its_vendor(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    vendors.plays("openai-responses", raw(b'{"id":"resp_abc123","object":"response","output":[]}'))
    send_request(relay, "/v1/responses", {"model": "model", "input": "hi"}, x_api_key=key)
    then = {"model": "claude", "input": "and then?", "previous_response_id": "resp_abc123"}
    process_state.set(
        registry.Router([HttpProvider(endpoint_at(vendors, "anthropic-messages", models=(Model(name="claude"),)))])
    )
    answer = send_request(relay, "/v1/responses", then, x_api_key=key)
    assert (answer.status, "Send the whole conversation" in answer.json["error"]["message"]) == (400, True)
    assert len(vendors.requests) == 1
    assert [ended.reason for ended in relay.ended(2)] == ["done", "refused"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"model": "model"', "is not valid JSON"),
        (b'["model"]', "must be a JSON object"),
        (b'{"messages": []}', "you must provide a model"),
        (b'{"model": "' + b"m" * 10_000 + b'"}', "is not available. GET /v1/models lists the available models."),
    ],
)
def test_request_without_a_model_gets_the_reason(
    relay: RunningRelay, key: str, vendors: Vendors, body: bytes, words: str
) -> None:
    answer = send_request(relay, "/v1/chat/completions", body, x_api_key=key).json["error"]["message"]
    assert (words in answer, len(answer) < 400) == (True, True)
    assert vendors.requests == []


@pytest.mark.usefixtures("one_process")
def test_only_what_a_reply_calls_itself_counts_as_given_to_a_key(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    echo = b'{"metadata":{"id":"resp_victim"},"id":"resp_mine","object":"response","output":[{"id":"resp_victim"}]}'
    first = {"model": "model", "input": "hi"}
    event = b'event: response.created\ndata: {"type":"response.created","response":%s}\n\n' % echo
    for said in (raw(echo), raw(event, content_type="text/event-stream")):
        process_state.reset(ownership.IssuedIdCache)
        vendors.plays("openai-responses", said)
        send_request(relay, "/v1/responses", first, x_api_key=key)
        for name, status in (("resp_mine", 200), ("resp_victim", 404)):
            then = {**first, "previous_response_id": name}
            assert send_request(relay, "/v1/responses", then, x_api_key=key).status == status


def test_an_answer_that_another_process_was_given_a_moment_ago_is_found(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    holder = ApiKey.objects.get()
    later = threading.Timer(0.6, IssuedId.objects.create, kwargs={"key_id": holder.pk, "name": "resp_elsewhere"})
    later.start()
    then = {"model": "model", "input": "hi", "previous_response_id": "resp_elsewhere"}
    assert send_request(relay, "/v1/responses", then, x_api_key=key).status == 200
    later.join()
