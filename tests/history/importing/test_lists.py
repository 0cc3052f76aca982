"""Lists of messages: OpenAI, ShareGPT, and the session files of NPLT."""

from typing import Any

import pytest

from history.entries import ModelInput, ModelOutput, SystemInstructionSet, ToolResults, ToolsOffered
from history.formats.base import Conversation, UnreadableConversation
from tests.history.dialects.samples import in_snake_case
from tests.history.importing.files import document, lines, path_of, read_all, read_one, reader_of, said_by_notes, texts

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TUNED = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "weight": 0,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        {"role": "assistant", "content": "Sunny.", "weight": 1},
    ],
    "tools": [WEATHER],
    "parallel_tool_calls": False,
}


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (lines(TUNED, {"messages": [{"role": "user", "content": "Hi."}]}), 2),
        (document([TUNED]), 1),
        (document(TUNED), 1),
        (document(TUNED["messages"]), 1),
    ],
    ids=["lines", "a list", "one object", "bare messages"],
)
def test_openai_messages_are_read_however_they_are_put(content: bytes, count: int) -> None:
    found = read_all(content)
    assert reader_of(content).name == "requests"
    assert len(found) == count
    assert isinstance(found[0], Conversation)
    assert texts(path_of(found[0]))[-3:] == ["", "sun", "Sunny."]


ANTHROPIC: dict[str, Any] = {
    "model": "claude-x",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sun"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
    ],
}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "sun"}}}]},
        {"role": "model", "parts": [{"text": "Sunny."}]},
    ],
}
RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
    ],
}


@pytest.mark.parametrize(
    ("request_", "client"),
    [(ANTHROPIC, "Anthropic"), (GEMINI, "Gemini"), (in_snake_case(GEMINI), "Gemini"), (RESPONSES, "OpenAI")],
    ids=lambda one: str(one)[:9],
)
def test_requests_of_other_vendors_are_read_in_their_own_language(request_: dict[str, Any], client: str) -> None:
    found = read_one(document(request_))
    assert found.client == client
    path = path_of(found)
    assert [type(entry) for entry in path] == [SystemInstructionSet, ModelInput, ModelOutput, ToolResults, ModelOutput]
    _, _, call, results, _ = path
    assert isinstance(call, ModelOutput)
    assert isinstance(results, ToolResults)
    assert results.results[0].call_id == call.tool_requests[0].call_id
    assert texts(path)[-2:] == ["sun", "Sunny."]


def test_instructions_and_tools_hold_from_the_start_and_weights_are_named_as_lost() -> None:
    found = read_one(lines(TUNED))
    path = path_of(found)
    kinds = [SystemInstructionSet, ToolsOffered, ModelInput, ModelOutput, ToolResults, ModelOutput]
    assert [type(entry) for entry in path] == kinds
    assert "weight" in said_by_notes(found, "lost")


def test_the_same_line_has_the_same_id_and_another_one_another() -> None:
    other = {"messages": [*TUNED["messages"][:4], {"role": "assistant", "content": "Rainy."}]}  # type: ignore[index]
    first, second, third = (one for one in read_all(lines(TUNED, other, TUNED)) if isinstance(one, Conversation))
    assert first.source_id == third.source_id != second.source_id


def test_a_line_that_is_no_conversation_is_named() -> None:
    found = read_all(lines(TUNED) + b"{broken\n" + lines({"messages": "none"}))
    assert [type(one) for one in found] == [Conversation, UnreadableConversation, Conversation]
    assert isinstance(found[1], UnreadableConversation)
    assert found[1].title == "line 2"


def test_sharegpt_knows_speakers_by_many_names() -> None:
    names = ["human", "gpt", "user", "assistant", "human", "chatgpt", "human", "bing"]
    turns = [{"from": name, "value": str(place)} for place, name in enumerate(names)]
    content = lines({"id": "x1", "conversations": [{"from": "system", "value": "Be nice."}, *turns]})
    found = read_one(content)
    assert reader_of(content).name == "sharegpt"
    kinds = [SystemInstructionSet, *([ModelInput, ModelOutput] * 4)]
    assert [type(entry) for entry in path_of(found)] == kinds


def test_sharegpt_calls_are_json_in_a_text() -> None:
    item: dict[str, Any] = {
        "conversations": [
            {"from": "human", "value": "Weather?"},
            {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Rome"}}'},
            {"from": "observation", "value": "sun"},
            {"from": "gpt", "value": "Sunny."},
            {"from": "function_call", "value": "weather(Rome)"},
        ],
        "system": "Be brief.",
        "tools": '[{"name": "weather", "description": "looks out", "parameters": {}}]',
    }
    found = read_one(document([item]))
    path = path_of(found)
    assert [type(entry) for entry in path][2:6] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    call, results = path[3], path[4]
    assert isinstance(call, ModelOutput)
    assert isinstance(results, ToolResults)
    assert call.tool_requests[0].arguments == '{"city":"Rome"}'
    assert results.results[0].call_id == call.tool_requests[0].call_id
    assert path[1].text == "weather"
    assert "not valid JSON" in said_by_notes(found, "repaired")


def test_a_call_in_tags_is_read_and_a_long_text_takes_no_time() -> None:
    tagged = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    endless = "<tool_call>" + " " * 1_000_000
    turns = [{"from": "function_call", "value": value} for value in (tagged, endless)]
    found = read_one(document([{"conversations": turns}]))
    calls = [entry.tool_requests for entry in path_of(found) if isinstance(entry, ModelOutput)]
    assert [[call.name for call in made] for made in calls] == [["weather"], []]


def test_a_session_file_of_nplt_keeps_every_field() -> None:
    record = {
        "session_id": "0f3c-nplt",
        "messages": [
            {
                "role": "system",
                "content": "Be brief.",
                "timestamp": "2025-12-31T10:00:00",
                "tool_calls": [],
                "metadata": {},
            },
            {
                "role": "user",
                "content": "CPU 占用？",
                "timestamp": "2025-12-31T10:00:01",
                "tool_calls": [],
                "metadata": {"lang": "zh"},
            },
            {
                "role": "assistant",
                "content": "3 %",
                "timestamp": "2025-12-31T10:00:03",
                "tool_calls": [
                    {
                        "tool_name": "sys_monitor",
                        "arguments": {"metric": "cpu"},
                        "result": "3 %",
                        "status": "success",
                        "duration": 0.5,
                        "timestamp": "2025-12-31T10:00:02",
                    }
                ],
                "metadata": {},
            },
        ],
        "created_at": "2025-12-31T10:00:00",
        "updated_at": "2025-12-31T10:00:03",
    }
    content = document(record)
    found = read_one(content)
    assert reader_of(content).name == "nplt"
    assert found.source_id == "0f3c-nplt"
    path = path_of(found)
    assert [type(entry) for entry in path] == [SystemInstructionSet, ModelInput, ModelOutput, ToolResults, ModelOutput]
    assert dict(path[1].metadata) == {"lang": "zh"}
    results = path[3]
    assert isinstance(results, ToolResults)
    assert (results.results[0].duration, results.results[0].status) == (0.5, "success")
    assert results.results[0].started_at is not None
    assert results.results[0].started_at.isoformat() == "2025-12-31T10:00:02+00:00"
