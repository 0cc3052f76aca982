"""Decoding of client requests: shapes of real clients, and invalid ones."""

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.context.messages import SYSTEM_CHANNEL
from history.context.repair import find_unpaired
from history.context.values import Role
from history.dialects import DIALECTS, DecodedRequest, DialectError, LossCode, context_of
from history.entries import (
    Media,
    ModelInput,
    ModelOutput,
    OtherPart,
    Reasoning,
    Text,
    ToolRequest,
    ToolResults,
    entry_from_json,
    entry_to_json,
)
from tests.factories import example_count
from tests.history.dialects.samples import AT, NAMES, PNG

pytestmark = pytest.mark.no_database

every_dialect = pytest.mark.parametrize("name", NAMES)
PNG_64 = base64.b64encode(PNG).decode()
PNG_SHA = hashlib.sha256(PNG).hexdigest()


def read(name: str, body: dict[str, Any]) -> DecodedRequest:
    decoded = DIALECTS[name].decode_request(body, at=AT)
    for entry in decoded.entries:
        assert entry_from_json(json.loads(json.dumps(entry_to_json(entry)))) == entry
    return decoded


def kinds(decoded: DecodedRequest) -> list[str]:
    return [entry.kind for entry in decoded.entries]


def parts(entry: Any) -> Any:
    assert isinstance(entry, ModelInput | ModelOutput)
    return entry.parts


def results(entry: Any) -> Any:
    assert isinstance(entry, ToolResults)
    return entry.results


# Not requests at all.


@every_dialect
@pytest.mark.parametrize("body", [None, [], "hi", 7, {}, {"prompt_text": "hi"}])
def test_what_is_no_request_is_refused_with_one_clear_error(name: str, body: Any) -> None:
    with pytest.raises(DialectError, match="a request"):
        DIALECTS[name].decode_request(body)


def test_a_request_that_nests_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(DialectError, match="nested"):
        DIALECTS["openai-chat"].decode_request({"messages": deep})


FIELDS = (
    *("role", "content", "type", "text", "messages", "input", "contents", "parts", "tool_calls", "function", "name"),
    *("arguments", "id", "call_id", "output", "source", "data", "image_url", "url", "functionCall", "functionResponse"),
    *("response", "args", "inlineData", "system", "tools", "tool_choice", "stop", "summary", "media_type"),
    *("function_call", "function_response", "inline_data", "generateContentRequest"),
)
WORDS = (
    *(
        "user",
        "assistant",
        "system",
        "tool",
        "model",
        "text",
        "image",
        "tool_use",
        "tool_result",
        "thinking",
        "message",
    ),
    *("function_call", "function_call_output", "reasoning", "input_text", "image_url", "base64", "data:;base64,x"),
    *("file", "document", "url", "\ud800"),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(WORDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)),
    max_leaves=20,
)


@every_dialect
@given(said=JSON, around=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
@settings(deadline=None, max_examples=example_count(150))
def test_odd_requests_are_read_without_an_error_and_survive_storage(name: str, said: Any, around: Any) -> None:
    field = {"openai-responses": "input", "gemini-generate": "contents"}.get(name, "messages")
    decoded = read(name, {**around, field: said})
    assert find_unpaired(context_of(decoded).entries) == ()


# OpenAI Chat.


def test_chat_leading_instructions_are_the_system_and_later_ones_stand_where_they_were() -> None:
    decoded = read(
        "openai-chat",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
                {"role": "user", "content": "hi"},
                {"role": "system", "content": "Now rhyme."},
            ],
        },
    )
    assert decoded.system == "Be kind.\n\nBe brief."
    assert [getattr(entry, "channel", "") for entry in decoded.entries] == ["relay", SYSTEM_CHANNEL]
    assert context_of(decoded).entries[1].role is Role.SYSTEM


def test_chat_tool_messages_in_a_row_are_one_entry_with_the_names_of_their_calls() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "cpu", "arguments": '{"core": 1}'}}
    other = {"id": "b", "type": "function", "function": {"name": "disk", "arguments": ""}}
    decoded = read(
        "openai-chat",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [call, other]},
                {"role": "tool", "tool_call_id": "a", "content": "1"},
                {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
            ]
        },
    )
    assert kinds(decoded) == ["model_input", "model_output", "tool_results"]
    assert [(one.call_id, one.name, one.text) for one in results(decoded.entries[2])] == [
        ("a", "cpu", "1"),
        ("b", "disk", "2"),
    ]
    assert parts(decoded.entries[1])[1].arguments == "{}"


def test_chat_images_and_files_in_data_urls_become_media_with_their_bytes_apart() -> None:
    decoded = read(
        "openai-chat",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "See"},
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_64}", "detail": "low"}},
                        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,eA=="},
                        },
                        {"type": "input_audio", "input_audio": {"data": "eA==", "format": "wav"}},
                        {"type": "video_url", "video_url": {"url": "x"}},
                    ],
                }
            ]
        },
    )
    text, image, linked, file, sound, unknown = parts(decoded.entries[0])
    assert image == Media(media_type="image/png", sha256=PNG_SHA, size=len(PNG), extra={"detail": "low"})
    assert linked == Media(media_type="image/*", url="https://example.org/a.png")
    assert (file.media_type, file.name, sound.media_type) == ("application/pdf", "a.pdf", "audio/wav")
    assert unknown == OtherPart(data={"type": "video_url", "video_url": {"url": "x"}})
    assert decoded.blobs[PNG_SHA] == PNG
    assert text == Text(text="See")


def test_chat_legacy_functions_are_tools_calls_and_results() -> None:
    decoded = read(
        "openai-chat",
        {
            "functions": [{"name": "cpu", "parameters": {"type": "object"}}],
            "function_call": {"name": "cpu"},
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "function_call": {"name": "cpu", "arguments": "{}"}},
                {"role": "function", "name": "cpu", "content": "1"},
            ],
        },
    )
    (call,) = parts(decoded.entries[1])
    (result,) = results(decoded.entries[2])
    assert call.call_id == result.call_id != ""
    assert (decoded.tools[0].name, decoded.options.tool_name) == ("cpu", "cpu")


def test_chat_options_and_hints_are_read() -> None:
    decoded = read(
        "openai-chat",
        {
            "model": "gpt-x",
            "messages": [],
            "max_tokens": 5,
            "max_completion_tokens": 9,
            "temperature": 0,
            "stop": "END",
            "stream": True,
            "stream_options": {"include_usage": True},
            "tool_choice": {"type": "function", "function": {"name": "cpu"}},
            "user": "u1",
            "prompt_cache_key": "k1",
            "tools": [{"type": "function", "function": {"name": "cpu", "description": "busy", "strict": True}}],
        },
    )
    assert (decoded.model, decoded.options.max_tokens, decoded.options.temperature) == ("gpt-x", 9, 0)
    assert (decoded.options.stop, decoded.options.stream, decoded.options.tool_name) == (("END",), True, "cpu")
    assert decoded.session_hints == {"user": "u1", "prompt_cache_key": "k1"}
    assert decoded.extra["stream_options"] == {"include_usage": True}
    assert decoded.tools[0].extra == {"strict": True}


# OpenAI Responses, as Codex and others send it.


def test_responses_a_bare_text_is_an_input() -> None:
    assert parts(read("openai-responses", {"model": "m", "input": "hi"}).entries[0]) == (Text(text="hi"),)


def test_responses_codex_developer_items_are_the_system_and_tools_of_all_kinds_are_kept() -> None:
    decoded = read(
        "openai-responses",
        {
            "model": "fake-model",
            "stream": True,
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
                {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            ],
            "tools": [
                {"type": "function", "name": "exec_command", "description": "run", "strict": False, "parameters": {}},
                {"type": "namespace", "name": "multi_agent_v1", "tools": []},
                {"type": "web_search", "external_web_access": True},
            ],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "thread-1",
            "client_metadata": {"session_id": "s1", "thread_id": "t1"},
        },
    )
    assert decoded.system == "You are Codex."
    assert [tool.name for tool in decoded.tools] == ["exec_command", "multi_agent_v1", "web_search"]
    assert [("hosted" in tool.extra) for tool in decoded.tools] == [False, True, True]
    assert decoded.session_hints == {"session_id": "s1", "thread_id": "t1", "prompt_cache_key": "thread-1"}


def test_responses_items_of_the_model_in_a_row_are_one_answer() -> None:
    decoded = read(
        "openai-responses",
        {
            "input": [
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look:"}]},
                {"type": "function_call", "call_id": "a", "name": "cpu", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "***"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "custom_tool_call_output", "call_id": "b", "output": {"ok": True}},
                {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                {"type": "message", "role": "assistant", "content": "Done."},
            ]
        },
    )
    assert kinds(decoded) == ["model_input", "model_output", "tool_results", "model_output"]
    assert parts(decoded.entries[1]) == (
        Reasoning(signature="gAAA", provider="openai", extra={"id": "rs_1"}),
        Text(text="Look:"),
        ToolRequest(call_id="a", name="cpu", arguments="{}"),
        ToolRequest(call_id="b", name="apply_patch", arguments='{"input":"***"}'),
    )
    assert [(one.name, one.text) for one in results(decoded.entries[2])] == [
        ("cpu", "1"),
        ("apply_patch", '{"ok":true}'),
    ]
    assert isinstance(parts(decoded.entries[3])[0], OtherPart)


def test_responses_reasoning_belongs_to_the_provider_that_the_caller_names() -> None:
    body = {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}]}
    decoded = DIALECTS["openai-responses"].decode_request(body, provider="azure")
    assert parts(decoded.entries[0])[0].provider == "azure"


# Anthropic, as Claude Code and others send it.


def claude_code(**fields: Any) -> dict[str, Any]:
    return {
        "model": "claude-x",
        "max_tokens": 64000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325.ff3; cc_entrypoint=sdk-cli;"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "system", "content": "Mind the gap.", "output_config": {"effort": "medium"}},
        ],
        "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s-1"}'},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": []},
        "stream": True,
        **fields,
    }


def test_anthropic_claude_codes_request_is_read() -> None:
    decoded = read("anthropic-messages", claude_code())
    assert decoded.system == "You are an agent."
    assert [loss.code for loss in decoded.losses] == [LossCode.ATTRIBUTION_LEFT_OUT]
    assert [getattr(entry, "channel", "") for entry in decoded.entries] == ["relay", SYSTEM_CHANNEL]
    assert decoded.entries[1].metadata == {"output_config": {"effort": "medium"}}
    assert parts(decoded.entries[0]) == (Text(text="hi", extra={"cache_control": {"type": "ephemeral"}}),)
    assert decoded.session_hints["session_id"] == "s-1"
    assert (decoded.options.reasoning_effort, decoded.options.max_tokens) == ("high", 64000)
    assert decoded.extra["context_management"] == {"edits": []}


def test_anthropic_the_older_grammar_of_the_user_id_is_read() -> None:
    decoded = read("anthropic-messages", claude_code(metadata={"user_id": "user_0a_account__session_s-2"}))
    assert decoded.session_hints["session_id"] == "s-2"


def test_anthropic_results_and_what_the_user_says_after_them_are_two_entries() -> None:
    decoded = read(
        "anthropic-messages",
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "sig"},
                        {"type": "redacted_thinking", "data": "xx"},
                        {"type": "tool_use", "id": "a", "name": "cpu", "input": {"core": 1}},
                        {"type": "tool_use", "id": "b", "name": "disk", "input": {"INVALID_JSON": '{"x'}},
                        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "b",
                            "is_error": True,
                            "content": [
                                {"type": "text", "text": "no"},
                                {
                                    "type": "image",
                                    "source": {"type": "base64", "media_type": "image/png", "data": PNG_64},
                                },
                            ],
                        },
                        {"type": "text", "text": "And now?"},
                    ],
                },
            ]
        },
    )
    assert kinds(decoded) == ["model_input", "model_output", "tool_results", "model_input"]
    thinking, redacted, first, second, server = parts(decoded.entries[1])
    assert thinking == Reasoning(text="hm", signature="sig", provider="anthropic")
    assert redacted == Reasoning(redacted="xx", provider="anthropic")
    assert (first.arguments, second.arguments) == ('{"core":1}', '{"x')
    assert isinstance(server, OtherPart)
    one, two = results(decoded.entries[2])
    assert [(one.name, one.status), (two.name, two.status)] == [("cpu", "success"), ("disk", "failed")]
    assert two.parts[1].sha256 == PNG_SHA


def test_anthropic_documents_are_media() -> None:
    sources: list[dict[str, Any]] = [
        {"type": "base64", "media_type": "application/pdf", "data": "eA=="},
        {"type": "text", "media_type": "text/plain", "data": "hello"},
        {"type": "url", "url": "https://example.org/a.pdf"},
    ]
    content = [{"type": "document", "source": source, "title": "a"} for source in sources]
    decoded = read("anthropic-messages", {"messages": [{"role": "user", "content": content}]})
    pdf, text, linked = parts(decoded.entries[0])
    assert (pdf.media_type, pdf.name, linked.url) == ("application/pdf", "a", "https://example.org/a.pdf")
    assert decoded.blobs[text.sha256] == b"hello"


# Gemini, as Gemini CLI and others send it.


def test_gemini_calls_and_responses_without_ids_are_paired_by_name_and_order() -> None:
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"functionCall": {"name": "cpu", "args": {"core": 1}}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "cpu", "args": {"core": 2}}},
                    {"functionCall": {"name": "cpu", "args": {"core": 2}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "cpu", "response": {"output": "1"}}},
                    {"functionResponse": {"name": "cpu", "response": {"error": "gone"}}},
                    {"functionResponse": {"name": "cpu", "response": {"load": 3}}},
                    {"text": "And now?"},
                ],
            },
        ]
    }
    decoded = read("gemini-generate", body)
    assert kinds(decoded) == ["model_input", "model_output", "tool_results", "model_input"]
    answer = decoded.entries[1]
    assert isinstance(answer, ModelOutput)
    assert answer.parts[:2] == (Reasoning(text="hm", provider="gemini"), Reasoning(signature="c2ln", provider="gemini"))
    ids = [call.call_id for call in answer.tool_requests]
    assert len(set(ids)) == 3
    assert [(one.call_id, one.status, one.text) for one in results(decoded.entries[2])] == [
        (ids[0], "success", "1"),
        (ids[1], "failed", "gone"),
        (ids[2], "success", '{"load":3}'),
    ]
    assert read("gemini-generate", body).entries == decoded.entries


def test_gemini_a_reply_and_the_request_that_repeats_it_give_the_same_ids() -> None:
    content = {"role": "model", "parts": [{"functionCall": {"name": "cpu", "args": {"core": 1}}}]}
    (event,) = DIALECTS["gemini-generate"].decode_reply({"candidates": [{"content": content}]})
    (call,) = parts(read("gemini-generate", {"contents": [content]}).entries[0])
    assert call.call_id == getattr(event, "call_id", "")


def test_gemini_media_system_tools_and_options_are_read() -> None:
    decoded = read(
        "gemini-generate",
        {
            "systemInstruction": {"role": "user", "parts": [{"text": "Be kind."}]},
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"inlineData": {"mimeType": "image/png", "data": PNG_64}},
                        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a"}},
                        {"executableCode": {"code": "1"}},
                    ],
                }
            ],
            "tools": [
                {"functionDeclarations": [{"name": "cpu", "parametersJsonSchema": {"type": "object"}}]},
                {"googleSearch": {}},
            ],
            "generationConfig": {
                "temperature": 1,
                "topP": 0.95,
                "topK": 64,
                "thinkingConfig": {"thinkingLevel": "HIGH"},
            },
        },
    )
    image, file, code = parts(decoded.entries[0])
    assert (image.sha256, file.url, decoded.system) == (PNG_SHA, "gs://a", "Be kind.")
    assert isinstance(code, OtherPart)
    assert [tool.name for tool in decoded.tools] == ["cpu", "googleSearch"]
    assert (decoded.options.temperature, decoded.options.reasoning_effort) == (1, "high")
    assert decoded.extra["generationConfig"]["topK"] == 64


def test_gemini_the_sentinel_is_no_signature() -> None:
    part = {"functionCall": {"name": "cpu", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
    decoded = read("gemini-generate", {"contents": [{"role": "model", "parts": [part]}]})
    assert [type(part) for part in parts(decoded.entries[0])] == [ToolRequest]
