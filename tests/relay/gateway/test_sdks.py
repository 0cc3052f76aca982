"""The vendors' own SDKs through the relay: same language on both ends, and any other upstream behind it."""

import json
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types as genai_types

from history.answers.events import AnswerEnded, AnswerStarted, TextPiece
from history.dialects import DIALECTS
from history.dialects.request_encoder import data_url
from relay.providers import registry
from tests.clients import RunningRelay
from tests.history.dialects.samples import PNG
from tests.vendors import Vendors, asks, refuses, says, thinks
from tests.vendors.setup import use_one_provider

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = [pytest.mark.any_database, pytest.mark.runs_first]

UPSTREAMS = list(DIALECTS)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = ("call_1", "weather", '{"city": "Oslo"}')
OF_OPENAI: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
OF_RESPONSES: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
OF_ANTHROPIC: Any = [{"name": "weather", "input_schema": SCHEMA}]
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def providers(vendors: Vendors, upstream: str) -> registry.Router:
    return use_one_provider(vendors, upstream)


def test_openai_chat(of_openai: openai.OpenAI, relay: RunningRelay, vendors: Vendors, upstream: str) -> None:
    reply = of_openai.chat.completions.create(model="model", messages=HI)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Hello.", "stop")
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (12, 5)
    vendors.plays(upstream, says("Hel", "lo", "."))
    chunks = list(of_openai.chat.completions.create(model="model", messages=HI, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello."
    vendors.plays(upstream, asks(CALL, text="Let me look."))
    asked: Any = of_openai.chat.completions.create(model="model", messages=HI, tools=OF_OPENAI)
    call = asked.choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == (CALL[0], CALL[1], {"city": "Oslo"})
    said = [*HI, asked.choices[0].message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    then = of_openai.chat.completions.create(model="model", messages=said, tools=OF_OPENAI)
    assert then.choices[0].message.content == "Hello."
    assert [ended.reason for ended in relay.ended(4)] == ["done"] * 4
    assert {accepted.upstream_dialect for accepted in relay.accepted()} == {upstream}


@pytest.mark.parametrize("upstream", ["openai-responses"])
def test_two_messages_of_one_answer_are_paragraphs_to_one_client_and_blocks_to_another(
    of_openai: openai.OpenAI, of_anthropic: anthropic.Anthropic, vendors: Vendors, upstream: str
) -> None:
    said = [TextPiece(part="1", text="I look."), TextPiece(part="2", text="It rains.")]
    vendors.plays(upstream, *[replace(says(), events=(AnswerStarted(), *said, AnswerEnded(reason="stop")))] * 3)
    chunks = list(of_openai.chat.completions.create(model="model", messages=HI, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "I look.\n\nIt rains."
    whole = of_openai.chat.completions.create(model="model", messages=HI)
    assert whole.choices[0].message.content == "I look.\n\nIt rains."
    with of_anthropic.messages.stream(model="model", max_tokens=99, messages=HI) as stream:
        blocks: Any = stream.get_final_message().content
    assert [block.text for block in blocks] == ["I look.", "It rains."]


def test_openai_responses(of_openai: openai.OpenAI, vendors: Vendors, upstream: str) -> None:
    reply = of_openai.responses.create(model="model", input="hi")
    assert (reply.output_text, reply.status) == ("Hello.", "completed")
    with of_openai.responses.stream(model="model", input="hi") as stream:
        assert [event.type for event in stream][-1] == "response.completed"
        assert stream.get_final_response().output_text == "Hello."
    vendors.plays(upstream, asks(CALL))
    asked: Any = of_openai.responses.create(model="model", input="hi", tools=OF_RESPONSES)
    call = next(item for item in asked.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Oslo"})


def test_anthropic_messages(of_anthropic: anthropic.Anthropic, vendors: Vendors, upstream: str) -> None:
    reply: Any = of_anthropic.messages.create(model="model", max_tokens=99, messages=HI)
    assert (reply.content[0].text, reply.stop_reason) == ("Hello.", "end_turn")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 5)
    with of_anthropic.messages.stream(model="model", max_tokens=99, messages=HI) as stream:
        assert "".join(stream.text_stream) == "Hello."
    vendors.plays(upstream, asks(CALL, text="Let me look."))
    asked: Any = of_anthropic.messages.create(model="model", max_tokens=99, messages=HI, tools=OF_ANTHROPIC)
    call = asked.content[-1]
    assert (call.type, call.name, call.input, asked.stop_reason) == (
        "tool_use",
        "weather",
        {"city": "Oslo"},
        "tool_use",
    )
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}]
    said = [*HI, {"role": "assistant", "content": asked.content}, {"role": "user", "content": results}]
    then: Any = of_anthropic.messages.create(model="model", max_tokens=99, messages=said, tools=OF_ANTHROPIC)
    assert then.content[0].text == "Hello."


def test_google_genai(of_google: genai.Client, vendors: Vendors, upstream: str) -> None:
    reply = of_google.models.generate_content(model="model", contents="hi")
    assert reply.text == "Hello."
    chunks = list(of_google.models.generate_content_stream(model="model", contents="hi"))
    assert "".join(chunk.text or "" for chunk in chunks) == "Hello."
    vendors.plays(upstream, says("One.\u2028", "Two.\x85Three."))
    chunks = list(of_google.models.generate_content_stream(model="model", contents="hi"))
    assert "".join(chunk.text or "" for chunk in chunks) == "One.\u2028Two.\x85Three."
    vendors.plays(upstream, asks(CALL))
    declared = genai_types.FunctionDeclaration(name="weather", parameters_json_schema=SCHEMA)
    config = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[declared])],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )
    asked = of_google.models.generate_content(model="model", contents="hi", config=config)
    assert [(call.name, call.args) for call in asked.function_calls or []] == [("weather", {"city": "Oslo"})]


def look(city: str, days: int = 1) -> str:
    """What the weather will be."""
    raise AssertionError("only its signature is of interest")


@pytest.mark.parametrize("upstream", ["openai-chat"])
def test_google_genais_pictures_and_python_functions_reach_another_vendor(
    of_google: genai.Client, vendors: Vendors, upstream: str
) -> None:
    """The SDK writes some names in camelCase and some in snake_case."""
    config = genai_types.GenerateContentConfig(
        tools=[look],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=genai_types.ThinkingConfig(thinking_level=genai_types.ThinkingLevel.LOW),
    )
    picture = genai_types.Part.from_bytes(data=PNG, mime_type="image/png")
    of_google.models.generate_content(model="model", contents=["What is it?", picture], config=config)
    sent = vendors.requests[0].body
    text, image = sent["messages"][0]["content"]
    assert (text["text"], image["image_url"]["url"]) == ("What is it?", data_url("image/png", PNG))
    function = sent["tools"][0]["function"]
    assert (function["name"], function["description"]) == ("look", "What the weather will be.")
    assert set(function["parameters"]["properties"]) == {"city", "days"}
    assert (function["parameters"]["required"], sent["reasoning_effort"]) == (["city"], "low")


@pytest.mark.parametrize("upstream", ["anthropic-messages", "openai-chat", "openai-responses"])
def test_functions_in_googles_own_schema_reach_another_vendor(
    of_google: genai.Client, vendors: Vendors, upstream: str
) -> None:
    city = genai_types.Schema(type=genai_types.Type.STRING, nullable=True)
    schema = genai_types.Schema(
        type=genai_types.Type.OBJECT, properties={"city": city}, required=["city"], property_ordering=["city"]
    )
    declared = genai_types.FunctionDeclaration(name="weather", parameters=schema)
    config = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[declared])],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )
    assert of_google.models.generate_content(model="model", contents="hi", config=config).text == "Hello."
    told = json.dumps(vendors.requests[0].body["tools"])
    assert '"properties": {"city": {"type": ["string", "null"]}}' in told
    assert "property_ordering" not in told


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
PATCH = '*** Begin Patch\n+ "é"\n'
PATCHING = ("call_1", "apply_patch", json.dumps({"input": PATCH}))
ASKING = ("call_2", "ask_agent", '{"who": "Ada"}')
OF_CODEX: Any = [
    {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": GRAMMAR},
    {
        "type": "namespace",
        "name": "agents",
        "description": "Others who help.",
        "tools": [
            {"type": "function", "name": "ask_agent", "parameters": SCHEMA},
            {"type": "function", "name": "weather", "parameters": SCHEMA},
        ],
    },
    *OF_RESPONSES,
    {"type": "web_search"},
]
TRANSLATED = [name for name in UPSTREAMS if name != "openai-responses"]


@pytest.mark.parametrize("upstream", TRANSLATED)
def test_tools_of_codex_are_functions_to_other_vendors_and_its_own_in_their_replies(
    of_openai: openai.OpenAI, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    """One that takes plain text, and one of a group; the name of another in it is taken already."""
    vendors.plays(upstream, *[asks(PATCHING, ASKING, CALL)] * 2)
    with of_openai.responses.stream(model="model", input="hi", tools=OF_CODEX) as stream:
        streamed = [event.type for event in stream]
        replies: Any = [stream.get_final_response()]
    assert "response.custom_tool_call_input.done" in streamed
    replies.append(of_openai.responses.create(model="model", input="hi", tools=OF_CODEX))
    for reply in replies:
        patching, asking, weather = reply.output
        assert (patching.type, patching.call_id, patching.name, patching.input) == (
            *("custom_tool_call", "call_1", "apply_patch", PATCH),
        )
        assert (asking.type, asking.namespace, asking.name) == ("function_call", "agents", "ask_agent")
        assert (weather.type, weather.namespace, weather.name) == ("function_call", None, "weather")
    said: Any = [{"role": "user", "content": "hi"}, *(item.to_dict() for item in replies[0].output)]
    for call_id in ("call_1", "call_2"):
        said.append({"type": "function_call_output", "call_id": call_id, "output": "Done."})
    said[-2]["type"] = "custom_tool_call_output"
    said.append({"type": "function_call_output", "call_id": CALL[0], "output": "Rain."})
    then = of_openai.responses.create(model="model", input=said, tools=OF_CODEX)
    assert then.output_text == "Hello."
    assert json.dumps(vendors.requests[-1].body).count("Done.") == len(["of the patch", "of the agent"])
    named = relay.ended(3)[0].metadata["not_carried"].split(", ")
    assert [name for name in named if "supplied" not in name] == [
        *("option_not_carried:grammar", "tool_not_carried:agents.weather", "tool_not_carried:web_search")
    ]


@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if name != "openai-chat"])
def test_a_tool_of_chat_completions_that_takes_plain_text_is_called_with_it(
    of_openai: openai.OpenAI, vendors: Vendors, upstream: str
) -> None:
    tools: Any = [{"type": "custom", "custom": {"name": "apply_patch", "description": "Edits files."}}]
    vendors.plays(upstream, *[asks(PATCHING)] * 2)
    reply: Any = of_openai.chat.completions.create(model="model", messages=HI, tools=tools)
    (call,) = reply.choices[0].message.tool_calls
    assert (call.type, call.custom.name, call.custom.input) == ("custom", "apply_patch", PATCH)
    chunks: Any = list(of_openai.chat.completions.create(model="model", messages=HI, tools=tools, stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert (calls[0].type, calls[0].id, calls[0].custom["name"]) == ("custom", "call_1", "apply_patch")
    assert "".join(call.custom["input"] for call in calls) == PATCH


@pytest.mark.parametrize("arguments", ["", "{}"])
def test_a_text_tool_called_without_input_gets_an_empty_text(
    of_openai: openai.OpenAI, vendors: Vendors, arguments: str
) -> None:
    vendors.plays("openai-chat", *[asks(("call_1", "apply_patch", arguments))] * 2)
    use_one_provider(vendors, "openai-chat")
    with of_openai.responses.stream(model="model", input="hi", tools=OF_CODEX) as stream:
        events: Any = list(stream)
        replies: Any = [stream.get_final_response()]
    replies.append(of_openai.responses.create(model="model", input="hi", tools=OF_CODEX))
    told = {event.type: event for event in events}
    assert told["response.custom_tool_call_input.delta"].delta == ""
    assert told["response.custom_tool_call_input.done"].input == ""
    assert told["response.output_item.done"].item.input == ""
    assert [reply.output[0].input for reply in replies] == ["", ""]


async def test_the_async_clients(relay: RunningRelay, key: str) -> None:
    async with openai.AsyncOpenAI(api_key=key, base_url=f"{relay.url}/v1", max_retries=0) as of_openai:
        stream = await of_openai.chat.completions.create(model="model", messages=HI, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(pieces) == "Hello."
    async with (
        anthropic.AsyncAnthropic(api_key=key, base_url=relay.url, max_retries=0) as of_anthropic,
        of_anthropic.messages.stream(model="model", max_tokens=99, messages=HI) as messages,
    ):
        assert await messages.get_final_text() == "Hello."
    of_google = genai.Client(api_key=key, http_options=genai_types.HttpOptions(base_url=relay.url)).aio
    assert (await of_google.models.generate_content(model="model", contents="hi")).text == "Hello."
    await of_google.aclose()


def test_no_sdk_stumbles_over_the_signs_of_life_in_a_silent_stream(
    of_openai: openai.OpenAI,
    of_anthropic: anthropic.Anthropic,
    of_google: genai.Client,
    vendors: Vendors,
    upstream: str,
    settings: Any,
) -> None:
    settings.PARLEY_RELAY_KEEPALIVE_SECONDS = 0.1
    vendors.plays(upstream, *[replace(says("Hel", "lo."), delay=0.25)] * 4)
    chunks = list(of_google.models.generate_content_stream(model="model", contents="hi"))
    assert "".join(chunk.text or "" for chunk in chunks) == "Hello."
    with of_anthropic.messages.stream(model="model", max_tokens=99, messages=HI) as stream:
        assert stream.get_final_text() == "Hello."
    pieces = of_openai.chat.completions.create(model="model", messages=HI, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "Hello."
    with of_openai.responses.stream(model="model", input="hi") as events:
        assert events.get_final_response().output_text == "Hello."


def test_errors_are_the_sdks_own(
    of_openai: openai.OpenAI,
    of_anthropic: anthropic.Anthropic,
    of_google: genai.Client,
    relay: RunningRelay,
    vendors: Vendors,
    upstream: str,
) -> None:
    vendors.plays(upstream, *[refuses("rate_limit", "Slow down", headers={"retry-after": "3"})] * 3)
    with pytest.raises(openai.RateLimitError, match="Slow down") as of_chat:
        of_openai.chat.completions.create(model="model", messages=HI)
    assert of_chat.value.response.headers["retry-after"] == "3"
    with pytest.raises(anthropic.RateLimitError, match="Slow down"):
        of_anthropic.messages.create(model="model", max_tokens=9, messages=HI)
    with pytest.raises(genai.errors.APIError, match="Slow down") as of_gemini:
        of_google.models.generate_content(model="model", contents="hi")
    assert of_gemini.value.code == 429
    assert [(ended.reason, ended.status) for ended in relay.ended(3)] == [("upstream_error", 429)] * 3
    with pytest.raises(openai.NotFoundError, match="missing"):
        of_openai.chat.completions.create(model="missing", messages=HI)


def test_an_error_in_the_middle_of_a_stream_is_the_sdks_own(
    of_anthropic: anthropic.Anthropic, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, says("Hel", "lo."))
    whole = len(_bytes_of(of_anthropic, relay))
    vendors.plays(upstream, _cut(whole // 2))
    with (
        pytest.raises((anthropic.APIError, httpx2.HTTPError)),
        of_anthropic.messages.stream(model="model", max_tokens=9, messages=HI) as stream,
    ):
        stream.get_final_message()
    assert relay.ended(2)[-1].reason == "upstream_cut"


def _bytes_of(client: anthropic.Anthropic, relay: RunningRelay) -> bytes:
    with client.messages.stream(model="model", max_tokens=9, messages=HI) as stream:
        stream.get_final_message()
    relay.ended()
    return relay.replied()


def _cut(at: int) -> Any:
    return replace(says("Hel", "lo."), cut_at=at)


def test_a_caller_that_stops_reading_stops_the_upstream(
    of_openai: openai.OpenAI, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, replace(says(*["word "] * 50), delay=0.1))
    with of_openai.chat.completions.create(model="model", messages=HI, stream=True) as stream:
        next(iter(stream))
    assert vendors.requests[0].left.wait(5)
    assert relay.ended()[0].reason == "client_gone"


def test_signed_thinking_goes_back_only_to_its_signer(
    of_anthropic: anthropic.Anthropic, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, thinks("Hm.", "c2lnbmVk", TextPiece(part="text", text="Yes.")))
    reply: Any = of_anthropic.messages.create(model="model", max_tokens=99, messages=HI)
    assert reply.content[-1].text == "Yes."
    said = [*HI, {"role": "assistant", "content": reply.content}, {"role": "user", "content": "And?"}]
    then: Any = of_anthropic.messages.create(model="model", max_tokens=99, messages=said)
    assert then.content[0].text == "Hello."
