"""Every vendor through the real dialer, against servers that keep the vendors' rules: asking, and what comes back."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace

import pytest

from history.answers.events import AnswerEnded, AnswerStarted, TextPiece, ToolCallPiece, UsageReported
from history.dialects import DIALECTS, LossCode, Switches, json_access, reply_decoder
from history.entries import Reasoning, Text, ToolRequest, Usage
from relay.errors import Cut, RequestRefused
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from relay.providers.registry import Router
from relay.runtime.event_loop import LARGE
from tests.relay.providers.provider_calls import CPU, DISK, call_provider, context, model_answer, results, user_message
from tests.vendors import KEYS, Play, Vendors, asks, raw, says, thinks
from tests.vendors.setup import NAMES, endpoint_at

SIGNATURE = base64.b64encode(b"signed by the vendor").decode()
LONG = Usage(input_tokens=900, output_tokens=40, cache_read_tokens=600, reasoning_tokens=7)
each_dialect = pytest.mark.parametrize("dialect", list(DIALECTS))


def provider_at(vendors: Vendors, dialect: str, **changes: object) -> HttpProvider:
    return HttpProvider(endpoint_at(vendors, dialect, **changes))


@each_dialect
async def test_a_question_is_answered_piece_by_piece(vendors: Vendors, dialect: str) -> None:
    vendors.plays(dialect, replace(says("Good ", "morning", ". 你好"), noise=True))
    result = await call_provider(provider_at(vendors, dialect))
    assert result.error is None
    pieces = [event.text for event in result.events if isinstance(event, TextPiece) and event.text]
    assert pieces == ["Good ", "morning", ". 你好"]
    assert result.output.status == "complete"
    assert result.output.usage is not None
    assert (result.output.usage.input_tokens, result.output.usage.output_tokens) == (12, 5)
    assert result.notes.attempts == 1


@each_dialect
async def test_a_request_names_the_model_asks_for_a_stream_and_has_the_instruction(
    vendors: Vendors, dialect: str
) -> None:
    result = await call_provider(provider_at(vendors, dialect))
    [seen] = vendors.requests
    assert "Be brief." in str(seen.body)
    assert "Hello?" in str(seen.body)
    if dialect == "gemini-generate":
        assert seen.path == "/v1beta/models/model:streamGenerateContent"
        assert seen.query == {"alt": "sse"}
    else:
        assert (seen.body["model"], seen.body["stream"]) == ("model", True)
    assert result.notes.request_hash
    assert result.notes.request_id == "req_played"


@each_dialect
async def test_parallel_calls_come_whole_and_their_results_are_taken_back(vendors: Vendors, dialect: str) -> None:
    calls = (("call_a", "cpu", '{"core": 1}'), ("call_b", "disk", "{}"))
    vendors.plays(dialect, asks(*calls, text="Let me look."), says("All is well."))
    provider = provider_at(vendors, dialect)
    first = await call_provider(provider, context(tools=(CPU, DISK)))
    requests = first.output.tool_requests
    assert [(call.name, call.arguments.replace(" ", "")) for call in requests] == [
        ("cpu", '{"core":1}'),
        ("disk", "{}"),
    ]
    assert first.output.end_reason == "tool_use"
    sent_context = context(
        user_message("How is it?"), model_answer(*first.output.parts), results(*requests), tools=(CPU, DISK)
    )
    second = await call_provider(provider, sent_context)
    assert second.error is None, vendors.requests[-1].problem
    assert second.text == "All is well."


@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic-messages", "gemini-generate"])
async def test_signed_reasoning_goes_back_to_its_own_provider_and_is_accepted(vendors: Vendors, dialect: str) -> None:
    call = ToolCallPiece(part="call", call_id="call_a", name="cpu", arguments="{}")
    vendors.plays(dialect, thinks("Hm.", SIGNATURE, call, reason="tool_use"))
    provider = provider_at(vendors, dialect)
    first = await call_provider(provider, context(tools=(CPU,)))
    assert [part.provider for part in first.output.parts if isinstance(part, Reasoning)][-1] == NAMES[dialect]
    sent_context = context(
        user_message("?"), model_answer(*first.output.parts), results(*first.output.tool_requests), tools=(CPU,)
    )
    second = await call_provider(provider, sent_context)
    assert second.error is None, vendors.requests[-1].problem
    assert SIGNATURE in str(vendors.requests[-1].body)


@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic-messages", "gemini-generate"])
async def test_signed_reasoning_of_another_provider_is_left_out_and_noted(vendors: Vendors, dialect: str) -> None:
    foreign = Reasoning(text="Hm.", signature=SIGNATURE, provider="another")
    sent_context = context(user_message("?"), model_answer(foreign, Text(text="Yes.")), user_message("Sure?"))
    result = await call_provider(provider_at(vendors, dialect), sent_context)
    assert result.error is None
    assert SIGNATURE not in str(vendors.requests[-1].body)
    assert LossCode.REASONING_FOREIGN in [loss.code for loss in result.notes.losses]


@each_dialect
async def test_what_the_vendor_refuses_is_refused_here_too(vendors: Vendors, dialect: str) -> None:
    """The played vendors judge for real: a result of a tool call that was not made is a 400."""
    orphan = ToolRequest(call_id="call_x", name="cpu", arguments="{}")
    result = await call_provider(provider_at(vendors, dialect), context(user_message("?"), results(orphan)))
    assert isinstance(result.error, RequestRefused)
    assert result.error.kind == "invalid_request"
    assert vendors.requests[-1].problem


async def test_keys_go_into_the_header_of_the_vendor(vendors: Vendors) -> None:
    headers = {
        "openai-chat": ("authorization", f"Bearer {KEYS['openai']}"),
        "openai-responses": ("authorization", f"Bearer {KEYS['openai']}"),
        "anthropic-messages": ("x-api-key", KEYS["anthropic"]),
        "gemini-generate": ("x-goog-api-key", KEYS["gemini"]),
    }
    for dialect, (name, value) in headers.items():
        await call_provider(provider_at(vendors, dialect))
        assert vendors.requests[-1].headers[name] == value
        assert "key" not in vendors.requests[-1].query
    assert vendors.requests_for("anthropic-messages")[0].headers["anthropic-version"] == "2023-06-01"


async def test_azure_has_the_deployment_in_the_path_and_a_header_of_its_own(vendors: Vendors) -> None:
    """S2.45: the same dialect, another address."""
    azure = provider_at(
        vendors, "openai-chat", base_url=vendors.url, azure_api_version="2024-10-21", key_header="api-key"
    )
    result = await call_provider(azure)
    [seen] = vendors.requests
    assert result.error is None
    assert seen.path == "/openai/deployments/model/chat/completions"
    assert seen.query == {"api-version": "2024-10-21"}
    assert seen.headers["api-key"] == KEYS["openai"]
    assert "authorization" not in seen.headers


async def test_further_headers_are_sent_and_no_cookie_no_proxy_no_compression(
    vendors: Vendors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    vendors.plays("openai-chat", replace(says("1"), headers={"Set-Cookie": "a=b; Path=/"}))
    provider = provider_at(vendors, "openai-chat", headers={"X-Title": "Parley"})
    assert (await call_provider(provider)).error is None
    assert (await call_provider(provider)).error is None
    assert vendors.requests[-1].headers["x-title"] == "Parley"
    assert vendors.requests[-1].headers["accept-encoding"] == "identity"
    assert "cookie" not in vendors.requests[-1].headers


async def test_switches_come_from_the_model_or_else_from_the_provider(vendors: Vendors) -> None:
    models = (Model(name="model", switches=Switches(system_role="developer")), Model(name="other"))
    provider = provider_at(vendors, "openai-chat", models=models, switches=Switches(legacy_max_tokens=True))
    await call_provider(provider)
    await call_provider(provider, model="other")
    first, second = (seen.body for seen in vendors.requests)
    assert (first["messages"][0]["role"], second["messages"][0]["role"]) == ("developer", "system")
    assert "max_completion_tokens" in first
    assert "max_tokens" in second


async def test_anthropic_is_told_of_the_beta_that_inline_instructions_need(vendors: Vendors) -> None:
    provider = provider_at(vendors, "anthropic-messages", switches=Switches(inline_system=True))
    assert (await call_provider(provider)).error is None
    assert vendors.requests[-1].headers["anthropic-beta"].startswith("mid-conversation-system")


@each_dialect
async def test_a_server_that_cannot_stream_is_understood_all_the_same(vendors: Vendors, dialect: str) -> None:
    """Some compatible servers and gateways answer with a whole reply to every request."""
    whole = DIALECTS[dialect].encode_reply(
        (await call_provider(provider_at(vendors, dialect))).output, reply_id="r", created=1
    )
    vendors.plays(dialect, raw(_json(whole), content_type="application/json"))
    result = await call_provider(provider_at(vendors, dialect))
    assert (result.error, result.text) == (None, "Hello.")


async def test_usage_is_found_wherever_a_server_puts_it(vendors: Vendors) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
    text = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}], "usage": usage}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}
    chunks = b"".join(b"data: " + _json(chunk) + b"\n\n" for chunk in (text, end))
    vendors.plays("openai-chat", raw(chunks), replace(says("Hi"), events=says("Hi", usage=LONG).events))
    first, second = [await call_provider(provider_at(vendors, "openai-chat")) for _ in range(2)]
    assert first.output.usage is not None
    assert first.output.usage.input_tokens == 900
    assert second.output.usage is not None
    assert second.output.usage.cache_read_tokens == 600


async def test_counts_after_the_end_are_waited_for_but_not_for_ever(
    vendors: Vendors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.providers.event_stream.LINGER_SECONDS", 0.2)
    done = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    vendors.plays("openai-chat", replace(raw(done), linger=30.0))
    result = await call_provider(provider_at(vendors, "openai-chat"))
    assert (result.error, result.text) == (None, "Hi")


async def test_garbage_in_the_middle_is_skipped_and_garbage_alone_is_a_cut(vendors: Vendors) -> None:
    good = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    vendors.plays("openai-chat", raw(b"data: {oops\n\n" + good), raw(b"\x00\xff\xfe" * 500))
    provider = provider_at(vendors, "openai-chat")
    first, second = await call_provider(provider), await call_provider(provider)
    assert (first.error, first.text) == (None, "Hi")
    assert isinstance(second.error, Cut)


async def test_a_web_page_or_a_redirect_means_that_the_address_is_wrong(vendors: Vendors) -> None:
    vendors.plays("openai-chat", raw(b"<html>Sign in</html>", content_type="text/html"), Play(body=b"x", status=307))
    provider = provider_at(vendors, "openai-chat")
    for _ in range(2):
        result = await call_provider(provider)
        assert isinstance(result.error, RequestRefused)
        assert "base URL" in str(result.error)
    assert len(vendors.requests) == 2


async def test_the_vendor_the_model_and_the_language_may_change_at_every_call(
    vendors: Vendors, providers: Router
) -> None:
    """S2.4, S2.48, S2.59: one plans, one executes with two tools, one reviews; each request is valid for its vendor."""
    planned = thinks("Plan it.", SIGNATURE, TextPiece(part="t", text="First look, then tell."))
    vendors.plays("anthropic-messages", planned)
    vendors.plays("openai-responses", asks(("call_a", "cpu", "{}"), ("call_b", "disk", "{}")), says("Both are fine."))
    vendors.plays("gemini-generate", says("Well done."))
    sent_context = [user_message("How is the server?")]
    for name in ("anthropic/model", "openai/model", "openai/model", "gemini/model"):
        route = providers.route(name)
        result = await call_provider(route.provider, context(*sent_context, tools=(CPU, DISK)), model=route.model.name)
        assert result.error is None, vendors.requests[-1].problem
        sent_context.append(model_answer(*result.output.parts))
        sent_context += (
            [results(*result.output.tool_requests)] if result.output.tool_requests else [user_message("Go on.")]
        )
    assert [seen.dialect for seen in vendors.requests] == [
        *("anthropic-messages", "openai-responses", "openai-responses", "gemini-generate")
    ]
    review = str(vendors.requests[-1].body)
    assert review.index("How is the server?") < review.index("First look") < review.index("Both are fine.")
    assert SIGNATURE not in review


async def test_a_call_writes_no_history_and_leaves_its_context_as_it_was(vendors: Vendors) -> None:
    """S2.40: no database is asked for in this test, so a query would fail; and a context is frozen."""
    sent_context = context()
    before = repr(sent_context)
    result = await call_provider(provider_at(vendors, "openai-chat"), sent_context)
    assert result.error is None
    assert repr(sent_context) == before


async def test_options_of_a_call_are_obeyed(vendors: Vendors) -> None:
    """S2.37, S2.39: a context and options in, events out; the live screen and the debugging are the caller's choice."""
    screen = context(user_message("?").with_live_screen("12:00, all quiet"))
    provider = provider_at(vendors, "openai-chat")
    with_screen = await call_provider(provider, screen, temperature=0.5, stop=("END",))
    await call_provider(provider, screen, include_live_screen=False, include_debug=True)
    shown, hidden = (seen.body for seen in vendors.requests)
    assert "all quiet" in str(shown)
    assert (shown["temperature"], shown["stop"]) == (0.5, ["END"])
    assert "all quiet" not in str(hidden)
    assert "debug" not in hidden
    kinds = [type(event) for event in with_screen.events]
    assert kinds[0] is AnswerStarted
    assert {TextPiece, UsageReported, AnswerEnded} < set(kinds)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@each_dialect
async def test_a_large_event_is_parsed_beside_the_event_loop(
    vendors: Vendors, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = threading.get_ident()
    parsed_here: list[int] = []
    parsed = json_access.parse_json

    def note_thread(text: str) -> object:
        if threading.get_ident() == here:
            parsed_here.append(len(text))
        return parsed(text)

    monkeypatch.setattr(reply_decoder, "parse_json", note_thread)
    vendors.plays(dialect, says("x" * 600_000, "y"))
    result = await call_provider(provider_at(vendors, dialect))
    assert result.error is None
    assert result.output.text == "x" * 600_000 + "y"
    assert max(parsed_here, default=0) <= LARGE
