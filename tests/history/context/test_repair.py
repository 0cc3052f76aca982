"""Each repair by itself: what is done, and what the report says about it."""

import time
from pathlib import Path

import pytest

from history.context.repair import NO_RESULT, OPENING, find_unpaired, repair
from history.context.values import ContextEntry, Remark, RemarkCode, Role
from history.entries import Part, Reasoning, Text, ToolRequest, ToolResult
from history.text.lazy import SentenceCode

pytestmark = pytest.mark.no_database


def user_message(text: str, seq: int = 1) -> ContextEntry:
    return ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=text),), origin=(seq,))


def answer_with_calls(*ids: str, text: str = "so", seq: int = 2, name: str = "read") -> ContextEntry:
    parts: tuple[Part, ...] = (Text(text=text), *(ToolRequest(call_id=one, name=name) for one in ids))
    return ContextEntry(role=Role.MODEL_OUTPUT, parts=parts, origin=(seq,))


def results_of(*ids: str, seq: int = 3, name: str = "read") -> ContextEntry:
    results = tuple(ToolResult(call_id=one, name=name, parts=(Text(text=f"{one}!"),)) for one in ids)
    return ContextEntry(role=Role.TOOL_RESULT, results=results, origin=(seq,))


def done(*entries: ContextEntry) -> tuple[list[str], tuple[SentenceCode, ...]]:
    """Contents after the repair, and the codes of what was done."""
    repaired, report = repair(entries)
    return [entry.content for entry in repaired], report.codes


def test_a_sound_conversation_is_returned_as_it_is() -> None:
    sound = (
        user_message("hi"),
        answer_with_calls("a", "b"),
        results_of("a", "b"),
        answer_with_calls(text="done"),
        user_message("thanks"),
    )
    repaired, report = repair(sound)
    assert repaired == sound
    assert not report.remarks


def test_a_call_at_the_end_without_result_is_answered_as_interrupted() -> None:
    repaired, report = repair((user_message("hi"), answer_with_calls("a")))
    assert repaired[2].results[0].status == "interrupted"
    assert repaired[2].results[0].text == NO_RESULT["interrupted"]
    assert repaired[2].origin == ()
    assert report.remarks == (
        Remark(code=RemarkCode.RESULT_SUPPLIED, seq=2, values={"name": "read", "status": "interrupted"}),
    )
    assert report.remarks[0].text == "The call of read has no result. One with status interrupted was added."


def test_a_call_followed_by_a_message_is_answered_as_skipped() -> None:
    repaired, _ = repair((user_message("hi"), answer_with_calls("a"), user_message("never mind")))
    assert repaired[2].results[0].status == "skipped"


def test_one_missing_result_of_two_is_supplied_in_its_place() -> None:
    repaired, report = repair((user_message("hi"), answer_with_calls("a", "b"), results_of("b")))
    assert [(result.call_id, result.status) for result in repaired[2].results] == [
        ("a", "interrupted"),
        ("b", "success"),
    ]
    assert report.codes == (RemarkCode.RESULT_SUPPLIED,)


def test_a_result_without_its_call_is_removed() -> None:
    assert done(user_message("hi"), results_of("a"), answer_with_calls(text="ok")) == (
        ["hi", "ok"],
        (RemarkCode.ORPHAN_RESULT_REMOVED,),
    )


def test_a_result_before_its_call_does_not_answer_it() -> None:
    _, codes = done(user_message("hi"), results_of("a"), answer_with_calls("a"))
    assert codes == (RemarkCode.ORPHAN_RESULT_REMOVED, RemarkCode.RESULT_SUPPLIED)


def test_results_follow_the_order_of_the_calls() -> None:
    assert done(user_message("hi"), answer_with_calls("a", "b"), results_of("b", "a"))[0][2] == "a!\n\nb!"
    assert done(user_message("hi"), answer_with_calls("a", "b"), results_of("b", "a"))[1] == (
        RemarkCode.RESULTS_REORDERED,
    )


def test_a_second_result_for_a_call_is_removed() -> None:
    assert done(user_message("hi"), answer_with_calls("a"), results_of("a"), results_of("a"))[1] == (
        RemarkCode.DUPLICATE_RESULT_REMOVED,
    )


def test_results_that_stand_further_down_come_back_to_their_call() -> None:
    contents, codes = done(
        user_message("hi"),
        answer_with_calls("a"),
        user_message("and?"),
        answer_with_calls(text="wait"),
        results_of("a"),
    )
    assert contents == ["hi", "so", "a!", "and?", "wait"]
    assert codes == (RemarkCode.RESULTS_MOVED,)


def test_results_in_two_messages_become_one() -> None:
    repaired, report = repair(
        (user_message("hi"), answer_with_calls("a", "b"), results_of("a", seq=3), results_of("b", seq=4))
    )
    assert len(repaired) == 3
    assert repaired[2].origin == (3, 4)
    assert report.codes == (RemarkCode.RESULTS_MERGED,)


def test_an_id_that_a_model_uses_again_belongs_to_the_nearest_call() -> None:
    repaired, report = repair(
        (
            user_message("hi"),
            answer_with_calls("a", seq=2),
            results_of("a", seq=3),
            answer_with_calls("a", seq=4),
            results_of("a", seq=5),
        )
    )
    assert [entry.origin for entry in repaired] == [(1,), (2,), (3,), (4,), (5,)]
    assert repaired[3].tool_requests[0].call_id == repaired[4].results[0].call_id == "a_2"
    assert report.codes == (RemarkCode.CALL_ID_MADE_UNIQUE,)


def test_an_id_used_twice_in_one_answer_becomes_two() -> None:
    repaired, _ = repair((user_message("hi"), answer_with_calls("a", "a"), results_of("a", "a")))
    assert [call.call_id for call in repaired[1].tool_requests] == ["a", "a_2"]
    assert [result.call_id for result in repaired[2].results] == ["a", "a_2"]


def test_a_new_id_never_meets_an_old_one() -> None:
    repaired, _ = repair((user_message("hi"), answer_with_calls("a", "a", "a_2"), results_of("a", "a", "a_2")))
    assert [call.call_id for call in repaired[1].tool_requests] == ["a", "a_3", "a_2"]


def test_calls_without_an_id_get_one_and_keep_their_results() -> None:
    repaired, report = repair((user_message("hi"), answer_with_calls("", "", seq=7), results_of("", "")))
    assert [result.call_id for result in repaired[2].results] == ["call_7_1", "call_7_2"]
    assert report.codes == (RemarkCode.CALL_ID_SUPPLIED, RemarkCode.CALL_ID_SUPPLIED)


def test_a_result_takes_the_name_of_its_call() -> None:
    repaired, report = repair((user_message("hi"), answer_with_calls("a", name="write"), results_of("a", name="")))
    assert repaired[2].results[0].name == "write"
    assert report.codes == (RemarkCode.RESULT_NAME_CORRECTED,)


def test_empty_texts_and_empty_messages_are_left_out() -> None:
    assert done(user_message("hi"), answer_with_calls("a", text="  "), results_of("a"), user_message("")) == (
        ["hi", "", "a!"],
        (RemarkCode.EMPTY_TEXT_DROPPED, RemarkCode.EMPTY_TEXT_DROPPED, RemarkCode.EMPTY_MESSAGE_LEFT_OUT),
    )


def test_only_a_model_can_call() -> None:
    forged = ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text="hi"), ToolRequest(call_id="a", name="read")))
    assert done(forged) == (["hi"], (RemarkCode.MISPLACED_CALL_REMOVED,))


def test_a_conversation_that_begins_with_an_answer_gets_an_opening() -> None:
    assert done(answer_with_calls(text="Welcome!"), user_message("hi")) == (
        [OPENING, "Welcome!", "hi"],
        (RemarkCode.OPENING_SUPPLIED,),
    )


def test_inputs_in_a_row_are_left_to_the_dialects() -> None:
    assert done(user_message("hi"), user_message("anybody?"))[1] == ()


def test_signed_reasoning_comes_through_unmodified() -> None:
    thought = Reasoning(text="", signature="sig", provider="anthropic")
    answer = ContextEntry(role=Role.MODEL_OUTPUT, parts=(thought, Text(text=" "), ToolRequest(call_id="a", name="r")))
    assert repair((user_message("hi"), answer))[0][1].parts[0] is thought


def test_thousands_of_calls_with_one_id_cost_no_more_than_their_number() -> None:
    rounds = [entry for _ in range(4_000) for entry in (answer_with_calls("a"), results_of("a"), results_of("a"))]
    started = time.process_time()
    repaired, _ = repair((user_message("hi"), *rounds))
    assert time.process_time() - started < 3
    assert len(repaired) == 8_001


def test_what_a_vendor_would_refuse_is_named() -> None:
    assert find_unpaired((user_message("hi"), answer_with_calls("a"))) == ("the last entry leaves ['a'] unanswered",)
    assert len(find_unpaired((user_message("hi"), results_of("a")))) == 1
    assert len(find_unpaired((answer_with_calls("a"), user_message("hi"), results_of("a")))) == 2
    assert find_unpaired((answer_with_calls("a", "b"), results_of("b", "a")))


def test_every_code_has_a_sentence_and_a_line_in_the_documents() -> None:
    documented = (Path(__file__).parents[3] / "docs" / "internals" / "context.md").read_text(encoding="utf-8")
    assert all(code.sentence for code in RemarkCode)
    assert [code.value for code in RemarkCode if f"`{code.value}`" not in documented] == []
