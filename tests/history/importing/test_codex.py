"""Rollouts of Codex in three generations."""

from history.entries import ModelInput, ModelOutput, Reasoning, Summary, SystemInstructionSet, ToolResults
from tests.history.importing.files import (
    codex_meta,
    codex_said,
    lines,
    path_of,
    read_one,
    reader_of,
    rollout,
    said_by_notes,
    texts,
)

CALL = {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "call_1"}


def test_a_rollout_is_a_conversation_with_its_instructions_and_its_folder() -> None:
    content = lines(
        codex_meta(base_instructions={"text": "You are Codex."}),
        codex_said("developer", "<permissions instructions>ask first</permissions instructions>"),
        codex_said("user", "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"),
        rollout("turn_context", turn_id="t1", cwd="/repo", model="gpt-5.3-codex", effort="high"),
        codex_said("user", "Why does the test fail?"),
        rollout("event_msg", type="user_message", message="Why does the test fail?", images=[]),
        rollout("event_msg", type="agent_reasoning", text="thinking"),
        rollout("response_item", type="reasoning", id="rs_1", summary=[], encrypted_content="ZW5j"),
        codex_said("assistant", "A typo."),
        rollout("event_msg", type="agent_message", message="A typo."),
        rollout(
            "event_msg",
            type="token_count",
            info={
                "total_token_usage": {"input_tokens": 100},
                "last_token_usage": {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 9},
            },
        ),
    )
    found = read_one(content)
    assert reader_of(content).name == "codex"
    assert (found.client, found.source_id, found.workspace, found.model) == (
        "Codex",
        "019e-codex",
        "/repo",
        "gpt-5.3-codex",
    )
    path = path_of(found)
    assert texts(path)[-2:] == ["Why does the test fail?", "A typo."], "events tell nothing twice"
    assert isinstance(path[0], SystemInstructionSet)
    assert [entry.is_internal for entry in path] == [False, True, True, False, False]
    answer = path[-1]
    assert isinstance(answer, ModelOutput)
    assert isinstance(answer.parts[0], Reasoning)
    assert (answer.model, answer.parts[0].signature) == ("gpt-5.3-codex", "ZW5j")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.cache_read_tokens, answer.usage.output_tokens) == (100, 60, 9)


def test_the_bare_generation_is_read_like_the_wrapped_one() -> None:
    content = lines(
        {"id": "c3c4", "timestamp": "2025-08-18T01:16:13.522Z", "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        {
            "type": "message",
            "id": None,
            "role": "user",
            "content": [
                {"type": "input_text", "text": "<environment_context>\n<cwd>/old</cwd>\n</environment_context>"}
            ],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello codex"}]},
        {"record_type": "state"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "greet"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello you"}]},
    )
    found = read_one(content)
    assert reader_of(content).name == "codex"
    assert (found.source_id, found.workspace) == ("c3c4", "/old")
    assert texts(path_of(found))[1:] == ["hello codex", "hello you"]


def test_calls_and_outputs_pair_and_an_exit_code_is_a_status() -> None:
    told = '{"output":"no such file","metadata":{"exit_code":1,"duration_seconds":0.25}}'
    found = read_one(
        lines(
            codex_meta(),
            codex_said("user", "Look."),
            rollout("response_item", **CALL),
            rollout("response_item", type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="call_2"),
            rollout("response_item", type="function_call_output", call_id="call_1", output=told),
            rollout("event_msg", type="error", message="slow"),
            rollout("response_item", type="custom_tool_call_output", call_id="call_2", output="Done"),
            codex_said("assistant", "Looked."),
        )
    )
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    results = path[2]
    assert isinstance(results, ToolResults)
    assert [(one.call_id, one.name, one.status, one.text) for one in results.results] == [
        ("call_1", "shell", "failed", "no such file"),
        ("call_2", "apply_patch", "success", "Done"),
    ]
    assert results.results[0].duration == 0.25


def test_a_compaction_is_a_summary_and_its_replacement_history_is_not_history() -> None:
    again = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "said again"}]}]
    found = read_one(
        lines(
            codex_meta(),
            codex_said("user", "One."),
            codex_said("assistant", "Two."),
            rollout("compacted", message="They counted to two.", replacement_history=again),
            codex_said("user", "Three."),
        )
    )
    path = path_of(found)
    assert texts(path) == ["One.", "Two.", "They counted to two.", "Three."]
    summary = path[2]
    assert isinstance(summary, Summary)
    assert (summary.first, summary.last) == (1, 2)
    assert "context" in said_by_notes(found, "ignored")


def test_an_unreadable_compaction_lets_the_history_count_again() -> None:
    found = read_one(
        lines(codex_meta(), codex_said("user", "One."), rollout("compacted", message="", replacement_history=[]))
    )
    assert texts(path_of(found)) == ["One."] or len(found.nodes) == 2
    assert not any(isinstance(node.entry, Summary) for node in found.nodes)
    assert "used again" in said_by_notes(found, "lost")


def test_a_subagent_knows_its_parent_and_a_fork_repeats_its_beginning_once() -> None:
    spawned = {"subagent": {"thread_spawn": {"parent_thread_id": "parent-1", "depth": 1}}}
    meta = codex_meta()
    meta["payload"]["source"] = spawned
    found = read_one(lines(meta, codex_meta(), codex_said("user", "Dig.")))
    assert found.parent_id == "parent-1"
    assert "forked" in said_by_notes(found, "ignored")


def test_ids_stay_the_same_when_the_file_grows() -> None:
    begun = [codex_meta(), codex_said("user", "One."), codex_said("assistant", "Two.")]
    short, long = read_one(lines(*begun)), read_one(lines(*begun, codex_said("user", "Three.")))
    assert [node.source_id for node in long.nodes][: len(short.nodes)] == [node.source_id for node in short.nodes]
    assert len(long.nodes) == len(short.nodes) + 1


def test_a_file_with_nothing_but_events_is_read_from_them() -> None:
    found = read_one(
        lines(
            codex_meta(),
            rollout("event_msg", type="user_message", message="Hello?"),
            rollout("event_msg", type="agent_message", message="Here."),
        )
    )
    assert texts(path_of(found)) == ["Hello?", "Here."]
