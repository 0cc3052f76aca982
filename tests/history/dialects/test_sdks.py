"""The vendors' own SDKs are the judges: they read what we encode, and see what was said."""

import base64
import json
from collections.abc import Callable

import anthropic
import httpx2
import openai
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from google import genai
from google.genai import types as genai_types
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseReasoningItem

from history.answers.events import (
    AnswerEnded,
    AnswerFailed,
    AnswerStarted,
    ErrorKind,
    Event,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects import DIALECTS
from history.entries import ModelOutput, Reasoning, Text, ToolRequest, Usage
from tests.history.dialects.samples import events_of

pytestmark = [pytest.mark.runs_first, pytest.mark.no_database]

SIGNATURE = base64.b64encode(b"signed").decode()
USAGE = Usage(input_tokens=100, output_tokens=20, cache_read_tokens=60, cache_write_tokens=10, reasoning_tokens=5)
OUTPUT = ModelOutput(
    model="model-x",
    provider="acme",
    parts=(
        Reasoning(text="Hm. 嗯", signature=SIGNATURE, provider="acme"),
        Text(text="Let me look. 你好"),
        ToolRequest(call_id="call_a", name="cpu", arguments='{"core": 1}'),
        ToolRequest(call_id="call_b", name="disk", arguments="{}"),
    ),
    usage=USAGE,
    end_reason="tool_use",
    request_id="r1",
)
# The same, in many pieces, with the calls mixed as a vendor may send them.
EVENTS: tuple[Event, ...] = (
    AnswerStarted(model="model-x", request_id="r1"),
    *[ReasoningPiece(part="r", text=character) for character in "Hm. 嗯"],
    ReasoningPiece(part="r", signature=SIGNATURE),
    *[TextPiece(part="t", text=character) for character in "Let me look. 你好"],
    ToolCallPiece(part="a", call_id="call_a", name="cpu"),
    ToolCallPiece(part="a", arguments='{"core'),
    ToolCallPiece(part="b", call_id="call_b", name="disk"),
    ToolCallPiece(part="b", arguments="{}"),
    ToolCallPiece(part="a", arguments='": 1}'),
    UsageReported(usage=USAGE),
    AnswerEnded(reason="tool_use"),
)


def streamed(name: str, events: tuple[Event, ...] = EVENTS) -> bytes:
    encoder = DIALECTS[name].stream_encoder(model="model-x", reply_id="r1", created=1)
    return b"".join(encoder.feed(event) for event in events) + encoder.end()


def replied(name: str) -> bytes:
    return json.dumps(DIALECTS[name].encode_reply(OUTPUT, reply_id="r1", created=1)).encode()


def serve(content: bytes, *, status: int = 200, stream: bool = False) -> httpx2.Client:
    kind = "text/event-stream" if stream else "application/json"

    def respond(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": kind}, content=content)

    return httpx2.Client(transport=httpx2.MockTransport(respond))


def openai_client(http: httpx2.Client) -> openai.OpenAI:
    return openai.OpenAI(api_key="x", base_url="http://loopback/v1", http_client=http, max_retries=0)


def anthropic_client(http: httpx2.Client) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="x", base_url="http://loopback", http_client=http, max_retries=0)


def genai_client(http: httpx2.Client) -> genai.Client:
    options = genai_types.HttpOptions(base_url="http://loopback", httpx_client=http)
    return genai.Client(api_key="x", http_options=options)


# Whole replies.


def test_openai_reads_a_whole_chat_completion() -> None:
    client = openai_client(serve(replied("openai-chat")))
    reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    message = reply.choices[0].message
    assert (message.content, reply.choices[0].finish_reason) == ("Let me look. 你好", "tool_calls")
    calls = [call.function for call in message.tool_calls or [] if call.type == "function"]
    assert [(call.name, call.arguments) for call in calls] == [("cpu", '{"core": 1}'), ("disk", "{}")]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (100, 20, 120)
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 60


def test_openai_reads_a_whole_response() -> None:
    reply = openai_client(serve(replied("openai-responses"))).responses.create(model="m", input="hi")
    check_response(reply)


def check_response(reply: openai.types.responses.Response) -> None:
    assert (reply.status, reply.output_text) == ("completed", "Let me look. 你好")
    reasoning, message, first, second = reply.output
    assert isinstance(reasoning, ResponseReasoningItem)
    assert isinstance(message, ResponseOutputMessage)
    assert isinstance(first, ResponseFunctionToolCall)
    assert isinstance(second, ResponseFunctionToolCall)
    assert (reasoning.summary[0].text, reasoning.encrypted_content) == ("Hm. 嗯", SIGNATURE)
    assert (first.call_id, first.name, first.arguments) == ("call_a", "cpu", '{"core": 1}')
    assert second.call_id == "call_b"
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.input_tokens_details.cached_tokens) == (100, 60)


def test_anthropic_reads_a_whole_message() -> None:
    client = anthropic_client(serve(replied("anthropic-messages")))
    check_message(client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]))


def check_message(reply: anthropic.types.Message) -> None:
    thinking, text, first, second = reply.content
    assert isinstance(thinking, ThinkingBlock)
    assert isinstance(text, TextBlock)
    assert isinstance(first, ToolUseBlock)
    assert isinstance(second, ToolUseBlock)
    assert (thinking.thinking, thinking.signature) == ("Hm. 嗯", SIGNATURE)
    assert text.text == "Let me look. 你好"
    assert (first.id, first.name, first.input, second.input) == ("call_a", "cpu", {"core": 1}, {})
    assert reply.stop_reason == "tool_use"
    usage = reply.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (30, 60, 10)
    assert usage.output_tokens == 20


def test_genai_reads_a_whole_reply() -> None:
    reply = genai_client(serve(replied("gemini-generate"))).models.generate_content(model="m", contents="hi")
    assert reply.text == "Let me look. 你好"
    calls = reply.function_calls or []
    assert [(call.id, call.name, call.args) for call in calls] == [
        ("call_a", "cpu", {"core": 1}),
        ("call_b", "disk", {}),
    ]
    check_counts(reply)


def check_counts(reply: genai_types.GenerateContentResponse) -> None:
    assert reply.candidates is not None
    assert reply.candidates[0].finish_reason == genai_types.FinishReason.STOP
    usage = reply.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (100, 60)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (15, 5)


# Streams.


def test_openai_accumulates_our_chat_stream() -> None:
    client = openai_client(serve(streamed("openai-chat"), stream=True))
    with client.chat.completions.stream(
        model="m", messages=[{"role": "user", "content": "hi"}], stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        reply = stream.get_final_completion()
    choice = reply.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me look. 你好", "tool_calls")
    calls = choice.message.tool_calls or []
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_a", "cpu", '{"core": 1}'),
        ("call_b", "disk", "{}"),
    ]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 20)


def test_a_chat_client_that_did_not_ask_gets_no_chunk_of_counts() -> None:
    encoder = DIALECTS["openai-chat"].stream_encoder(model="m", reply_id="r1", with_usage=False)
    stream = b"".join(encoder.feed(event) for event in EVENTS) + encoder.end()
    chunks = list(
        openai_client(serve(stream, stream=True)).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
    )
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)


def test_openai_accumulates_our_responses_stream() -> None:
    client = openai_client(serve(streamed("openai-responses"), stream=True))
    with client.responses.stream(model="m", input="hi") as stream:
        events = list(stream)
        reply = stream.get_final_response()
    check_response(reply)
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert snapshots[-1] == "Let me look. 你好"


def test_openai_reads_an_incomplete_response() -> None:
    events = (TextPiece(part="t", text="Hal"), AnswerEnded(reason="length"))
    client = openai_client(serve(streamed("openai-responses", events), stream=True))
    *_, last = client.responses.create(model="m", input="hi", stream=True)
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"


def test_anthropic_accumulates_our_stream() -> None:
    client = anthropic_client(serve(streamed("anthropic-messages"), stream=True))
    with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
        texts = list(stream.text_stream)
        check_message(stream.get_final_message())
    assert len(texts) == len("Let me look. 你好")


def test_genai_reads_the_chunks_of_our_stream() -> None:
    client = genai_client(serve(streamed("gemini-generate"), stream=True))
    chunks = list(client.models.generate_content_stream(model="m", contents="hi"))
    parts = [
        part
        for chunk in chunks
        for candidate in chunk.candidates or []
        for part in (candidate.content.parts if candidate.content else None) or []
    ]
    assert "".join(part.text or "" for part in parts if part.thought) == "Hm. 嗯"
    assert "".join(part.text or "" for part in parts if not part.thought) == "Let me look. 你好"
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.name, call.args) for call in calls] == [("cpu", {"core": 1}), ("disk", {})]
    assert [part.thought_signature for part in parts if part.thought_signature] == [b"signed"]
    check_counts(chunks[-1])


@pytest.mark.parametrize("name", DIALECTS)
def test_a_stream_of_a_whole_answer_says_the_same(name: str) -> None:
    decoder = DIALECTS[name].stream_decoder()
    events = decoder.feed(streamed(name, tuple(events_of(OUTPUT)))) + decoder.close()
    assert "".join(event.text for event in events if isinstance(event, TextPiece)) == "Let me look. 你好"


# Errors, before the first byte and after it.

STATUSES: list[tuple[ErrorKind, int, str, str]] = [
    ("invalid_request", 400, "BadRequestError", "BadRequestError"),
    ("authentication", 401, "AuthenticationError", "AuthenticationError"),
    ("permission", 403, "PermissionDeniedError", "PermissionDeniedError"),
    ("not_found", 404, "NotFoundError", "NotFoundError"),
    ("conflict", 409, "ConflictError", "ConflictError"),
    ("rate_limit", 429, "RateLimitError", "RateLimitError"),
    ("server", 500, "InternalServerError", "InternalServerError"),
]


@pytest.mark.parametrize(("kind", "status", "of_openai", "of_anthropic"), STATUSES)
def test_sdks_raise_their_own_error_for_each_kind(
    kind: ErrorKind, status: int, of_openai: str, of_anthropic: str
) -> None:
    failed = AnswerFailed(message="No, 不", kind=kind)
    with pytest.raises(getattr(openai, of_openai), match="不"):
        openai_client(_refusing("openai-chat", failed)).responses.create(model="m", input="hi")
    with pytest.raises(getattr(anthropic, of_anthropic), match="不"):
        anthropic_client(_refusing("anthropic-messages", failed)).messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
    with pytest.raises(genai.errors.APIError, match="不") as caught:
        genai_client(_refusing("gemini-generate", failed)).models.generate_content(model="m", contents="hi")
    assert caught.value.code == status


def _refusing(name: str, failed: AnswerFailed) -> httpx2.Client:
    status, body = DIALECTS[name].encode_error(failed)
    return serve(json.dumps(body).encode(), status=status)


BROKEN: tuple[Event, ...] = (TextPiece(part="t", text="Hal"), AnswerFailed(message="Too busy", kind="overloaded"))


def _chat(stream: bytes) -> None:
    client = openai_client(serve(stream, stream=True))
    list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True))


def _messages(stream: bytes) -> None:
    client = anthropic_client(serve(stream, stream=True))
    list(client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True))


def _gemini(stream: bytes) -> None:
    list(genai_client(serve(stream, stream=True)).models.generate_content_stream(model="m", contents="hi"))


@pytest.mark.parametrize(
    ("name", "ask", "error"),
    [
        ("openai-chat", _chat, openai.APIError),
        ("anthropic-messages", _messages, anthropic.APIError),
        ("gemini-generate", _gemini, genai.errors.APIError),
    ],
)
def test_sdks_notice_an_error_in_the_middle_of_a_stream(
    name: str, ask: Callable[[bytes], None], error: type[Exception]
) -> None:
    with pytest.raises(error, match="Too busy"):
        ask(streamed(name, BROKEN))


def test_openai_reads_a_failed_response() -> None:
    client = openai_client(serve(streamed("openai-responses", BROKEN), stream=True))
    *_, last = client.responses.create(model="m", input="hi", stream=True)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "Too busy"
