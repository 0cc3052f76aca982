"""Different languages: what cannot be carried is named, counts are estimated, Gemini's other stream is spoken too."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live_settings
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from history.dialects import DIALECTS
from history.models import Session
from relay.gateway.digest.digester import Digester
from relay.providers import registry
from relay.providers.http import HttpProvider
from relay.providers.local import LocalProvider, missing_packages
from tests.gateway.asking import CALLS, CONTENTS, HI, ask
from tests.gateway.relayed import Relay
from tests.vendors import Vendors, asks, says
from tests.vendors.setup import endpoint_at

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = pytest.mark.any_database

NOT_CARRIED = "x-parley-not-carried"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def only(vendors: Vendors, dialect: str) -> None:
    registry.use(registry.Router([HttpProvider(endpoint_at(vendors, dialect))]))


def test_what_cannot_be_carried_is_named_in_a_header_and_in_the_record(
    relay: Relay, key: str, vendors: Vendors
) -> None:
    only(vendors, "openai-chat")
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    said = [*HI["messages"], {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}]}]
    body = {**HI, "messages": [*said, {"role": "user", "content": "And?"}], "top_k": 3, "metadata": {"user_id": "u"}}
    answered = ask(relay, "/v1/messages", body, x_api_key=key)
    named = answered.headers[NOT_CARRIED].split(", ")
    assert "option_not_carried:top_k" in named
    assert any(name.startswith("reasoning_") for name in named)
    assert not any("metadata" in name for name in named)
    assert relay.ended()[0].metadata["not_carried"] == answered.headers[NOT_CARRIED]


def test_a_request_of_which_all_is_carried_names_nothing(relay: Relay, key: str, vendors: Vendors) -> None:
    only(vendors, "anthropic-messages")
    assert NOT_CARRIED not in ask(relay, "/v1/chat/completions", HI, x_api_key=key).headers


def test_a_picture_reaches_another_vendor(relay: Relay, key: str, vendors: Vendors) -> None:
    only(vendors, "gemini-generate")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}
    assert ask(relay, "/v1/chat/completions", {**HI, "messages": [message]}, x_api_key=key).status == 200
    parts = vendors.requests[0].body["contents"][0]["parts"]
    assert parts[1]["inlineData"] == {"mimeType": "image/png", "data": PIXEL}


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (
            "/v1beta/models/model:generateContent",
            {"contents": [{"parts": [{"file_data": {"file_uri": "gs://b/a.png", "mime_type": "image/png"}}]}]},
            "media_not_carried",
        ),
        (
            "/v1/chat/completions",
            {**HI, "messages": [{"role": "user", "content": ["Read:", {"type": "file", "file": {"file_id": "f"}}]}]},
            "part_not_carried",
        ),
    ],
)
def test_a_file_that_lies_at_another_vendor_is_named_as_not_carried(
    relay: Relay, key: str, vendors: Vendors, path: str, body: dict[str, Any], named: str
) -> None:
    only(vendors, "anthropic-messages")
    assert ask(relay, path, body, x_api_key=key).headers[NOT_CARRIED] == named


def test_geminis_stream_without_events_is_one_array_in_pieces(relay: Relay, key: str, vendors: Vendors) -> None:
    only(vendors, "anthropic-messages")
    vendors.plays("anthropic-messages", asks(("call_1", "look", "{}"), text="One moment."))
    answered = ask(relay, "/v1beta/models/model:streamGenerateContent", CONTENTS, x_goog_api_key=key)
    chunks = json.loads(answered.body)
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert parts[0]["text"] == "One moment."
    assert any("functionCall" in part for part in parts)
    assert answered.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/messages/count_tokens", HI, "input_tokens"),
        ("/v1/responses/input_tokens", {"model": "model", "input": "hi"}, "input_tokens"),
        ("/v1beta/models/model:countTokens", CONTENTS, "totalTokens"),
        ("/v1beta/models/model:countTokens", {"generateContentRequest": CONTENTS}, "totalTokens"),
        ("/v1beta/models/model:countTokens", {"generate_content_request": CONTENTS}, "totalTokens"),
    ],
)
def test_tokens_are_estimated_for_an_upstream_that_cannot_count_them_in_this_language(
    relay: Relay, key: str, vendors: Vendors, path: str, body: dict[str, Any], field: str
) -> None:
    only(vendors, "openai-chat")
    answered = ask(relay, path, body, x_api_key=key)
    assert 0 < answered.json[field] < 50
    assert vendors.requests == []
    assert relay.accepted()[0].kind == "count"


def test_a_count_for_a_client_of_responses_says_what_it_is(relay: Relay, key: str, vendors: Vendors) -> None:
    only(vendors, "anthropic-messages")
    answered = ask(relay, "/v1/responses/input_tokens", {"model": "model", "input": "hi"}, x_api_key=key)
    assert InputTokenCountResponse.model_validate(answered.json, strict=True).object == "response.input_tokens"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_body_that_is_no_request_is_refused_in_the_callers_envelope(
    relay: Relay, key: str, vendors: Vendors, dialect: str
) -> None:
    only(vendors, next(name for name in DIALECTS if name != dialect))
    path, _ = CALLS[dialect]
    for body in (b'{"model":"model"}', b"[]", b'{"model":', b'{"model":"model","messages":"' + b"[" * 5_000):
        answered = ask(relay, path, body, x_api_key=key)
        assert answered.status == 400
        assert DIALECTS[dialect].decode_error(400, answered.body).kind == "invalid_request"
    assert vendors.requests == []


def test_a_reply_that_is_cut_is_an_error_for_a_caller_who_wants_it_whole(
    relay: Relay, key: str, vendors: Vendors
) -> None:
    only(vendors, "anthropic-messages")
    vendors.plays("anthropic-messages", replace(says("Hel", "lo."), cut_at=500))
    answered = ask(relay, "/v1/chat/completions", HI, x_api_key=key)
    assert answered.status == 500
    ended = relay.ended()[0]
    assert (ended.reason, len(relay.replied())) == ("upstream_cut", 500)


@pytest.mark.skipif(bool(missing_packages()), reason="the demo model is not installed")
def test_a_newcomers_sdk_works_on_the_demo_model(relay: Relay, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's own lines, too, and what they said is in the history."""
    local = LocalProvider()
    registry.use(registry.Router([local]))
    asked = {"model": "local/smollm2-135m-instruct", "max_tokens": 8, "messages": HI["messages"]}
    try:
        answered = ask(relay, "/v1/messages", asked, x_api_key=key)
        assert answered.json["content"][0]["text"]
        streamed = ask(relay, "/v1/chat/completions", {**asked, "stream": True}, x_api_key=key)
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        exec(newcomers_lines(relay, key), {})
    finally:
        local.server.end()
    assert capsys.readouterr().out.strip()
    assert {accepted.provider for accepted in relay.accepted()} == {"local"}
    relay.ended(3)
    digester = Digester(relay.journal.folder, name="test", patience=0)
    for _ in range(4):
        digester.step()
    session = Session.objects.get(title="Say hello.")
    assert (session.client, session.message_count) == ("OpenAI SDK", 2)


def newcomers_lines(relay: Relay, key: str) -> str:
    readme = (Path(live_settings.BASE_DIR) / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from openai.*?)```", readme, re.DOTALL)
    # A small model may go on for long.
    said = {"http://127.0.0.1:8000": relay.url, "parley_…": key, "messages=messages": "messages=messages, max_tokens=8"}
    for before, after in said.items():
        assert before in code
        code = code.replace(before, after)
    return str(code)
