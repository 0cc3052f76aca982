"""What a model is told: system, notebook, summaries, limits, live screen, and what never reaches it."""

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from mypy import api as mypy

from history.context.messages import (
    SUMMARY_ENDS,
    active_summaries,
    dropped_entry,
    is_task_finished,
    summarised_ranges,
    to_context,
)
from history.context.rendering import VIEWS, environment_text, reaches_far_enough, render_context
from history.context.repair import InvalidContextError, curate, is_valid, validate
from history.context.values import NO_NOTEBOOK, ContextEntry, ContextOptions, RemarkCode, Role, Snapshot
from history.entries import (
    DebugLog,
    Entry,
    Gap,
    MaskedResult,
    ModelInput,
    ModelOutput,
    Node,
    NotebookSet,
    OtherPart,
    Reasoning,
    Retracted,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
)
from tests.factories import context_to_bytes, context_to_json

pytestmark = pytest.mark.no_database

UNLIMITED = ContextOptions(max_turns=None)


def user_message(text: str, **fields: Any) -> ModelInput:
    return ModelInput(parts=(Text(text=text),), **fields)


def answered(text: str, *calls: str, **fields: Any) -> ModelOutput:
    requests = (ToolRequest(call_id=call, name="read") for call in calls)
    return ModelOutput(parts=(Text(text=text), *requests), **fields)


def results_of(*calls: str, text: str = "found") -> ToolResults:
    return ToolResults(results=tuple(ToolResult(call_id=c, name="read", parts=(Text(text=text),)) for c in calls))


def path(*entries: Entry) -> tuple[Node, ...]:
    return tuple(Node(seq=seq, parent=seq - 1, entry=entry) for seq, entry in enumerate(entries, 1))


def snapshot(*entries: Entry, **fields: Any) -> Snapshot:
    return Snapshot(session_id="s1", version=len(entries), nodes=path(*entries), **fields)


def contents(*entries: Entry, options: ContextOptions = UNLIMITED, **fields: Any) -> list[str]:
    return [entry.content for entry in render_context(snapshot(*entries, **fields), options).entries]


def turns(count: int) -> list[Entry]:
    return [entry for n in range(1, count + 1) for entry in (user_message(f"question {n}"), answered(f"answer {n}"))]


class TestWhatIsTold:
    def test_inputs_answers_and_results_keep_their_order_and_get_neutral_roles(self) -> None:
        context = render_context(
            snapshot(user_message("hi"), answered("let me see", "c1"), results_of("c1")), UNLIMITED
        )
        assert [entry.role for entry in context.entries] == [Role.MODEL_INPUT, Role.MODEL_OUTPUT, Role.TOOL_RESULT]
        assert [entry.origin for entry in context.entries] == [(1,), (2,), (3,)]
        assert {role.value for role in Role} == {"system", "model_input", "model_output", "tool_result"}

    def test_an_instruction_in_the_middle_is_a_system_message_and_begins_no_turn(self) -> None:
        entries = (user_message("hi"), answered("hello"), user_message("Be brief.", channel="system"), answered("ok"))
        context = render_context(snapshot(*entries), ContextOptions(max_turns=1))
        assert [entry.role for entry in context.entries][2] is Role.SYSTEM
        assert len(context.entries) == 4

    def test_internal_entries_are_told_and_begin_no_turn(self) -> None:
        entries = (user_message("hi"), answered("hello"), user_message("go on", is_internal=True), answered("more"))
        assert contents(*entries, options=ContextOptions(max_turns=1)) == ["hi", "hello", "go on", "more"]

    def test_state_and_debug_entries_are_not_told(self) -> None:
        entries = (
            SystemInstructionSet(instruction="x"),
            NotebookSet(content="y"),
            DebugLog(message="z"),
            user_message("hi"),
        )
        assert contents(*entries) == ["hi"]

    def test_the_error_of_a_failed_answer_is_not_told(self) -> None:
        entries = (
            user_message("hi"),
            answered("half an ans", status="failed", error="HTTP 529"),
            user_message("again"),
        )
        assert contents(*entries) == ["hi", "half an ans", "again"]

    def test_an_empty_failed_answer_is_left_out_and_reported(self) -> None:
        failed = ModelOutput(status="failed", error="HTTP 529")
        context = render_context(snapshot(user_message("hi"), failed, user_message("again")), UNLIMITED)
        assert [entry.content for entry in context.entries] == ["hi", "again"]
        assert [(remark.code, remark.seq) for remark in context.report.remarks] == [
            (RemarkCode.FAILED_ANSWER_LEFT_OUT, 2)
        ]

    def test_tools_and_instruction_come_along(self) -> None:
        tools = (ToolDefinition(name="read", description="Read a file."),)
        context = render_context(snapshot(user_message("hi"), system_instruction="Be kind.", tools=tools), UNLIMITED)
        assert (context.system, context.tools) == ("Be kind.", tools)

    def test_the_notebook_is_merged_when_it_has_notes(self) -> None:
        written = snapshot(user_message("hi"), system_instruction="Be kind.", notebook="Ada likes tea.")
        assert render_context(written, UNLIMITED).system == "Be kind.\n\n[Memory Notebook]\nAda likes tea."
        assert render_context(replace(written, notebook=NO_NOTEBOOK), UNLIMITED).system == "Be kind."
        assert render_context(written, replace(UNLIMITED, inject_notebook=False)).system == "Be kind."

    def test_the_environment_is_the_first_message_and_has_no_origin(self) -> None:
        text = environment_text(["Today is Monday.", "My operating system is: linux"])
        entries = render_context(snapshot(user_message("hi")), replace(UNLIMITED, environment=text)).entries
        assert entries[0].role is Role.MODEL_INPUT
        assert entries[0].origin == ()
        assert entries[0].content.split("\n\n") == [
            "Today is Monday.",
            "My operating system is: linux",
            "Reminder: Do not return an empty response when a tool call is required.",
            "My setup is complete. I will provide my first command in the next turn.",
        ]

    def test_a_gap_is_visible_and_gaps_in_a_row_are_one(self) -> None:
        gone = [dropped_entry(kind, at=user_message("").at) for kind in ("model_input", "model_output")]
        assert contents(*gone, user_message("hi")) == ["[2 entries are missing here: dropped by policy]", "hi"]
        assert (
            contents(Gap(reason="line 7 is broken"), user_message("hi"))[0]
            == "[An entry is missing here: line 7 is broken]"
        )


class TestLiveScreen:
    SCREEN = replace(UNLIMITED, live_screen="12:00, 3 windows")

    def test_only_the_latest_input_or_result_carries_it(self) -> None:
        entries = render_context(
            snapshot(user_message("hi"), answered("so", "c1"), results_of("c1")), self.SCREEN
        ).entries
        assert [entry.live_screen for entry in entries] == [None, None, "12:00, 3 windows"]
        entries = render_context(snapshot(user_message("hi"), answered("hello")), self.SCREEN).entries
        assert [entry.live_screen for entry in entries] == ["12:00, 3 windows", None]

    def test_nothing_to_show_it_with_is_reported(self) -> None:
        assert render_context(snapshot(), self.SCREEN).report.codes == (RemarkCode.LIVE_SCREEN_LEFT_OUT,)

    def test_the_stored_entry_is_not_touched(self) -> None:
        taken = snapshot(user_message("hi"))
        before = repr(taken)
        render_context(taken, self.SCREEN)
        assert repr(taken) == before

    def test_a_decorated_message_is_no_entry(self) -> None:
        decorated = to_context(user_message("hi"), seq=1).with_live_screen("12:00")
        assert not issubclass(type(decorated), Entry)
        assert decorated.origin == (1,)


def bare(text: str) -> str:
    """A summary without what says that it is one."""
    return text.removesuffix(f"\n\n{SUMMARY_ENDS}").splitlines()[-1]


class TestSummaries:
    def test_a_summary_stands_where_the_first_entry_stood(self) -> None:
        entries = (*turns(3), Summary(first=1, last=4, summary="Two questions were answered."), user_message("next"))
        assert [*map(bare, contents(*entries))] == ["Two questions were answered.", "question 3", "answer 3", "next"]

    def test_a_retracted_summary_does_not_count(self) -> None:
        entries = (*turns(2), Summary(first=1, last=2, summary="short"), Retracted(seq=5), user_message("next"))
        assert contents(*entries) == ["question 1", "answer 1", "question 2", "answer 2", "next"]
        assert active_summaries(path(*entries)) == ()

    def test_of_two_summaries_for_one_entry_the_newer_counts(self) -> None:
        old, new = Summary(first=1, last=2, summary="old"), Summary(first=1, last=4, summary="new")
        texts = contents(*turns(2), old, new, user_message("next"))
        assert [*map(bare, texts)] == ["new", "next"]

    def test_what_only_the_older_one_stands_for_keeps_it(self) -> None:
        old, new = Summary(first=1, last=4, summary="old"), Summary(first=3, last=6, summary="new")
        texts = contents(*turns(3), old, new, user_message("next"))
        assert [*map(bare, texts)] == ["old", "new", "next"]

    def test_a_summary_is_one_turn(self) -> None:
        entries = (*turns(3), Summary(first=1, last=4, summary="short"), user_message("next"))
        texts = contents(*entries, options=ContextOptions(max_turns=3))
        assert bare(texts[0]) == "short"
        assert contents(*entries, options=ContextOptions(max_turns=2)) == ["question 3", "answer 3", "next"]

    def test_a_masked_result_says_where_the_full_text_is(self) -> None:
        masks = (MaskedResult(seq=3, index=1),)
        entries = (
            user_message("hi"),
            answered("so", "c1", "c2"),
            results_of("c1", "c2"),
            Summary(masks=masks),
            user_message("next"),
        )
        results = render_context(snapshot(*entries), UNLIMITED).entries[2].results
        assert results[0].text == "found"
        assert "session s1, entry 3, result 1" in results[1].text

    def test_the_ranges_to_skip_are_merged(self) -> None:
        first, second = Summary(first=1, last=3, summary="a"), Summary(first=3, last=5, summary="b")
        assert summarised_ranges(path(*turns(5), first, second)) == ((1, 5),)

    def test_an_entry_between_two_summaries_is_told(self) -> None:
        first, second = Summary(first=1, last=2, summary="a"), Summary(first=4, last=5, summary="b")
        entries = (*turns(3), first, second)
        assert summarised_ranges(path(*entries)) == ((1, 2), (4, 5))
        assert [*map(bare, contents(*entries))] == ["a", "question 2", "b", "answer 3"]

    def test_a_summary_names_itself_and_its_entries_and_is_not_speech(self) -> None:
        text = contents(*turns(3), Summary(first=1, last=4, summary="short"))[0]
        assert text.startswith("[Summary of entries 1 to 4 of session s1, written by a model")
        assert "never an instruction" in text
        assert text.endswith(f"short\n\n{SUMMARY_ENDS}")

    def test_a_summary_without_a_text_only_says_what_is_left_out(self) -> None:
        text = contents(*turns(3), Summary(first=1, last=4))[0]
        assert text == "[Entries 1 to 4 of session s1 were left out here to save space. They are still stored.]"

    def test_a_summary_of_steps_belongs_to_the_turn_in_which_they_were_taken(self) -> None:
        steps = [entry for n in range(4) for entry in (answered(f"step {n}", f"c{n}"), results_of(f"c{n}"))]
        inside = Summary(first=4, last=7, summary="short", within_turn=True)
        texts = contents(*turns(1), user_message("do it"), *steps, inside, options=ContextOptions(max_turns=1))
        assert [*map(bare, texts)] == ["do it", "short", "step 2", "found", "step 3", "found"]

    def test_a_summary_never_stands_for_what_came_after_it(self) -> None:
        assert contents(*turns(1), Summary(first=1, last=99, summary="short"), user_message("next"))[-1] == "next"


class TestLimits:
    def test_five_turns_are_the_default(self) -> None:
        context = render_context(snapshot(*turns(8)), ContextOptions())
        assert context.entries[0].content == "question 4"
        assert context.report.codes == (RemarkCode.LIMIT_TURNS,)

    def test_tool_rounds_belong_to_their_turn(self) -> None:
        entries = (
            *turns(1),
            user_message("do it"),
            answered("a", "c1"),
            results_of("c1"),
            answered("b", "c2"),
            results_of("c2"),
        )
        assert contents(*entries, options=ContextOptions(max_turns=1))[0] == "do it"

    def test_an_input_that_came_while_calls_were_open_belongs_to_their_turn(self) -> None:
        entries = (
            *turns(1),
            user_message("do it"),
            answered("a", "c1"),
            user_message("and this"),
            results_of("c1"),
            answered("done"),
        )
        texts = contents(*entries, options=ContextOptions(max_turns=1))
        assert texts == ["do it", "a", "found", "and this", "done"]

    def test_messages_are_cut_at_turns_oldest_first(self) -> None:
        options = ContextOptions(max_turns=None, max_messages=5)
        context = render_context(snapshot(*turns(8)), options)
        assert context.entries[0].content == "question 7"
        assert context.report.codes == (RemarkCode.LIMIT_MESSAGES,)

    def test_a_long_turn_keeps_its_input_and_its_last_steps(self) -> None:
        rounds = [entry for n in range(9) for entry in (answered(f"step {n}", f"c{n}"), results_of(f"c{n}"))]
        context = render_context(snapshot(user_message("do it"), *rounds), ContextOptions(max_messages=6))
        assert [entry.content for entry in context.entries] == ["do it", "step 7", "found", "step 8", "found"]
        assert RemarkCode.TURN_CUT in context.report.codes

    def test_a_call_and_its_results_are_kept_even_over_the_limit(self) -> None:
        context = render_context(
            snapshot(user_message("do it"), answered("a", "c1"), results_of("c1")), ContextOptions(max_messages=1)
        )
        assert len(context.entries) == 3
        assert RemarkCode.OVER_MESSAGES in context.report.codes

    def test_tokens_count_everything_that_is_sent(self) -> None:
        tools = (ToolDefinition(name="read", description="Read a file. " * 40),)
        long = snapshot(*turns(8), system_instruction="Be kind. " * 20, tools=tools)
        whole = render_context(long, UNLIMITED)
        cut = render_context(long, ContextOptions(max_turns=None, max_tokens=whole.tokens - 1))
        assert cut.tokens < whole.tokens
        assert len(cut.entries) == len(whole.entries) - 2
        assert cut.report.codes == (RemarkCode.LIMIT_TOKENS,)

    def test_the_newest_turn_survives_a_budget_that_it_exceeds(self) -> None:
        context = render_context(snapshot(*turns(2), user_message("long " * 500)), ContextOptions(max_tokens=50))
        assert len(context.entries) == 1
        assert context.report.codes[0] == RemarkCode.OVER_TOKENS

    def test_calibration_changes_what_fits(self) -> None:
        taken = snapshot(*turns(8))
        budget = render_context(taken, UNLIMITED).tokens
        options = ContextOptions(max_turns=None, max_tokens=budget)
        assert len(render_context(taken, options).entries) == 16
        assert len(render_context(taken, replace(options, calibration=1.5)).entries) < 16

    def test_a_limit_below_one_is_refused_with_advice(self) -> None:
        with pytest.raises(ValueError, match="max_turns is 0: give 1 or more, or None"):
            ContextOptions(max_turns=0)

    def test_options_survive_json(self) -> None:
        options = ContextOptions(max_tokens=900, live_screen="now", calibration=1.25)
        assert ContextOptions.from_json(json.loads(json.dumps(options.to_json()))) == options

    def test_a_loader_may_stop_after_the_turns_that_count(self) -> None:
        nodes = path(*turns(50))
        newest = Snapshot(session_id="s1", version=100, nodes=nodes[-11:], loaded_from=90)
        too_few = Snapshot(session_id="s1", version=100, nodes=nodes[-9:], loaded_from=92)
        assert reaches_far_enough(newest, ContextOptions())
        assert not reaches_far_enough(too_few, ContextOptions())
        assert not reaches_far_enough(newest, UNLIMITED)

    def test_a_loader_reads_on_where_an_input_may_have_come_in_the_middle_of_a_turn(self) -> None:
        entries = (
            user_message("do it"),
            answered("a", "c1"),
            user_message("and this"),
            results_of("c1"),
            answered("done"),
        )
        cut = Snapshot(session_id="s1", version=5, nodes=path(*entries)[2:], loaded_from=3)
        assert not reaches_far_enough(cut, ContextOptions(max_turns=1))

    def test_a_summary_of_what_lies_before_the_part_that_was_read_is_no_turn_of_it(self) -> None:
        nodes = path(*turns(2), Summary(first=1, last=2, summary="short"), *turns(3))
        cut = Snapshot(session_id="s1", version=11, nodes=(nodes[4], *nodes[-3:]), loaded_from=9)
        assert not reaches_far_enough(cut, ContextOptions(max_turns=2))
        assert reaches_far_enough(cut, ContextOptions(max_turns=1))

    def test_an_open_call_that_a_new_turn_follows_was_skipped(self) -> None:
        context = render_context(
            snapshot(user_message("do it"), answered("a", "c1"), user_message("never mind")), UNLIMITED
        )
        assert [result.status for result in context.entries[2].results] == ["skipped"]


class TestSameBytes:
    def test_same_snapshot_and_options_give_the_same_bytes(self) -> None:
        taken = snapshot(*turns(3), answered("x", "", "c", "c"), user_message("\ud800 \x00 你好"))
        options = ContextOptions(live_screen="12:00", environment="here")
        assert context_to_bytes(render_context(taken, options)) == context_to_bytes(render_context(taken, options))

    def test_the_json_holds_all_that_is_sent_and_the_report(self) -> None:
        written = context_to_json(render_context(snapshot(user_message("hi"), answered("so", "c1")), UNLIMITED))
        assert written["entries"][1]["parts"][1] == {"type": "tool_request", "call_id": "c1", "name": "read"}
        assert written["entries"][2]["results"][0]["status"] == "interrupted"
        assert written["report"][0]["code"] == "result_supplied"

    def test_a_snapshot_cannot_be_changed(self) -> None:
        entry = user_message("hi", metadata={"deep": {"list": [1]}})
        taken = snapshot(entry)
        with pytest.raises(FrozenInstanceError):
            taken.version = 2  # type: ignore[misc]
        with pytest.raises(TypeError):
            taken.nodes[0].entry.metadata["deep"]["list"] = 2
        assert isinstance(Snapshot(session_id="", version=0, nodes=[]).nodes, tuple)  # type: ignore[arg-type]


class TestValidationAndCuration:
    HOLLOW = (
        ModelOutput(parts=()),
        ModelOutput(parts=(Text(text=""),)),
        ModelOutput(parts=(Text(text="fine"), OtherPart(data={}))),
    )

    def test_no_history_gives_no_context(self) -> None:
        assert contents() == []
        assert curate(()) == ()

    @pytest.mark.parametrize("hollow", HOLLOW)
    def test_one_invalid_answer_takes_the_whole_run_with_it(self, hollow: ModelOutput) -> None:
        context = render_context(
            snapshot(user_message("hi"), answered("one"), hollow, answered("two"), user_message("ok")), UNLIMITED
        )
        assert [entry.content for entry in context.entries] == ["hi", "ok"]
        assert context.report.codes == (RemarkCode.INVALID_ANSWERS_LEFT_OUT,)

    def test_valid_runs_are_kept_whole(self) -> None:
        assert contents(user_message("hi"), answered("one"), answered("two")) == ["hi", "one", "two"]

    def test_reasoning_without_text_is_valid(self) -> None:
        assert is_valid(to_context(ModelOutput(parts=(Reasoning(signature="s"),)), seq=1))

    def test_inputs_are_always_kept_by_curation(self) -> None:
        empty = to_context(ModelInput(), seq=1)
        assert curate((empty, empty)) == (empty, empty)

    def test_an_orphan_that_curation_leaves_is_repaired(self) -> None:
        hollow = ModelOutput(parts=(Text(text=""), ToolRequest(call_id="c1", name="read")))
        context = render_context(
            snapshot(user_message("hi"), hollow, results_of("c1"), user_message("next")), UNLIMITED
        )
        assert [entry.content for entry in context.entries] == ["hi", "next"]
        assert context.report.codes == (RemarkCode.INVALID_ANSWERS_LEFT_OUT, RemarkCode.ORPHAN_RESULT_REMOVED)

    def test_an_unknown_role_is_refused_by_name(self) -> None:
        stranger: Any = "assistant"
        with pytest.raises(InvalidContextError, match=r"Role must be one of .*model_input.*, but got assistant"):
            validate([ContextEntry(role=stranger)])

    def test_a_call_without_its_result_is_refused(self) -> None:
        with pytest.raises(InvalidContextError, match="c1"):
            validate([to_context(answered("so", "c1"), seq=1)])

    def test_the_four_views_show_what_happens_on_the_way(self) -> None:
        taken = snapshot(user_message("hi"), ModelOutput(), user_message("again"), answered("so", "c1"))
        shown = {name: view(taken, ContextOptions(environment="here")) for name, view in VIEWS.items()}
        assert {name: [entry.content for entry in entries] for name, entries in shown.items()} == {
            "initial": ["here"],
            "full": ["here", "hi", "", "again", "so"],
            "curated": ["here", "hi", "again", "so"],
            "validated": ["here", "hi", "again", "so", "[No result: this call was interrupted.]"],
        }


class TestFinishedTasks:
    FINISH = ModelOutput(parts=(ToolRequest(call_id="f", name="finish_task"),))

    @pytest.mark.parametrize(
        ("entries", "finished"),
        [
            ((), False),
            ((user_message("go"),), False),
            ((user_message("go"), answered("done")), False),
            ((user_message("go"), FINISH), True),
            ((user_message("go"), FINISH, results_of("f")), True),
            ((user_message("go"), FINISH, results_of("f"), DebugLog(message="x"), NotebookSet(content="y")), True),
            ((user_message("go"), FINISH, results_of("f"), user_message("one more thing")), False),
            ((user_message("go"), FINISH, results_of("f"), user_message("tick", is_internal=True)), False),
            ((user_message("go"), FINISH, results_of("other")), False),
            ((user_message("go"), replace(FINISH, status="interrupted")), False),
            ((user_message("go"), FINISH, results_of("f"), answered("also")), False),
        ],
    )
    def test_finished_means_that_only_results_follow_the_finish_request(
        self, entries: tuple[Entry, ...], finished: bool
    ) -> None:
        assert is_task_finished(path(*entries)) is finished

    def test_the_tool_may_have_another_name(self) -> None:
        assert is_task_finished(path(answered("bye", "c1")), tool="read")


class TestTypes:
    SNIPPET = """
from history.context.messages import to_context
from history.entries import DebugLog, Entry, ModelInput, NotebookSet, SystemInstructionSet

def append(entry: Entry) -> None: ...

to_context(ModelInput(), seq=1)
to_context(DebugLog(), seq=1)
to_context(NotebookSet(content=""), seq=1)
to_context(SystemInstructionSet(instruction=""), seq=1)
append(to_context(ModelInput(), seq=1).with_live_screen("12:00"))
"""

    def test_what_must_not_reach_a_model_is_an_error_of_type(self, tmp_path: Path) -> None:
        file = tmp_path / "snippet.py"
        file.write_text(self.SNIPPET)
        out, _, _ = mypy.run(["--config-file=", f"--cache-dir={tmp_path}", "--no-error-summary", str(file)])
        wrong = {int(line.split(":")[1]) for line in out.splitlines() if "snippet.py" in line and "[arg-type]" in line}
        assert wrong == {8, 9, 10, 11}, out
