"""Different languages: what cannot be carried is named, counts are estimated, Gemini's other stream is spoken too."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live_settings
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from history.db.process_state import process_state
from history.dialects import DIALECTS, Switches
from history.models import Session
from relay.digest.digester import Digester
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from relay.providers.local import LocalProvider, missing_packages
from tests.clients import GEMINI_BODY, HI_BODY, SMALLEST_CALLS, RunningRelay, send_request
from tests.relay.digest.programs import captured
from tests.vendors import KEYS, Vendors, asks, raw, refuses, says
from tests.vendors.setup import endpoint_at

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = pytest.mark.any_database

NOT_CARRIED = "x-parley-not-carried"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def only(vendors: Vendors, dialect: str) -> None:
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, dialect))]))


def test_what_cannot_be_carried_is_named_in_a_header_and_in_the_record(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    only(vendors, "openai-chat")
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    said = [*HI_BODY["messages"], {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}]}]
    body = {
        **HI_BODY,
        "messages": [*said, {"role": "user", "content": "And?"}],
        "top_k": 3,
        "metadata": {"user_id": "u"},
    }
    answered = send_request(relay, "/v1/messages", body, x_api_key=key)
    named = answered.headers[NOT_CARRIED].split(", ")
    assert "option_not_carried:top_k" in named
    assert any(name.startswith("reasoning_") for name in named)
    assert not any("metadata" in name for name in named)
    assert relay.ended()[0].metadata["not_carried"] == answered.headers[NOT_CARRIED]


@pytest.mark.parametrize(
    ("dialect", "usual"),
    [
        ("openai-chat", {}),
        ("openai-chat", {"n": 1, "logprobs": False, "presence_penalty": 0.0, "logit_bias": {}, "modalities": ["text"]}),
        ("openai-responses", {"truncation": "disabled", "background": False, "top_logprobs": 0}),
        (
            "gemini-generate",
            {
                "generationConfig": {
                    **{"candidateCount": 1, "responseMimeType": "text/plain", "responseModalities": ["TEXT"]},
                    "maxOutputTokens": 9,
                }
            },
        ),
    ],
)
def test_a_request_of_which_all_is_carried_names_nothing(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str, usual: dict[str, Any]
) -> None:
    """Nor does one that says what holds anyway."""
    only(vendors, "anthropic-messages")
    path, body = SMALLEST_CALLS[dialect]
    assert NOT_CARRIED not in send_request(relay, path, {**body, **usual}, x_api_key=key).headers


FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": FUNCTION}]
STRICT = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}
ALLOWED_ALIKE = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
DECLARED = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}, {"name": "h"}]}]
SEVERAL = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}}
CLAUDES = [{"name": "f", "input_schema": {"type": "object"}}]
ONE_CALL = {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("dialect", "said", "upstream", "name"),
    [
        ("openai-chat", {"n": 3}, "anthropic-messages", "option_not_carried:n"),
        ("openai-chat", {"tools": STRICT}, "anthropic-messages", "option_not_carried:strict"),
        ("openai-chat", {"stop": "x"}, "openai-responses", "option_not_carried:stop"),
        (
            *("openai-chat", {"reasoning_effort": "high", "temperature": 0.5}, "anthropic-messages"),
            "option_not_carried:temperature",
        ),
        (
            *("openai-chat", {"tools": TOOLS, "tool_choice": ALLOWED}, "anthropic-messages"),
            "option_not_carried:tool_choice",
        ),
        (
            *("openai-responses", {"tools": [{"type": "function", **FUNCTION}], "tool_choice": ALLOWED_ALIKE}),
            *("anthropic-messages", "option_not_carried:tool_choice"),
        ),
        (
            *("openai-chat", {"tools": TOOLS, "parallel_tool_calls": False}, "gemini-generate"),
            "option_not_carried:parallel_tool_calls",
        ),
        (
            *("anthropic-messages", {"tools": CLAUDES, "tool_choice": ONE_CALL}, "gemini-generate"),
            "option_not_carried:parallel_tool_calls",
        ),
        (
            *("gemini-generate", {"cachedContent": "cachedContents/a"}, "openai-chat"),
            "option_not_carried:cachedContent",
        ),
        (
            *("gemini-generate", {"generationConfig": {"topK": 3}}, "openai-chat"),
            "option_not_carried:generationConfig.topK",
        ),
        (
            *("gemini-generate", {"tools": [{**DECLARED[0], "googleSearch": {}}]}, "openai-chat"),
            "tool_not_carried:googleSearch",
        ),
        (
            *("gemini-generate", {"tools": DECLARED, "toolConfig": SEVERAL}, "openai-chat"),
            "option_not_carried:toolConfig.functionCallingConfig",
        ),
    ],
)
def test_each_option_that_an_upstream_is_not_told_is_named(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str, said: dict[str, Any], upstream: str, name: str
) -> None:
    only(vendors, upstream)
    path, body = SMALLEST_CALLS[dialect]
    answered = send_request(relay, path, {**body, **said}, x_api_key=key)
    assert answered.headers[NOT_CARRIED].split(", ") == [name]
    assert relay.ended()[0].metadata["not_carried"] == name


@pytest.mark.parametrize(
    ("dialect", "said", "upstream", "told"),
    [
        ("openai-chat", {"n": 1, "parallel_tool_calls": False}, "anthropic-messages", {}),
        ("openai-chat", {"parallel_tool_calls": False}, "gemini-generate", {}),
        (
            *("openai-chat", {"tools": TOOLS, "parallel_tool_calls": False}, "anthropic-messages"),
            {"tool_choice": ONE_CALL},
        ),
        (
            *("openai-chat", {"tools": TOOLS, "parallel_tool_calls": False, "tool_choice": "none"}),
            *("anthropic-messages", {"tool_choice": {"type": "none"}}),
        ),
        (
            *("openai-chat", {"tools": TOOLS, "parallel_tool_calls": False}, "openai-responses"),
            {"parallel_tool_calls": False},
        ),
        (
            *("anthropic-messages", {"tools": CLAUDES, "tool_choice": ONE_CALL}, "openai-chat"),
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
    ],
)
def test_single_tool_calls_are_requested_in_dialects_that_can(
    relay: RunningRelay,
    key: str,
    vendors: Vendors,
    dialect: str,
    said: dict[str, Any],
    upstream: str,
    told: dict[str, Any],
) -> None:
    only(vendors, upstream)
    path, body = SMALLEST_CALLS[dialect]
    assert NOT_CARRIED not in send_request(relay, path, {**body, **said}, x_api_key=key).headers
    sent = vendors.requests[0].body
    assert {name: sent[name] for name in ("tool_choice", "parallel_tool_calls") if name in sent} == told


@pytest.mark.parametrize(
    ("path", "asked", "switches", "named"),
    [
        ("/v1/responses", {"model": "model", "input": "hi"}, Switches(), "option_supplied:max_tokens=4096"),
        (
            "/v1/chat/completions",
            {**HI_BODY, "reasoning_effort": "high"},
            Switches(thinking_budget=True),
            "option_supplied:max_tokens=20480",
        ),
    ],
)
def test_supplied_limit_for_anthropic_is_named(
    relay: RunningRelay, key: str, vendors: Vendors, path: str, asked: dict[str, Any], switches: Switches, named: str
) -> None:
    """For want of one, or because a model that thinks with a budget needs more than the caller allows."""
    endpoint = endpoint_at(vendors, "anthropic-messages", switches=switches)
    process_state.set(registry.Router([HttpProvider(endpoint)]))
    assert send_request(relay, path, asked, x_api_key=key).headers[NOT_CARRIED] == named
    assert relay.ended()[0].metadata["not_carried"] == named
    assert f"option_supplied:max_tokens={vendors.requests[0].body['max_tokens']}" == named


@pytest.mark.parametrize("upstream", ["openai-chat", "openai-responses"])
def test_a_tool_without_arguments_is_taken_by_openai_too(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    """As servers of MCP describe it and Claude Code passes it on."""
    only(vendors, upstream)
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "tools": CLAUDES}, x_api_key=key)
    assert (answered.status, answered.headers.get(NOT_CARRIED)) == (200, None)
    (tool,) = vendors.requests[0].body["tools"]
    assert tool.get("function", tool)["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("upstream", ["openai-chat", "openai-responses", "gemini-generate"])
def test_a_tool_that_must_be_called_and_cannot_be_offered_is_not_asked_for(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    only(vendors, upstream)
    tools = [{"type": "web_search_20250305", "name": "web_search"}, *CLAUDES]
    asked = {**HI_BODY, "tools": tools, "tool_choice": {"type": "tool", "name": "web_search"}}
    answered = send_request(relay, "/v1/messages", asked, x_api_key=key)
    named = "tool_not_carried:web_search, option_not_carried:tool_choice"
    assert (answered.status, answered.headers[NOT_CARRIED]) == (200, named)


@pytest.mark.parametrize(
    ("upstream", "told"),
    [
        ("anthropic-messages", {"tool_choice": {"type": "tool", "name": "patch"}}),
        ("openai-responses", {"tool_choice": {"type": "function", "name": "patch"}}),
        (
            "gemini-generate",
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["patch"]}}},
        ),
    ],
)
def test_a_tool_that_takes_plain_text_and_must_be_called_is_asked_for(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str, told: dict[str, Any]
) -> None:
    only(vendors, upstream)
    custom = {"type": "custom", "custom": {"name": "patch"}}
    asked = {**HI_BODY, "tools": [custom], "tool_choice": custom}
    answered = send_request(relay, "/v1/chat/completions", asked, x_api_key=key)
    assert (answered.status, answered.headers.get(NOT_CARRIED)) == (200, None)
    assert {name: vendors.requests[0].body[name] for name in told} == told


@pytest.mark.parametrize(
    ("dialect", "tool"),
    [
        ("openai-chat", {"type": "custom", "custom": {"name": "patch"}}),
        ("openai-responses", {"type": "custom", "name": "patch"}),
    ],
)
def test_a_tool_that_takes_plain_text_is_offered_once_though_it_is_listed_twice(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str, tool: dict[str, Any]
) -> None:
    """Vendors refuse a name that comes twice."""
    only(vendors, "anthropic-messages")
    path, body = SMALLEST_CALLS[dialect]
    answered = send_request(relay, path, {**body, "tools": [tool, tool]}, x_api_key=key)
    assert (answered.status, answered.headers.get(NOT_CARRIED)) == (200, None)
    assert [tool["name"] for tool in vendors.requests[0].body["tools"]] == ["patch"]


def test_a_name_in_the_header_ends_no_line_and_is_one_name(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    only(vendors, "openai-chat")
    answered = send_request(relay, "/v1/messages", {**HI_BODY, "a\r\nset-cookie: b, ç 好": 1}, x_api_key=key)
    assert answered.headers[NOT_CARRIED] == "option_not_carried:a__set-cookie:_b_____"
    assert "set-cookie" not in answered.headers


def test_when_google_wants_to_be_asked_again_is_told_where_others_look_for_it(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    """Google says it in the body."""
    only(vendors, "gemini-generate")
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]
    error = {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": details}
    vendors.plays("gemini-generate", raw(json.dumps({"error": error}).encode(), status=429))
    answered = send_request(relay, "/v1/messages", HI_BODY, x_api_key=key)
    assert (answered.status, answered.headers["retry-after"]) == (429, "35")


def test_an_error_names_what_could_not_be_carried_too(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    only(vendors, "openai-chat")
    broken = raw(b'data: {"error":{"message":"no","type":"server_error"}}\n\n')
    vendors.plays("openai-chat", refuses("invalid_request"), broken)
    for status in (400, 500):
        answered = send_request(relay, "/v1/messages", {**HI_BODY, "top_k": 3}, x_api_key=key)
        assert (answered.status, answered.headers[NOT_CARRIED]) == (status, "option_not_carried:top_k")


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_picture_in_a_reply_that_its_caller_cannot_get_is_named(
    relay: RunningRelay, key: str, vendors: Vendors, is_streamed: bool
) -> None:
    """Always in the record; of a stream, the headers may be gone by then."""
    only(vendors, "gemini-generate")
    parts = [{"text": "Here:"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}, {"executableCode": {}}]
    reply = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    vendors.plays("gemini-generate", raw(json.dumps(reply).encode()))
    answered = send_request(relay, "/v1/chat/completions", {**HI_BODY, "stream": is_streamed}, x_api_key=key)
    assert b"Here:" in answered.body
    named = "part_not_carried:image/png, part_not_carried:executableCode"
    assert relay.ended()[0].metadata["not_carried"] == named
    assert is_streamed or answered.headers[NOT_CARRIED] == named


def test_a_picture_reaches_another_vendor(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    only(vendors, "gemini-generate")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    assert send_request(relay, "/v1/chat/completions", {**HI_BODY, "messages": [message]}, x_api_key=key).status == 200
    parts = vendors.requests[0].body["contents"][0]["parts"]
    assert parts[1]["inlineData"] == {"mimeType": "image/png", "data": PIXEL}


CLOSELY = {
    "/v1/chat/completions": {"type": "image_url", "image_url": {"url": "https://a.org/b.png", "detail": "low"}},
    "/v1/responses": {"type": "input_image", "image_url": "https://a.org/b.png", "detail": "low"},
}


@pytest.mark.parametrize(
    ("path", "upstream"),
    [
        ("/v1/chat/completions", "openai-responses"),
        ("/v1/responses", "openai-chat"),
        ("/v1/chat/completions", "anthropic-messages"),
        ("/v1/responses", "gemini-generate"),
    ],
)
def test_how_closely_to_look_at_a_picture_is_told_or_named(
    relay: RunningRelay, key: str, vendors: Vendors, path: str, upstream: str
) -> None:
    only(vendors, upstream)
    said = [{"role": "user", "content": [CLOSELY[path]]}]
    body = (
        {"model": "model", "max_tokens": 9, "messages": said} if "chat" in path else {"model": "model", "input": said}
    )
    answered = send_request(
        relay, path, {**body, **({} if "chat" in path else {"max_output_tokens": 9})}, x_api_key=key
    )
    is_told = '"detail": "low"' in json.dumps(vendors.requests[0].body)
    assert is_told == upstream.startswith("openai")
    assert answered.headers.get(NOT_CARRIED) == (None if is_told else "option_not_carried:detail")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_file_reaches_another_vendor_also_as_its_bytes_alone(
    relay: RunningRelay, key: str, vendors: Vendors, path: str
) -> None:
    only(vendors, "anthropic-messages")
    file = {"filename": "a.pdf", "file_data": PIXEL}
    part = {"type": "file", "file": file} if "chat" in path else {"type": "input_file", **file}
    said = [{"role": "user", "content": [part]}]
    body = {"model": "model", "messages": said} if "chat" in path else {"model": "model", "input": said}
    assert send_request(relay, path, body, x_api_key=key).status == 200
    source = vendors.requests[0].body["messages"][0]["content"][0]["source"]
    assert source == {"type": "base64", "media_type": "application/pdf", "data": PIXEL}


@pytest.mark.parametrize("upstream", ["anthropic-messages", "openai-responses", "gemini-generate"])
def test_a_jpeg_reaches_every_vendor_under_the_type_that_it_should_have(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    """Many write image/jpg, and OpenAI takes that."""
    only(vendors, upstream)
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpg;base64,{PIXEL}"}}
    answered = send_request(
        relay, "/v1/chat/completions", {**HI_BODY, "messages": [{"role": "user", "content": [image]}]}, x_api_key=key
    )
    assert (answered.status, answered.headers.get(NOT_CARRIED)) == (200, None)
    sent = json.dumps(vendors.requests[0].body)
    assert PIXEL in sent
    assert "image/jpeg" in sent


@pytest.mark.parametrize(
    ("address", "told"), [("https://a.org/b.png?c", {"mimeType": "image/png"}), ("https://a.org/b", {})]
)
def test_gemini_is_told_no_type_of_a_picture_that_is_none(
    relay: RunningRelay, key: str, vendors: Vendors, address: str, told: dict[str, str]
) -> None:
    only(vendors, "gemini-generate")
    image = {"type": "image_url", "image_url": {"url": address}}
    send_request(
        relay, "/v1/chat/completions", {**HI_BODY, "messages": [{"role": "user", "content": [image]}]}, x_api_key=key
    )
    assert vendors.requests[0].body["contents"][0]["parts"] == [{"fileData": {**told, "fileUri": address}}]


INSTRUCTED = {"role": "system", "content": "Greet all users."}


@pytest.mark.parametrize(
    ("path", "asked", "upstream"),
    [
        *(
            ("/v1/chat/completions", {**HI_BODY, "messages": [INSTRUCTED]}, upstream)
            for upstream in ("anthropic-messages", "openai-responses", "gemini-generate")
        ),
        *(
            ("/v1/responses", {"model": "model", "max_output_tokens": 9, "input": [INSTRUCTED]}, upstream)
            for upstream in ("anthropic-messages", "gemini-generate")
        ),
    ],
)
def test_an_instruction_alone_is_answered_by_every_vendor(
    relay: RunningRelay, key: str, vendors: Vendors, path: str, asked: dict[str, Any], upstream: str
) -> None:
    """OpenAI answers it, and so scripts have no other message."""
    only(vendors, upstream)
    answered = send_request(relay, path, asked, x_api_key=key)
    assert (answered.status, answered.headers.get(NOT_CARRIED)) == (200, "system_as_text")
    assert json.dumps(vendors.requests[0].body).count("Greet all users.") == 1


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (
            "/v1beta/models/model:generateContent",
            {
                "contents": [{"parts": [{"file_data": {"file_uri": "gs://b/a.png", "mime_type": "image/png"}}]}],
                "generationConfig": {"maxOutputTokens": 9},
            },
            "media_not_carried",
        ),
        (
            "/v1/chat/completions",
            {
                **HI_BODY,
                "messages": [{"role": "user", "content": ["Read:", {"type": "file", "file": {"file_id": "f"}}]}],
            },
            "part_not_carried:file",
        ),
    ],
)
def test_a_file_that_lies_at_another_vendor_is_named_as_not_carried(
    relay: RunningRelay, key: str, vendors: Vendors, path: str, body: dict[str, Any], named: str
) -> None:
    only(vendors, "anthropic-messages")
    assert send_request(relay, path, body, x_api_key=key).headers[NOT_CARRIED] == named


def test_geminis_stream_without_events_is_one_array_in_pieces(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    only(vendors, "anthropic-messages")
    vendors.plays("anthropic-messages", asks(("call_1", "look", "{}"), text="One moment."))
    answered = send_request(relay, "/v1beta/models/model:streamGenerateContent", GEMINI_BODY, x_goog_api_key=key)
    chunks = json.loads(answered.body)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert parts[0]["text"] == "One moment."
    assert any("functionCall" in part for part in parts)
    assert answered.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/messages/count_tokens", HI_BODY, "input_tokens"),
        ("/v1/responses/input_tokens", {"model": "model", "input": "hi"}, "input_tokens"),
        ("/v1beta/models/model:countTokens", GEMINI_BODY, "totalTokens"),
        ("/v1beta/models/model:countTokens", {"generateContentRequest": GEMINI_BODY}, "totalTokens"),
        ("/v1beta/models/model:countTokens", {"generate_content_request": GEMINI_BODY}, "totalTokens"),
    ],
)
def test_tokens_are_estimated_for_an_upstream_that_cannot_count_them_in_this_language(
    relay: RunningRelay, key: str, vendors: Vendors, path: str, body: dict[str, Any], field: str
) -> None:
    only(vendors, "openai-chat")
    answered = send_request(relay, path, body, x_api_key=key)
    assert 0 < answered.json[field] < 50
    assert vendors.requests == []
    assert relay.accepted()[0].kind == "count"


def test_a_count_for_a_client_of_responses_says_what_it_is(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    only(vendors, "anthropic-messages")
    answered = send_request(relay, "/v1/responses/input_tokens", {"model": "model", "input": "hi"}, x_api_key=key)
    assert InputTokenCountResponse.model_validate(answered.json, strict=True).object == "response.input_tokens"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_that_is_no_request_is_refused_in_the_callers_envelope(
    relay: RunningRelay, key: str, vendors: Vendors, dialect: str
) -> None:
    only(vendors, next(name for name in DIALECTS if name != dialect))
    path, _ = SMALLEST_CALLS[dialect]
    for body in (b'{"model":"model"}', b"[]", b'{"model":', b'{"model":"model","messages":"' + b"[" * 5_000):
        answered = send_request(relay, path, body, x_api_key=key)
        assert answered.status == 400
        assert DIALECTS[dialect].decode_error(400, answered.body).kind == "invalid_request"
    assert vendors.requests == []


def test_a_reply_that_is_cut_is_an_error_for_a_caller_who_wants_it_whole(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    only(vendors, "anthropic-messages")
    vendors.plays("anthropic-messages", replace(says("Hel", "lo."), cut_at=500))
    answered = send_request(relay, "/v1/chat/completions", HI_BODY, x_api_key=key)
    assert answered.status == 500
    ended = relay.ended()[0]
    assert (ended.reason, len(relay.replied())) == ("upstream_cut", 500)


# What the demo model does not take.
SHOWN = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
NOT_FOR_IT = {
    "tools": CLAUDES,
    "output_config": {"effort": "low"},
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, SHOWN]}],
}


# As Codex and Gemini CLI begin: with instructions of several thousand tokens.
INSTRUCTIONS = "Never run a command that deletes files. " * 800
SAID = [{"role": "user", "parts": [{"text": "hi"}]}]
TOO_LONG_FOR_IT: dict[str, dict[str, Any]] = {
    "/v1/responses": {
        "model": "local/smollm2-135m-instruct",
        "instructions": INSTRUCTIONS,
        "input": "hi",
        "stream": True,
    },
    "/v1beta/models/local/smollm2-135m-instruct:streamGenerateContent?alt=sse": {
        "systemInstruction": {"parts": [{"text": INSTRUCTIONS}]},
        "contents": SAID,
    },
}


@pytest.mark.skipif(bool(missing_packages()), reason="the demo model is not installed")
def test_a_newcomers_sdk_works_on_the_demo_model(
    relay: RunningRelay, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's own lines, too, and what they said is in the history."""
    local = LocalProvider()
    process_state.set(registry.Router([local]))
    asked = {"model": "local/smollm2-135m-instruct", "max_tokens": 8, "messages": HI_BODY["messages"]}
    try:
        answered = send_request(relay, "/v1/messages", {**asked, **NOT_FOR_IT}, x_api_key=key)
        assert answered.json["content"][0]["text"]
        assert (
            answered.headers[NOT_CARRIED]
            == "tool_not_carried:f, media_not_carried, option_not_carried:reasoning_effort"
        )
        streamed = send_request(relay, "/v1/chat/completions", {**asked, "stream": True}, x_api_key=key)
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        exec(newcomers_lines(relay, key), {})
        for path, body in TOO_LONG_FOR_IT.items():
            refused = send_request(relay, path, body, authorization=f"Bearer {key}")
            assert refused.status == 400
            message = refused.json["error"]["message"]
            assert re.match(
                r"This request has \d,\d{3} tokens, but the demo model reads at most 4,096\. Use a ", message
            )
            assert "127.0.0.1" not in message
            # Codex shows words of its own for this code.
            assert refused.json["error"].get("code") != "context_length_exceeded"
    finally:
        local.server.end()
    assert capsys.readouterr().out.strip()
    assert {accepted.provider for accepted in relay.accepted()} == {"local"}
    relay.ended(3)
    digester = Digester(relay.journal.folder, name="test", end_wait=0)
    for _ in range(4):
        digester.step()
    session = Session.objects.get(title="Say hello.")
    assert (session.client, session.message_count) == ("OpenAI SDK", 2)


def newcomers_lines(relay: RunningRelay, key: str) -> str:
    readme = (Path(live_settings.BASE_DIR) / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from openai.*?)```", readme, re.DOTALL)
    # A small model may go on for long.
    said = {"http://127.0.0.1:8000": relay.url, "parley_…": key, "messages=messages": "messages=messages, max_tokens=8"}
    for before, after in said.items():
        assert before in code
        code = code.replace(before, after)
    return str(code)


def test_how_much_claude_code_wants_to_be_thought_is_carried_and_not_named_as_lost(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    request = captured("claude-code-latest-1")
    model = request["body"]["model"]
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, "openai-chat", models=(Model(name=model),)))]))
    answered = send_request(relay, request["path"], request["body"], x_api_key=key)
    assert vendors.requests[0].body["reasoning_effort"] == request["body"]["output_config"]["effort"]
    assert answered.headers[NOT_CARRIED] == "attribution_left_out, option_not_carried:context_management"


@pytest.mark.parametrize("trouble", ["refused", "unreachable", "unreadable"])
def test_refusal_has_the_headers_of_its_record(relay: RunningRelay, key: str, vendors: Vendors, trouble: str) -> None:
    """The call is in the record, so the consent that it was recorded under is told."""
    elsewhere = {"base_url": "http://127.0.0.1:1/v1"} if trouble == "unreachable" else {}
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, "openai-chat", **elsewhere))]))
    vendors.plays("openai-chat", refuses("invalid_request"))
    body = {"model": "model"} if trouble == "unreadable" else HI_BODY
    answered = send_request(relay, "/v1/messages", body, x_api_key=key, x_parley_session_id="mine")
    assert answered.status >= 400
    assert answered.headers["x-parley-recording"] == "full"
    assert answered.headers["x-parley-session-id"] == str(relay.accepted()[0].session)
    assert answered.headers["x-parley-exchange-id"] == str(relay.ended()[0].exchange)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_translated_reply_says_which_dialect_it_was_translated_to(
    relay: RunningRelay, key: str, vendors: Vendors, is_streamed: bool
) -> None:
    only(vendors, "openai-chat")
    body = {"model": "model", "input": "hi", "stream": is_streamed}
    translated = send_request(relay, "/v1/responses", body, x_api_key=key)
    assert translated.headers["x-parley-translated-to"] == "openai-chat"
    only(vendors, "openai-responses")
    assert "x-parley-translated-to" not in send_request(relay, "/v1/responses", body, x_api_key=key).headers


def test_a_base_url_alone_does_not_translate_clients_of_responses(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    """Codex speaks Responses alone: an address that takes them gets them as they came."""
    settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = KEYS["openai"], f"{vendors.url}/v1"
    process_state.reset(registry.Router)
    registry.router().catalogue.refresh()
    body = {"model": "openai/gpt-x", "input": "hi", "stream": True}
    assert send_request(relay, "/v1/responses", body, x_api_key=key).status == 200
    assert [request.path for request in vendors.requests] == ["/v1/responses"]
