"""Transcripts of Claude Code, with everything that is wrong with them in the wild."""

from history.entries import DebugLog, Gap, ModelInput, ModelOutput, Summary, ToolResults
from history.formats.base import Conversation
from tests.history.importing.files import (
    claude_code,
    lines,
    path_of,
    read_all,
    read_one,
    reader_of,
    said_by_notes,
    text,
    texts,
    tool_result,
    tool_use,
)


def test_a_transcript_is_recognised_and_carries_who_where_and_when() -> None:
    content = lines(
        {"type": "summary", "summary": "Fix the build", "leafUuid": "a1"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        claude_code("user", "u1", None, "The build is red."),
        claude_code("assistant", "a1", "u1", [text("Fixed.")]),
    )
    found = read_one(content)
    assert reader_of(content).name == "claude-code"
    assert (found.client, found.title, found.workspace) == ("Claude Code", "Fix the build", "/work/site")
    assert texts(path_of(found)) == ["The build is red.", "Fixed."]
    answer = path_of(found)[1]
    assert isinstance(answer, ModelOutput)
    assert (answer.model, answer.provider, answer.end_reason) == ("claude-opus-4-5", "anthropic", "stop")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.cache_read_tokens) == (100, 90)
    assert answer.at.isoformat() == "2026-03-01T10:00:00+00:00"


def test_lines_with_one_message_id_are_one_answer_whose_tokens_count_once() -> None:
    usage = {"input_tokens": 10, "output_tokens": 7}
    one = {"message_id": "msg_1", "usage": usage}
    found = read_one(
        lines(
            claude_code("user", "u1", None, "List the files."),
            claude_code("assistant", "a1", "u1", [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}], **one),
            claude_code("assistant", "a2", "a1", [text("I look.")], **one),
            claude_code("assistant", "a3", "a2", [tool_use("t1", command="ls")], **one),
            claude_code("assistant", "a4", "a3", [tool_use("t2", command="pwd")], **one),
            claude_code("user", "r1", "a3", [tool_result("t1", "README")]),
            claude_code("user", "r2", "a4", [tool_result("t2", "/work")]),
            claude_code("assistant", "a5", "r2", [text("There is a README.")]),
        )
    )
    kinds = [type(entry) for entry in path_of(found)]
    assert kinds == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    assert len(found.nodes) == 4, "no line became a branch"
    _, answer, results, _ = path_of(found)
    assert isinstance(answer, ModelOutput)
    assert isinstance(results, ToolResults)
    assert [call.call_id for call in answer.tool_requests] == ["t1", "t2"]
    assert answer.usage is not None
    assert answer.usage.output_tokens == 7
    assert [(result.call_id, result.name, result.text) for result in results.results] == [
        ("t1", "Bash", "README"),
        ("t2", "Bash", "/work"),
    ]


def test_a_dangling_parent_loses_nothing_and_the_gap_is_seen() -> None:
    found = read_one(
        lines(
            claude_code("user", "u1", None, "One."),
            claude_code("assistant", "a1", "u1", [text("Two.")]),
            claude_code("user", "u2", "gone", "Three."),
            claude_code("assistant", "a2", "u2", [text("Four.")]),
        )
    )
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, ModelOutput, Gap, ModelInput, ModelOutput]
    assert "missing from the file" in said_by_notes(found, "repaired")


def test_a_compaction_joins_the_islands_and_its_summary_stands_for_what_came_before() -> None:
    boundary = claude_code("system", "c1", None, subtype="compact_boundary", logicalParentUuid="a1")
    found = read_one(
        lines(
            claude_code("user", "u1", None, "One."),
            claude_code("assistant", "a1", "u1", [text("Two.")]),
            boundary,
            claude_code("user", "s1", "c1", "This session is being continued: they counted.", isCompactSummary=True),
            claude_code("user", "u2", "s1", "Three."),
        )
    )
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, ModelOutput, Summary, ModelInput]
    summary = path[2]
    assert isinstance(summary, Summary)
    assert (summary.first, summary.last) == (1, 2)


def test_a_compaction_whose_logical_parent_is_in_no_file_is_joined_by_a_gap() -> None:
    found = read_one(
        lines(
            claude_code("user", "u1", None, "One."),
            claude_code("system", "c1", None, subtype="compact_boundary", logicalParentUuid="deleted"),
            claude_code("user", "s1", "c1", "This session is being continued.", isCompactSummary=True),
            claude_code("assistant", "a1", "s1", [text("Two.")]),
        )
    )
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, Gap, Summary, ModelOutput]
    assert isinstance(path[2], Summary)
    assert path[2].last == 2, "the summary stands for the gap, too"


def test_messages_that_were_kept_through_a_compaction_are_not_summed_up() -> None:
    kept = {"preservedMessages": {"uuids": ["u2", "a2"]}}
    boundary = claude_code(
        "system", "c1", None, subtype="compact_boundary", logicalParentUuid="a2", compactMetadata=kept
    )
    found = read_one(
        lines(
            claude_code("user", "u1", None, "One."),
            claude_code("assistant", "a1", "u1", [text("Two.")]),
            claude_code("user", "u2", "a1", "Three."),
            claude_code("assistant", "a2", "u2", [text("Four.")]),
            boundary,
            claude_code("user", "s1", "c1", "This session is being continued.", isCompactSummary=True),
        )
    )
    summary = path_of(found)[-1]
    assert isinstance(summary, Summary)
    assert (summary.first, summary.last) == (1, 2)


def test_an_edited_message_is_a_branch_and_the_newest_is_where_it_stands() -> None:
    found = read_one(
        lines(
            claude_code("user", "u1", None, "Say hello."),
            claude_code("assistant", "a1", "u1", [text("Hello.")]),
            claude_code("user", "u2", "a1", "In French."),
            claude_code("assistant", "a2", "u2", [text("Bonjour.")]),
            claude_code("user", "u3", "a1", "In Italian."),
            claude_code("assistant", "a3", "u3", [text("Ciao.")]),
        )
    )
    assert texts(path_of(found)) == ["Say hello.", "Hello.", "In Italian.", "Ciao."]
    assert len(found.nodes) == 6


def test_records_that_say_nothing_may_still_link_what_was_said() -> None:
    found = read_one(
        lines(
            claude_code("user", "u1", None, "One."),
            claude_code("progress", "p1", "u1", data={"type": "hook_progress"}),
            claude_code("attachment", "x1", "p1", attachment={"type": "skill_listing"}),
            claude_code("assistant", "a1", "x1", [text("Two.")]),
            claude_code("system", "y1", "a1", subtype="stop_hook_summary") | {"content": "1 hook ran."},
            claude_code("user", "u2", "y1", "Three."),
        )
    )
    assert texts(path_of(found)) == ["One.", "Two.", "Three."]
    assert [entry.message for node in found.nodes if isinstance(entry := node.entry, DebugLog)] == ["1 hook ran."]
    assert not said_by_notes(found, "repaired")


def test_what_was_said_while_the_model_worked_is_part_of_the_conversation() -> None:
    queued = {"type": "queued_command", "commandMode": "prompt", "prompt": [text("Also gzip it.")]}
    found = read_one(
        lines(
            claude_code("user", "u1", None, "Export."),
            claude_code("assistant", "a1", "u1", [text("Working.")]),
            claude_code("attachment", "q1", "a1", attachment=queued),
            claude_code("assistant", "a2", "q1", [text("Gzipped.")]),
        )
    )
    assert texts(path_of(found)) == ["Export.", "Working.", "Also gzip it.", "Gzipped."]


def test_noise_is_internal_and_what_a_person_said_is_not() -> None:
    found = read_one(
        lines(
            claude_code("user", "u1", None, "<command-name>/clear</command-name>"),
            claude_code("user", "u2", "u1", "<local-command-stdout>cleared</local-command-stdout>"),
            claude_code("user", "u3", "u2", "Caveat: …", isMeta=True),
            claude_code("user", "u4", "u3", "<system-reminder>be brief</system-reminder>\nWhat is 2 + 2?"),
            claude_code("assistant", "a1", "u4", [text("4")]),
        )
    )
    assert [entry.is_internal for entry in path_of(found)] == [True, True, True, False, False]


def test_subagents_are_sessions_of_their_own() -> None:
    found = read_all(
        lines(
            claude_code("user", "u1", None, "Look into it."),
            claude_code("assistant", "a1", "u1", [tool_use("t1", "Task", prompt="dig")]),
            claude_code("user", "k1", None, "dig", isSidechain=True, agentId="b8c9"),
            claude_code("assistant", "k2", "k1", [text("Found gold.")], isSidechain=True, agentId="b8c9"),
            claude_code("user", "r1", "a1", [tool_result("t1", "Found gold.")], toolUseResult={"agentId": "b8c9"}),
            claude_code("assistant", "a2", "r1", [text("Gold.")]),
        )
    )
    main, child = found
    assert isinstance(main, Conversation)
    assert isinstance(child, Conversation)
    assert [type(entry) for entry in path_of(main)] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    assert texts(path_of(child)) == ["dig", "Found gold."]
    assert (child.parent_id, child.parent_call) == (main.source_id, "t1")
    assert child.source_id == f"{main.source_id}/b8c9"


def test_side_chains_of_old_versions_are_told_apart_by_where_they_begin() -> None:
    found = read_all(
        lines(
            claude_code("user", "u1", None, "Look into it."),
            claude_code("user", "k1", None, "dig here", isSidechain=True),
            claude_code("assistant", "k2", "k1", [text("Sand.")], isSidechain=True),
            claude_code("user", "l1", None, "dig there", isSidechain=True),
            claude_code("assistant", "l2", "l1", [text("Gold.")], isSidechain=True),
        )
    )
    assert [texts(path_of(one)) for one in found if isinstance(one, Conversation)] == [
        ["Look into it."],
        ["dig here", "Sand."],
        ["dig there", "Gold."],
    ]


def test_a_failed_call_is_a_failed_answer_and_a_synthetic_one_is_skipped() -> None:
    error = claude_code("assistant", "a1", "u1", [text("API Error: 529")], isApiErrorMessage=True)
    error["message"]["model"] = "<synthetic>"
    found = read_one(lines(claude_code("user", "u1", None, "Hi."), error))
    answer = path_of(found)[-1]
    assert isinstance(answer, ModelOutput)
    assert (answer.status, answer.error, answer.model, answer.usage) == ("failed", "API Error: 529", "", None)


def test_broken_lines_and_repeated_results_do_not_hurt() -> None:
    content = lines(
        claude_code("user", "u1", None, "Run it."),
        claude_code("assistant", "a1", "u1", [tool_use("t1", command="make")]),
        claude_code("user", "r1", "a1", [tool_result("t1", "ok")]),
        claude_code("user", "r2", "a1", [tool_result("t1", "ok")]),
    )
    found = read_one(b"rubbish \xff\n" + content + b'{"type": "user", "uuid": "cut', "x.jsonl")
    assert [type(entry) for entry in path_of(found)] == [ModelInput, ModelOutput, ToolResults]
    assert "left out. (× 2)" in said_by_notes(found, "repaired")
    assert "repeated tool result" in said_by_notes(found, "ignored")


def test_the_file_name_says_which_of_several_sessions_it_is() -> None:
    old = claude_code("user", "u1", None, "Before.", sessionId="old")
    new = claude_code("user", "u2", "u1", "After.", sessionId="new")
    assert read_one(lines(old, new), "-work-site/old.jsonl").source_id == "old"
    assert read_one(lines(old, new), "copy.jsonl").source_id == "new"
