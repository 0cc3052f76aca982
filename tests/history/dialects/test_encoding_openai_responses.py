"""OpenAI Responses: what a request must look like, rule by rule."""

import json
from typing import Any

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from history.dialects import DIALECTS, CallOptions, EncodedRequest, LossCode, Switches
from history.entries import Media, Reasoning, ToolRequest
from tests.history.dialects.samples import (
    CALLS,
    PNG,
    answered,
    canonical,
    check_type,
    context,
    input_entry,
    instructed,
    result,
    result_entry,
)

pytestmark = pytest.mark.no_database

SIGNED = Reasoning(text="hm", signature="gAAA", provider="openai", extra={"id": "rs_1"})


def encode(given: Any, **options: Any) -> EncodedRequest:
    return DIALECTS["openai-responses"].encode(given, CallOptions(model="gpt-x", **options))


def items(given: Any, **options: Any) -> list[dict[str, Any]]:
    encoded = encode(given, **options)
    check_type(ResponseCreateParamsNonStreaming, encoded.body)
    return list(encoded.body["input"])


def kinds(written: list[dict[str, Any]]) -> list[str]:
    return [item.get("role", item["type"]) for item in written]


def codes(encoded: EncodedRequest) -> list[LossCode]:
    return [loss.code for loss in encoded.losses]


def test_the_system_instruction_is_the_instructions_or_a_developer_item() -> None:
    assert encode(context(input_entry("hi"))).body["instructions"] == "Be kind."
    written = items(context(input_entry("hi")), switches=Switches(system_role="developer"))
    assert kinds(written) == ["developer", "user"]


def test_an_instruction_in_mid_conversation_is_an_item_where_it_stands() -> None:
    assert kinds(items(context(input_entry("hi"), instructed("Be brief."), input_entry("go")))) == [
        "user",
        "system",
        "user",
    ]


def test_items_are_ordered_reasoning_message_calls_outputs() -> None:
    given = context(
        input_entry("hi"),
        answered(SIGNED, "Let me look.", *CALLS),
        result_entry(result(CALLS[0], "1"), result(CALLS[1], "2")),
    )
    assert kinds(items(given)) == [
        "user",
        "reasoning",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


def test_a_call_and_its_output_share_the_call_id_and_arguments_are_text() -> None:
    written = items(canonical())
    assert written[2] == {"type": "function_call", "call_id": "call_a", "name": "cpu", "arguments": '{"core": 1}'}
    assert written[4] == {"type": "function_call_output", "call_id": "call_a", "output": "12 %"}


def test_signed_reasoning_goes_back_unmodified_with_its_id() -> None:
    assert items(context(input_entry("hi"), answered(SIGNED, "ho")))[1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gAAA",
    }


def test_a_summary_of_several_pieces_goes_back_in_these_pieces() -> None:
    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    part = Reasoning(text="one\n\ntwo", signature="gAAA", provider="openai", extra={"id": "rs_1", "summary": summary})
    assert items(context(input_entry("hi"), answered(part, "ho")))[1]["summary"] == summary


def test_each_reasoning_keeps_what_it_led_to() -> None:
    second = Reasoning(signature="gBBB", provider="openai", extra={"id": "rs_2"})
    given = context(
        input_entry("hi"),
        answered(SIGNED, CALLS[0], second, CALLS[1]),
        result_entry(result(CALLS[0], "1"), result(CALLS[1], "2")),
    )
    assert kinds(items(given))[1:5] == ["reasoning", "function_call", "reasoning", "function_call"]


def test_reasoning_without_its_following_item_is_left_out() -> None:
    encoded = encode(context(input_entry("hi"), answered("ho", SIGNED)))
    assert kinds(encoded.body["input"]) == ["user", "assistant"]
    assert codes(encoded) == [LossCode.REASONING_ALONE]


def test_reasoning_of_another_provider_or_without_a_signature_is_never_sent() -> None:
    foreign = Reasoning(text="secret", signature="s", provider="anthropic")
    unsigned = Reasoning(text="secret", provider="openai")
    encoded = encode(context(input_entry("hi"), answered(foreign, unsigned, "ho")))
    assert "secret" not in json.dumps(encoded.body)
    assert codes(encoded) == [LossCode.REASONING_FOREIGN, LossCode.REASONING_UNSIGNED]


def test_nothing_is_stored_at_the_vendor_and_reasoning_is_asked_for_encrypted() -> None:
    body = encode(canonical(), reasoning_effort="high", stream=True, max_tokens=9, tool_choice="required").body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["reasoning"]["effort"], body["stream"], body["max_output_tokens"]) == ("high", True, 9)
    assert body["tool_choice"] == "required"
    assert body["tools"][0]["name"] == "cpu"


def test_stop_words_are_an_option_that_responses_does_not_have() -> None:
    assert codes(encode(context(input_entry("hi")), stop=("END",))) == [LossCode.OPTION_NOT_CARRIED]


def test_cut_off_arguments_are_sent_to_the_letter() -> None:
    call = ToolRequest(call_id="c", name="cpu", arguments='{"core": ')
    assert (
        items(context(input_entry("hi"), answered(call), result_entry(result(call, "?"))))[1]["arguments"]
        == '{"core": '
    )


def test_media_goes_into_a_result_or_behind_it() -> None:
    image = Media(media_type="image/png", sha256="abc")
    given = context(input_entry("hi", image), answered(CALLS[0]), result_entry(result(CALLS[0], "1", image)))
    media = {"abc": PNG}.__getitem__
    written = items(given, media=media)
    assert written[0]["content"][1]["image_url"] == "data:image/png;base64,iVBORw0KGgo="
    assert [part["type"] for part in written[2]["output"]] == ["input_text", "input_image"]
    written = items(given, media=media, switches=Switches(media_in_results=False))
    assert kinds(written) == ["user", "function_call", "function_call_output", "user"]


def test_the_live_screen_is_told_with_the_latest_input_or_result() -> None:
    written = items(context(input_entry("hi", live_screen="12:00")))
    assert [part["text"] for part in written[0]["content"]] == ["hi", "[Live Screen]\n12:00"]
    written = items(
        context(input_entry("hi"), answered(CALLS[0]), result_entry(result(CALLS[0], "1"), live_screen="12:00"))
    )
    assert written[2]["output"] == "1\n\n[Live Screen]\n12:00"
