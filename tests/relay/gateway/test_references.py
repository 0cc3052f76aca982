"""References to what the vendor stores: a key may use only what it was given."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from history.access import keys
from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.models import ApiKey
from project.accounts.models import User
from relay.gateway.references import ownership
from relay.models import IssuedId
from relay.providers import registry
from relay.providers.base import Rule, Target
from relay.providers.http import HttpProvider
from tests.clients import SMALLEST_CALLS, RunningRelay, open_reply, send_request
from tests.servers.processes import wait_for
from tests.vendors.raw_upstream import (
    RawReply,
    RawUpstream,
    complete_reply,
    raw_endpoint,
    streamed_reply,
    use_raw_provider,
)

# What passes through on the wire is the same on every database; what is asked of it is shown by test_doors.
pytestmark = [pytest.mark.any_database, pytest.mark.usefixtures("one_process")]

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic-messages", "openai-chat", "openai-responses", "gemini-generate"
HI = {"model": "model", "input": "hi"}
ITEMS: list[dict[str, Any]] = [
    {"id": "rs_1", "type": "reasoning", "summary": []},
    {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
]


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, RESPONSES)


@pytest.fixture
def theirs(relay: RunningRelay, bob: User) -> str:
    return keys.create(name="theirs", owner=bob).secret


def reply(output: list[dict[str, Any]] = ITEMS, **more: Any) -> bytes:
    return json.dumps({**more, "id": "resp_1", "object": "response", "output": output}).encode()


def events(output: list[dict[str, Any]] = ITEMS) -> bytes:
    told = [{"type": "response.created", "response": {"id": "resp_1", "output": []}}]
    for item in output:
        told += [{"type": "response.output_item.added", "item": {"id": item["id"], "type": item["type"]}}]
        told += [{"type": "response.output_text.delta", "item_id": item["id"], "delta": "x" * 2_000}]
        told += [{"type": "response.output_item.done", "item": item}]
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in told)


def pieces(raw_reply: bytes, size: int) -> RawReply:
    return streamed_reply(*[raw_reply[start : start + size] for start in range(0, len(raw_reply), size)])


def referring(*input_items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "model", "input": [*input_items, {"role": "user", "content": "and?"}], **more}


def named(name: str) -> dict[str, Any]:
    return referring({"type": "item_reference", "id": name})


def status(relay: RunningRelay, body: Any, key: str, path: str = "/v1/responses") -> int:
    return send_request(relay, path, body, x_api_key=key).status


def issued() -> set[str]:
    ownership.flush_issued_ids()
    return set(IssuedId.objects.values_list("name", flat=True))


# Items of earlier answers.


@pytest.mark.parametrize("mode", ["full", "no_replies", "metadata", "off"])
@pytest.mark.parametrize(
    "raw_reply",
    [complete_reply(reply()), streamed_reply(events()), pieces(events(), 7)],
    ids=["whole", "stream", "cut up"],
)
def test_an_item_that_the_vendor_keeps_is_referred_to_only_by_the_key_it_was_given_to(
    relay: RunningRelay, key: str, theirs: str, bare: RawUpstream, raw_reply: RawReply, mode: str
) -> None:
    ApiKey.objects.filter(name="laptop").update(recording=mode)
    bare.says.append(raw_reply)
    send_request(relay, "/v1/responses", HI, x_api_key=key)
    assert [status(relay, named(name), key) for name in ("msg_1", "rs_1")] == [200, 200]
    told = send_request(relay, "/v1/responses", named("msg_1"), x_api_key=theirs)
    error = told.json["error"]
    assert (told.status, error["type"], error["code"]) == (404, "invalid_request_error", None)
    assert error["message"].startswith("Item with id 'msg_1' not found.")
    assert len(bare.heard) == 3


def test_what_another_process_was_given_is_in_the_database(
    relay: RunningRelay, key: str, theirs: str, bare: RawUpstream
) -> None:
    bare.says.append(complete_reply(reply()))
    send_request(relay, "/v1/responses", HI, x_api_key=key)
    wait_for(lambda: issued() == {"resp_1", "rs_1", "msg_1"}, seconds=5, what="the names")
    process_state.reset(ownership.IssuedIdCache)
    many = referring(*({"type": "item_reference", "id": item["id"]} for item in ITEMS))
    assert [status(relay, many, key), status(relay, many, theirs)] == [200, 404]


LOOKED_UP: list[Any] = [
    {"type": "item_reference", "id": "fc_theirs"},
    {"type": None, "id": "msg_theirs"},
    {"id": "msg_theirs"},
    {"id": "rs_theirs", "role": "assistant"},
    {"type": "reasoning", "id": "rs_theirs", "summary": []},
    {"type": "reasoning", "id": "rs_theirs", "summary": [], "encrypted_content": None},
    {"type": "image_generation_call", "id": "ig_theirs"},
    {"type": "file_search_call", "id": "fs_theirs", "queries": [], "results": None},
]


@pytest.mark.parametrize("item", LOOKED_UP, ids=json.dumps)
def test_every_id_that_the_vendor_looks_up_is_a_reference(
    relay: RunningRelay, key: str, bare: RawUpstream, item: Any
) -> None:
    assert status(relay, referring(item), key) == 404
    assert bare.heard == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"model","input":[{"type":"item\\u005freference","\\u0069d":"rs_theirs"}]}',
        b'{"model":"model","input":[{"type":"item_reference","id":"rs_theirs"}],"temperature":NaN}',
        b'{"model":"model","input":[null,{"type":"reasoning","id":"rs_theirs"}]}',
        b'{"model":"model","input":[{"type":"input_file","file_id":"file-1"}],"user":"\\ud800"}',
    ],
)
def test_no_way_of_writing_it_hides_a_reference(relay: RunningRelay, key: str, bare: RawUpstream, body: bytes) -> None:
    assert status(relay, body, key) == 404
    assert bare.heard == []


SAYS_ITSELF: list[Any] = [
    {"type": "message", "id": "msg_x", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
    {"id": "msg_x", "role": "assistant", "content": "Hello."},
    {"type": "function_call", "id": "fc_x", "call_id": "call_1", "name": "f", "arguments": '{"file_id": "file-1"}'},
    {"type": "function_call_output", "id": "fco_x", "call_id": "call_1", "output": '[{"file_id": "file-1"}]'},
    {"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "gAAAA"},
    {"type": "image_generation_call", "id": "ig_x", "result": "aGVsbG8="},
    {"type": "web_search_call", "id": "ws_x", "status": "completed", "action": {"type": "search", "query": "x"}},
]


@pytest.mark.parametrize("item", SAYS_ITSELF, ids=lambda item: item.get("type", "untyped"))
def test_what_says_itself_what_it_was_is_not_looked_up(
    relay: RunningRelay, key: str, bare: RawUpstream, item: Any
) -> None:
    assert status(relay, referring(item), key) == 200


def test_an_item_is_given_by_where_it_stands_in_a_reply_and_not_by_any_text(
    relay: RunningRelay, key: str, bare: RawUpstream
) -> None:
    theirs = {"id": "msg_theirs", "item": {"id": "msg_theirs"}, "type": "response.output_item.done"}
    text = [{"type": "output_text", "text": json.dumps(theirs), "annotations": [theirs]}]
    echo = [{"type": "message", "id": "msg_1", "content": text}]
    for raw_reply in (
        complete_reply(reply(echo, metadata=theirs, tools=[theirs], instructions=[theirs])),
        streamed_reply(events(echo)),
    ):
        process_state.reset(ownership.IssuedIdCache)
        bare.says.append(raw_reply)
        send_request(relay, "/v1/responses", HI, x_api_key=key)
        assert [status(relay, named("msg_1"), key), status(relay, named("msg_theirs"), key)] == [200, 404]


@pytest.mark.parametrize("raw_reply", [complete_reply(reply()), streamed_reply(events())], ids=["whole", "stream"])
def test_only_items_without_content_can_refer_to_what_is_not_stored(
    relay: RunningRelay, key: str, bare: RawUpstream, raw_reply: RawReply
) -> None:
    """Servers that keep nothing give ids all the same, and their clients send thoughts back with nothing else."""
    bare.says.append(raw_reply)
    send_request(relay, "/v1/responses", {**HI, "store": False}, x_api_key=key)
    assert status(relay, referring(ITEMS[0], store=False), key) == 200
    wait_for(lambda: issued() == {"resp_1", "rs_1"}, seconds=5, what="the names")


@pytest.mark.parametrize("raw_reply", [reply(), events()], ids=["whole", "stream"])
def test_names_in_a_compressed_reply_are_known_too(
    relay: RunningRelay, key: str, bare: RawUpstream, raw_reply: bytes
) -> None:
    kind = "application/json" if raw_reply[:1] == b"{" else "text/event-stream"
    bare.says.append(
        complete_reply(gzip.compress(raw_reply), headers=(f"content-type: {kind}", "content-encoding: gzip"))
    )
    send_request(relay, "/v1/responses", HI, x_api_key=key)
    assert status(relay, named("msg_1"), key) == 200
    assert status(relay, {**HI, "previous_response_id": "resp_1"}, key) == 200


# Files, stores, prompts, caches: refused, unless the operator lists their path.


def saying(dialect: str, *blocks: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    path, body = SMALLEST_CALLS[dialect]
    if dialect == GEMINI:
        return path, {"contents": [{"role": "user", "parts": list(blocks)}], **more}
    raw_reply = [{"role": "user", "content": [*blocks] or "hi"}]
    return path, {**body, "input" if dialect == RESPONSES else "messages": raw_reply, **more}


def tool(kind: str, **fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": kind, **fields}]}


FILE_AT_GOOGLE = "https://generativelanguage.googleapis.com/v1beta/files/abc"
LYING_THERE: list[tuple[str, tuple[str, dict[str, Any]], str]] = [
    (RESPONSES, saying(RESPONSES, {"type": "input_file", "file_id": "file-1"}), "/v1/files"),
    (RESPONSES, saying(RESPONSES, {"type": "input_image", "file_id": "file-1"}), "/v1/files"),
    (RESPONSES, saying(RESPONSES, **tool("file_search", vector_store_ids=["vs_1"])), "/v1/vector_stores/*"),
    (RESPONSES, saying(RESPONSES, **tool("code_interpreter", container="cntr_1")), "/v1/containers"),
    (
        RESPONSES,
        saying(RESPONSES, **tool("code_interpreter", container={"type": "auto", "file_ids": ["file-1"]})),
        "POST /v1/files",
    ),
    (
        RESPONSES,
        saying(RESPONSES, **tool("shell", environment={"type": "container_reference", "container_id": "cntr_1"})),
        "/v1/containers/*",
    ),
    (
        RESPONSES,
        saying(RESPONSES, **tool("shell", environment={"type": "container_auto", "skills": [{"skill_id": "skill_1"}]})),
        "/v1/skills",
    ),
    (RESPONSES, saying(RESPONSES, **tool("image_generation", input_image_mask={"file_id": "file-1"})), "/v1/*"),
    (RESPONSES, saying(RESPONSES, prompt={"id": "pmpt_1", "version": "2"}), "/v1/prompts"),
    (
        RESPONSES,
        ("/v1/responses", referring({"type": "computer_call_output", "call_id": "c", "output": {"file_id": "file-1"}})),
        "/v1/files",
    ),
    (
        RESPONSES,
        (
            "/v1/responses",
            referring({"type": "function_call_output", "output": [{"type": "input_file", "file_id": "f"}]}),
        ),
        "/v1/files",
    ),
    (CHAT, saying(CHAT, {"type": "file", "file": {"file_id": "file-1"}}), "/v1/files"),
    (ANTHROPIC, saying(ANTHROPIC, {"type": "document", "source": {"type": "file", "file_id": "file_1"}}), "/v1/files"),
    (ANTHROPIC, saying(ANTHROPIC, {"type": "container_upload", "file_id": "file_1"}), "GET /v1/files/*"),
    (
        ANTHROPIC,
        saying(ANTHROPIC, {"type": "tool_result", "content": [{"type": "image", "source": {"file_id": "file_1"}}]}),
        "/v1/files",
    ),
    (ANTHROPIC, saying(ANTHROPIC, container={"skills": [{"type": "custom", "skill_id": "skill_1"}]}), "/v1/skills"),
    (GEMINI, saying(GEMINI, {"fileData": {"fileUri": FILE_AT_GOOGLE}}), "/v1beta/files/*"),
    (GEMINI, saying(GEMINI, {"file_data": {"file_uri": "files/abc"}}), "/v1beta/files"),
    (GEMINI, saying(GEMINI, {"text": "hi"}, cachedContent="cachedContents/1"), "/v1beta/cachedContents"),
    (GEMINI, saying(GEMINI, {"text": "hi"}, cached_content="cachedContents/1"), "/v1beta/cachedContents/*"),
    (
        GEMINI,
        saying(GEMINI, {"text": "hi"}, tools=[{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/1"]}}]),
        "/v1beta/fileSearchStores",
    ),
]


@pytest.mark.parametrize(("dialect", "call", "listed"), LYING_THERE, ids=lambda value: str(value)[:60])
def test_what_lies_at_the_vendor_is_used_only_where_the_operator_opens_it(
    relay: RunningRelay, key: str, bare: RawUpstream, dialect: str, call: tuple[str, dict[str, Any]], listed: str
) -> None:
    path, body = call
    use_raw_provider(bare, dialect, paths=("/v1/batches", "/v1/filesystem"))
    told = send_request(relay, path, body, x_api_key=key)
    failed = DIALECTS[dialect].decode_error(told.status, told.body)
    assert (told.status, failed.kind in ("not_found", "invalid_request")) == (404, True)
    assert bare.heard == []
    use_raw_provider(bare, dialect, paths=(listed,))
    assert status(relay, body, key, path) == 200


PDF = "data:application/pdf;base64,aGk="
CITED = {"type": "text", "text": "x", "citations": [{"type": "page_location", "file_id": "file_1"}]}
RAN = {"type": "code_execution_tool_result", "content": {"content": [{"file_id": "file_1"}]}}
SCHEMA = {"type": "object", "properties": {"file_id": {"type": "string"}, "container": {"type": "string"}}}
UNTOUCHED: list[tuple[str, tuple[str, dict[str, Any]]]] = [
    (RESPONSES, saying(RESPONSES, {"type": "input_image", "image_url": "https://example.com/v1/files/x.png"})),
    (RESPONSES, saying(RESPONSES, {"type": "input_file", "file_data": PDF, "file_id": None})),
    (RESPONSES, saying(RESPONSES, {"type": "output_text", "text": "x", "annotations": [{"file_id": "file-1"}]})),
    (RESPONSES, saying(RESPONSES, **tool("code_interpreter", container={"type": "auto"}))),
    (RESPONSES, saying(RESPONSES, **tool("shell", environment={"skills": [{"skill_id": "openai-pdf"}]}))),
    (RESPONSES, saying(RESPONSES, **tool("function", name="f", parameters=SCHEMA))),
    (RESPONSES, saying(RESPONSES, **tool("namespace", tools=[{"type": "function", "parameters": SCHEMA}]))),
    (CHAT, saying(CHAT, {"type": "file", "file": {"file_data": PDF, "filename": "x"}})),
    (CHAT, saying(CHAT, **tool("function", function={"name": "f", "parameters": SCHEMA}))),
    (ANTHROPIC, saying(ANTHROPIC, {"type": "image", "source": {"type": "url", "url": "https://example.com/files/1"}})),
    (ANTHROPIC, saying(ANTHROPIC, {"type": "search_result", "source": "https://example.com"}, CITED, RAN)),
    (ANTHROPIC, saying(ANTHROPIC, tools=[{"name": "f", "input_schema": SCHEMA}])),
    (ANTHROPIC, saying(ANTHROPIC, container={"skills": [{"type": "anthropic", "skill_id": "pptx"}]})),
    (ANTHROPIC, saying(ANTHROPIC, {"type": "tool_use", "id": "t", "name": "f", "input": {"file_id": "file_1"}})),
    (GEMINI, saying(GEMINI, {"fileData": {"fileUri": "https://www.youtube.com/watch?v=1"}})),
    (GEMINI, saying(GEMINI, {"functionResponse": {"name": "f", "response": {"fileUri": FILE_AT_GOOGLE}}})),
    (GEMINI, (SMALLEST_CALLS[GEMINI][0], {"contents": {"parts": {"text": "hi"}}, "systemInstruction": {"parts": []}})),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "call"), UNTOUCHED, ids=lambda value: str(value)[:60])
def test_plain_content_and_what_only_looks_like_a_reference_pass(
    relay: RunningRelay, key: str, bare: RawUpstream, dialect: str, call: tuple[str, dict[str, Any]]
) -> None:
    use_raw_provider(bare, dialect)
    path, body = call
    assert status(relay, body, key, path) == 200
    assert bare.heard[0].body == json.dumps(body).encode()


# Containers and sounds, which replies give.

RUN = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_mine"}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}
HELD = {"id": "container_mine", "expires_at": "2027-01-01T00:00:00Z"}
HEARD: dict[str, Any] = {"audio": {"id": "audio_mine", "data": "aGk=", "transcript": "hi"}}


def sse(*told: dict[str, Any]) -> RawReply:
    return streamed_reply(*(f"data: {json.dumps(one)}\n\n".encode() for one in told))


GIVEN: list[tuple[str, dict[str, Any], RawReply, str, str]] = [
    (RESPONSES, {}, complete_reply(reply([RUN])), "cntr_mine", "cntr_theirs"),
    (RESPONSES, {}, streamed_reply(events([RUN])), "cntr_mine", "cntr_theirs"),
    (
        ANTHROPIC,
        tool("code_execution_20260120", name="code_execution"),
        complete_reply(json.dumps({**MESSAGE, "container": HELD}).encode()),
        "container_mine",
        "container_theirs",
    ),
    (
        ANTHROPIC,
        tool("code_execution_20260120", name="code_execution"),
        sse(
            {"type": "message_start", "message": {**MESSAGE, "container": None}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": HELD}},
        ),
        "container_mine",
        "container_theirs",
    ),
    (
        CHAT,
        {"audio": {"voice": "alloy", "format": "wav"}},
        complete_reply(json.dumps({"id": "c", "choices": [{"index": 0, "message": HEARD}]}).encode()),
        "audio_mine",
        "audio_theirs",
    ),
    (
        CHAT,
        {"audio": {"voice": "alloy", "format": "wav"}},
        sse({"id": "c", "choices": [{"index": 0, "delta": HEARD}]}),
        "audio_mine",
        "audio_theirs",
    ),
]


def using(dialect: str, name: str) -> dict[str, Any]:
    _, body = saying(dialect)
    if dialect == RESPONSES:
        return {**body, **tool("code_interpreter", container=name)}
    if dialect == ANTHROPIC:
        return {**body, "container": name}
    return {**body, "messages": [{"role": "assistant", "audio": {"id": name}}, *body["messages"]]}


@pytest.mark.parametrize(("dialect", "more", "raw_reply", "mine", "other"), GIVEN)
def test_what_a_reply_gives_a_name_to_is_used_by_its_key_alone(
    relay: RunningRelay,
    key: str,
    theirs: str,
    bare: RawUpstream,
    dialect: str,
    more: Any,
    raw_reply: RawReply,
    mine: str,
    other: str,
) -> None:
    use_raw_provider(bare, dialect)
    path, body = saying(dialect, **more)
    bare.says.append(raw_reply)
    assert status(relay, body, key, path) == 200
    assert status(relay, using(dialect, mine), key, path) == 200
    assert status(relay, using(dialect, other), key, path) == 404
    assert status(relay, using(dialect, mine), theirs, path) == 404


# Several upstreams.


def test_upstream_that_lists_the_path_is_called(
    relay: RunningRelay, key: str, bare: RawUpstream, settings: Any
) -> None:
    closed = HttpProvider(raw_endpoint(bare, dialect=RESPONSES, name="closed"))
    opened = HttpProvider(raw_endpoint(bare, dialect=RESPONSES, name="opened", paths=("/v1/files",)))
    process_state.set(registry.Router([closed, opened]))
    targets = (Target(provider="closed", model="model", weight=9), Target(provider="opened", model="model", weight=0))
    settings.PARLEY_ROUTES = (Rule(model="model", targets=targets),)
    path, body = saying(RESPONSES, {"type": "input_file", "file_id": "file-1"})
    assert status(relay, body, key, path) == 200
    assert relay.ended()[0].metadata["provider"] == "opened"


def test_what_is_translated_anyway_is_told_nothing_of_it(relay: RunningRelay, key: str, bare: RawUpstream) -> None:
    use_raw_provider(bare, ANTHROPIC)
    raw_reply = json.dumps({**MESSAGE, "model": "m", "content": [{"type": "text", "text": "hi"}]}).encode()
    bare.says.append(complete_reply(raw_reply))
    path, body = saying(RESPONSES, {"type": "input_text", "text": "hi"}, {"type": "input_file", "file_id": "file-1"})
    told = send_request(relay, path, body, x_api_key=key)
    assert (told.status, b"file-1" in bare.heard[0].body) == (200, False)
    assert "part_not_carried" in told.headers["x-parley-not-carried"]


@pytest.mark.parametrize("is_compressed", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "model", "input": "hi", "previous_response_id": "resp_1", "previous_response_id": null}',
        b'{"model": "model", "input": [{"type": "item_reference", "id": "msg_1", "type": "message"}]}',
        b'{"model": "model", "input": [{"content": [{"type": "input_file", "file_id": "f"}], "content": "x"}]}',
    ],
)
def test_a_reference_is_not_hidden_behind_a_second_value_of_its_key(
    relay: RunningRelay, bare: RawUpstream, key: str, theirs: str, body: bytes, is_compressed: bool
) -> None:
    """The vendor may take the first of two values where we would look at the last."""
    bare.says.append(complete_reply(reply()))
    assert send_request(relay, "/v1/responses", HI, x_api_key=theirs).status == 200
    content, packed = (gzip.compress(body), {"content-encoding": "gzip"}) if is_compressed else (body, {})
    with open_reply(relay, "/v1/responses", content, headers={"x-api-key": key, **packed}) as answered:
        assert answered.status == 400
        assert b"twice" in answered.read()
    assert len(bare.heard) == 1
