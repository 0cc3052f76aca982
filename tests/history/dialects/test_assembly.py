"""Pieces of an answer become one entry, however they come."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies as st

from history.answers.assembly import Assembler
from history.answers.events import (
    AnswerEnded,
    AnswerFailed,
    AnswerStarted,
    Event,
    MediaPiece,
    OtherPiece,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    UnreadableEvent,
    UsageReported,
)
from history.entries import Media, ModelOutput, OtherPart, Part, Reasoning, Text, ToolRequest, Usage
from tests.history.dialects.samples import events_of

pytestmark = pytest.mark.no_database

AT = datetime(2026, 3, 4, tzinfo=UTC)


def assembled(*events: Event) -> ModelOutput:
    return Assembler(provider="anthropic").feed_all(events).output(at=AT)


def test_pieces_of_one_part_are_one_text() -> None:
    output = assembled(TextPiece(part="0", text="Hel"), TextPiece(part="0", text="lo"))
    assert output.parts == (Text(text="Hello"),)


def test_parts_stand_in_the_order_in_which_they_first_appeared() -> None:
    output = assembled(
        ReasoningPiece(part="r", text="hm"),
        ToolCallPiece(part="a", call_id="1", name="read"),
        ToolCallPiece(part="b", call_id="2", name="write"),
        ToolCallPiece(part="a", arguments='{"x":1}'),
        ToolCallPiece(part="b", arguments="{}"),
    )
    assert [call.name for call in output.tool_requests] == ["read", "write"]
    assert output.tool_requests[0].arguments == '{"x":1}'
    assert output.reasoning == "hm"


def test_cut_off_arguments_are_kept_to_the_letter() -> None:
    output = assembled(ToolCallPiece(part="a", call_id="1", name="read", arguments='{"path": "/etc/ho'))
    assert output.tool_requests[0].arguments == '{"path": "/etc/ho'


def test_an_id_and_a_name_that_are_repeated_are_said_once() -> None:
    output = assembled(*[ToolCallPiece(part="a", call_id="1", name="read", arguments=text) for text in ("{", "}")])
    assert output.tool_requests == (ToolRequest(call_id="1", name="read", arguments="{}"),)


def test_an_empty_shell_of_a_call_is_nothing() -> None:
    assert assembled(ToolCallPiece(part="a", call_id="1")).parts == ()


def test_an_answer_without_an_end_is_interrupted() -> None:
    assert assembled(TextPiece(part="0", text="Hel")).status == "interrupted"


def test_an_answer_with_an_end_is_complete_and_says_why_it_ended() -> None:
    output = assembled(TextPiece(part="0", text="Hello"), AnswerEnded(reason="length"))
    assert (output.status, output.end_reason) == ("complete", "length")


def test_an_error_keeps_what_came_before_it() -> None:
    output = assembled(TextPiece(part="0", text="Hel"), AnswerFailed(message="overloaded"))
    assert (output.status, output.error, output.text) == ("failed", "overloaded", "Hel")


def test_a_later_count_replaces_an_earlier_one_but_not_by_nothing() -> None:
    output = assembled(
        UsageReported(usage=Usage(input_tokens=100, output_tokens=1, raw={"a": 1})),
        UsageReported(usage=Usage(output_tokens=50, raw={"b": 2})),
    )
    assert output.usage == Usage(input_tokens=100, output_tokens=50, raw={"a": 1, "b": 2})


def test_reasoning_belongs_to_the_provider_that_signed_it() -> None:
    output = assembled(ReasoningPiece(part="r", text="hm"), ReasoningPiece(part="r", signature="sig"))
    assert output.parts == (Reasoning(text="hm", signature="sig", provider="anthropic"),)


def test_the_provider_can_be_told_by_the_stream() -> None:
    output = Assembler().feed_all([AnswerStarted(model="m", request_id="r", provider="p")]).output(at=AT)
    assert (output.provider, output.model, output.request_id) == ("p", "m", "r")


def test_citations_grow_with_their_text() -> None:
    output = assembled(
        TextPiece(part="0", text="blue", extra={"citations": [{"n": 1}]}),
        TextPiece(part="0", text="", extra={"citations": [{"n": 2}]}),
    )
    assert output.parts == (Text(text="blue", extra={"citations": [{"n": 1}, {"n": 2}]}),)


def test_media_is_kept_by_its_hash() -> None:
    assembler = Assembler().feed_all([MediaPiece(part="m", media_type="image/png", data=b"png")])
    (media,) = assembler.output(at=AT).parts
    assert isinstance(media, Media)
    assert assembler.blobs == {media.sha256: b"png"}
    assert media.size == 3


def test_what_we_do_not_know_is_kept() -> None:
    assert assembled(OtherPiece(part="o", data={"type": "citation"})).parts == (OtherPart(data={"type": "citation"}),)


def test_what_could_not_be_read_is_counted() -> None:
    assembler = Assembler().feed_all([UnreadableEvent(problem="not JSON", raw="{")])
    assert [skipped.problem for skipped in assembler.unreadable] == ["not JSON"]


def test_one_name_for_two_kinds_of_parts_is_read_correctly() -> None:
    output = assembled(TextPiece(part="0", text="a"), ReasoningPiece(part="0", signature="s"))
    assert output.parts == (Text(text="a"), Reasoning(signature="s", provider="anthropic"))


PIECES: st.SearchStrategy[Event] = st.one_of(
    st.builds(TextPiece, part=st.sampled_from("ab"), text=st.text(max_size=5)),
    st.builds(
        ReasoningPiece, part=st.sampled_from("cd"), text=st.text(max_size=5), signature=st.sampled_from(["", "s"])
    ),
    st.builds(
        ToolCallPiece,
        part=st.sampled_from("ef"),
        call_id=st.just("1"),
        name=st.just("read"),
        arguments=st.sampled_from(['{"a"', ":1}", ""]),
    ),
    st.builds(OtherPiece, part=st.sampled_from("gh"), data=st.just({"type": "later"})),
)


@given(st.lists(PIECES), st.integers(0, 30))
@settings(deadline=None)
def test_an_answer_goes_on_after_a_restart_as_if_nothing_had_happened(events: list[Event], cut: int) -> None:
    before = Assembler(provider="p").feed_all(events[:cut])
    resumed = Assembler.resume(before.output(at=AT), names=before.part_names).feed_all(events[cut:])
    assert _sorted(resumed) == _sorted(Assembler(provider="p").feed_all(events))


def _sorted(assembler: Assembler) -> list[tuple[str, Part]]:
    """A part that was empty at the restart is known only from then on: it may stand further back."""
    return sorted(zip(assembler.part_names, assembler.output(at=AT).parts, strict=True), key=lambda item: item[0])


@given(st.lists(PIECES))
@settings(deadline=None)
def test_events_of_an_answer_fold_into_the_same_answer(events: list[Event]) -> None:
    output = Assembler(provider="p", model="m").feed_all([*events, AnswerEnded(reason="stop")]).output(at=AT)
    assert Assembler().feed_all(events_of(output)).output(at=AT) == output
