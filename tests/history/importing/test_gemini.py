"""Gemini CLI: old documents, new logs, checkpoints."""

from typing import Any

from history.entries import DebugLog, ModelInput, ModelOutput, Reasoning, Summary, ToolResults
from tests.history.importing.files import document, lines, path_of, read_one, reader_of, said_by_notes, texts

RECORD = {
    "sessionId": "0c8ec5ec-0000-4000-8000-000000000001",
    "projectHash": "9f86d081",
    "startTime": "2026-09-10T18:13:00.000Z",
    "lastUpdated": "2026-09-10T18:20:00.000Z",
}


def message(name: str, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": "2026-09-10T18:13:21.000Z", "type": kind, "content": content, **fields}


def call(**fields: Any) -> dict[str, Any]:
    given = {"id": "read_file-1", "name": "read_file", "args": {"path": "a.txt"}, "status": "success"}
    return given | {"timestamp": "2026-09-10T18:13:22.000Z"} | fields


def response(text: str, name: str = "read_file-1") -> dict[str, Any]:
    return {"functionResponse": {"id": name, "name": "read_file", "response": {"output": text}}}


def test_an_old_document_is_a_conversation_with_thoughts_tokens_and_tools() -> None:
    content = document(
        RECORD
        | {
            "summary": "Reading a file",
            "directories": ["/repo"],
            "messages": [
                message("m1", "user", "What is in a.txt?"),
                message(
                    "m2",
                    "gemini",
                    "I look.",
                    thoughts=[{"subject": "Plan", "description": "Read it.", "timestamp": "2026-09-10T18:13:21Z"}],
                    tokens={"input": 1000, "output": 300, "cached": 200, "thoughts": 50, "tool": 0, "total": 1350},
                    toolCalls=[call(result=[response("hello")])],
                    model="gemini-2.5-pro",
                ),
                message("m3", "gemini", "It says hello.", model="gemini-2.5-pro"),
                message("m4", "info", "Update available."),
            ],
        }
    )
    found = read_one(content)
    assert reader_of(content).name == "gemini-cli"
    assert (found.source_id, found.title, found.workspace) == (RECORD["sessionId"], "Reading a file", "/repo")
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    _, answer, results, _ = path
    assert isinstance(answer, ModelOutput)
    assert isinstance(answer.parts[0], Reasoning)
    assert answer.parts[0].text == "**Plan**\n\nRead it."
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.reasoning_tokens) == (1000, 350, 50)
    assert isinstance(results, ToolResults)
    assert results.results[0].text == "hello"


def test_a_result_may_be_a_text_a_part_or_parts() -> None:
    for given in ("hello", {"text": "hello"}, response("hello"), [response("hello")]):
        answer = message("m2", "gemini", "", toolCalls=[call(result=given)])
        found = read_one(document(RECORD | {"messages": [message("m1", "user", "?x"), answer]}))
        results = next(node.entry for node in found.nodes if isinstance(node.entry, ToolResults))
        assert results.results[0].text == "hello", given


def test_a_result_that_stands_in_the_call_and_in_a_turn_of_its_own_is_taken_once() -> None:
    found = read_one(
        document(
            RECORD
            | {
                "messages": [
                    message("m1", "user", "Read."),
                    message("m2", "gemini", "", toolCalls=[call(result=[response("hello")])]),
                    message("m3", "user", [response("hello")]),
                    message("m4", "gemini", "Hello."),
                ]
            }
        )
    )
    assert [type(entry) for entry in path_of(found)] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    assert "repeated tool result" in said_by_notes(found, "ignored")


def test_what_was_typed_to_the_program_stays_out_of_the_context() -> None:
    told = ["/help", "?", "<session_context>today</session_context>", "<hook_context>x</hook_context>"]
    messages = [message(f"m{place}", "user", words) for place, words in enumerate(told)]
    found = read_one(document(RECORD | {"messages": [*messages, message("m9", "user", "!ls")]}))
    assert texts(path_of(found)) == ["!ls"], "a shell command is part of the conversation"
    assert sum(isinstance(node.entry, DebugLog) for node in found.nodes) == 4


def test_a_call_without_a_result_is_marked() -> None:
    found = read_one(
        document(
            RECORD | {"messages": [message("m2", "gemini", "", toolCalls=[call(status="cancelled", result=None)])]}
        )
    )
    results = path_of(found)[-1]
    assert isinstance(results, ToolResults)
    assert results.results[0].status == "interrupted"
    assert "no result" in said_by_notes(found, "repaired")


def test_a_log_writes_messages_again_and_the_last_word_counts() -> None:
    content = lines(
        RECORD | {"messages": [], "directories": ["/repo"]},
        message("m1", "user", "Read."),
        message("m2", "gemini", "", toolCalls=[call(status="executing")]),
        message("m2", "gemini", "", toolCalls=[call(result=[response("hello")])], tokens={"input": 5, "output": 2}),
        {"$set": {"summary": "A file", "lastUpdated": "2026-09-10T19:00:00.000Z"}},
        message("m3", "gemini", "Hello."),
    )
    found = read_one(content, "x.jsonl")
    assert reader_of(content).name == "gemini-cli"
    assert found.title == "A file"
    assert [type(entry) for entry in path_of(found)] == [ModelInput, ModelOutput, ToolResults, ModelOutput]


def test_a_rewind_takes_back_the_message_it_names_and_is_a_branch() -> None:
    found = read_one(
        lines(
            RECORD,
            message("a", "user", "first"),
            message("b", "gemini", "reply"),
            message("c", "user", "second"),
            message("d", "gemini", "to the second"),
            {"$rewindTo": "c"},
            message("e", "user", "another second"),
        )
    )
    assert texts(path_of(found)) == ["first", "reply", "another second"]
    assert len(found.nodes) == 5, "what was taken back is still there"


def test_a_rewind_with_nothing_after_it_says_where_the_conversation_stands() -> None:
    found = read_one(lines(RECORD, message("a", "user", "first"), message("b", "gemini", "reply"), {"$rewindTo": "b"}))
    assert texts(path_of(found)) == ["first"]


def test_a_compression_replaces_what_the_model_sees_and_not_what_was_said() -> None:
    snapshot = message("s", "user", [{"text": "<state_snapshot>they counted</state_snapshot>"}])
    found = read_one(
        lines(
            RECORD,
            message("a", "user", "one"),
            message("b", "gemini", "two"),
            {"$set": {"messages": [snapshot, message("t", "gemini", "Got it."), message("b2", "gemini", "two")]}},
            message("c", "user", "three"),
        )
    )
    path = path_of(found)
    assert texts(path) == ["one", "two", "<state_snapshot>they counted</state_snapshot>", "Got it.", "three"]
    assert isinstance(path[2], Summary)
    assert (path[2].first, path[2].last) == (1, 2)


def test_setting_fewer_messages_takes_the_rest_back() -> None:
    one = message("a", "user", "one")
    found = read_one(
        lines(
            RECORD | {"messages": []},
            {"$set": {"messages": [one]}},
            message("b", "gemini", "oops"),
            {"$set": {"messages": [one]}},
        )
    )
    assert texts(path_of(found)) == ["one"]
    assert len(found.nodes) == 2


def test_a_subagent_is_named_after_the_folder_of_its_parent() -> None:
    record = RECORD | {"kind": "subagent", "sessionId": "child-1"}
    found = read_one(lines(record, message("a", "user", "dig")), "chats/parent-1/child-1.jsonl")
    assert found.parent_id == "parent-1"


def test_checkpoints_of_both_kinds_are_read_and_grow() -> None:
    contents: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"text": "This is the Gemini CLI. We are setting up the context for our chat."}]},
        {"role": "model", "parts": [{"text": "Got it. Thanks for the context!"}]},
        {"role": "user", "parts": [{"text": "Read a.txt"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "read_file", "args": {"path": "a.txt"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "read_file", "response": {"output": "hello"}}}]},
    ]
    later = [*contents, {"role": "model", "parts": [{"text": "It says hello."}]}]
    old, new = read_one(document(contents)), read_one(document({"history": later, "authType": "oauth"}))
    assert reader_of(document(contents)).name == "gemini-checkpoint"
    assert old.source_id == new.source_id
    assert [node.source_id for node in new.nodes][:5] == [node.source_id for node in old.nodes]
    _, _, _, answer, results, _ = path_of(new)
    assert isinstance(answer, ModelOutput)
    assert isinstance(results, ToolResults)
    assert answer.tool_requests[0].call_id == results.results[0].call_id
    assert path_of(new)[0].is_internal
