"""Anthropic Messages: what a request must look like, rule by rule."""

import json
import re
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

from history.dialects import DIALECTS, CallOptions, EncodedRequest, LossCode, Switches
from history.entries import Media, Reasoning, Text, ToolDefinition, ToolRequest
from tests.history.dialects.samples import (
    CALLS,
    PNG,
    RESULTS,
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

SIGNED = Reasoning(text="hm", signature="sig==", provider="anthropic")


def encode(given: Any, **options: Any) -> EncodedRequest:
    return DIALECTS["anthropic-messages"].encode(given, CallOptions(model="claude-x", **options))


def messages(given: Any, **options: Any) -> list[dict[str, Any]]:
    encoded = encode(given, **options)
    check_type(MessageCreateParamsNonStreaming, encoded.body)
    return list(encoded.body["messages"])


def types(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def codes(encoded: EncodedRequest) -> list[LossCode]:
    return [loss.code for loss in encoded.losses]


def test_the_system_instruction_is_a_field_of_its_own() -> None:
    encoded = encode(context(input_entry("hi")))
    assert encoded.body["system"] == "Be kind."
    assert [message["role"] for message in encoded.body["messages"]] == ["user"]


def test_a_later_instruction_is_user_text_or_an_inline_system_message() -> None:
    given = context(input_entry("hi"), answered("ho"), instructed("Be brief."))
    encoded = encode(given)
    assert encoded.body["messages"][2]["content"][0]["text"] == "<system>\nBe brief.\n</system>"
    assert codes(encoded) == [LossCode.SYSTEM_AS_TEXT]
    roles = [message["role"] for message in messages(given, switches=Switches(inline_system=True))]
    assert roles == ["user", "assistant", "system"]


def test_all_results_stand_first_in_one_user_message_with_what_the_user_says_next() -> None:
    written = messages(canonical(input_entry("And now?")))
    assert [message["role"] for message in written] == ["user", "assistant", "user"]
    assert types(written[2]) == ["tool_result", "tool_result", "text"]
    assert [block["tool_use_id"] for block in written[2]["content"][:2]] == ["call_a", "call_b"]


def test_a_failed_result_is_marked_as_an_error() -> None:
    first, second = messages(canonical())[2]["content"]
    assert "is_error" not in first
    assert second["is_error"] is True
    assert second["content"] == [{"type": "text", "text": "disk is gone"}]


def test_tool_use_comes_last() -> None:
    given = context(input_entry("hi"), answered(CALLS[0], "Wait.", CALLS[1]), result_entry(*RESULTS))
    encoded = encode(given)
    assert types(encoded.body["messages"][1]) == ["text", "tool_use", "tool_use"]
    assert LossCode.PARTS_REORDERED in codes(encoded)


def test_input_is_an_object() -> None:
    assert messages(canonical())[1]["content"][1]["input"] == {"core": 1}


def test_cut_off_arguments_are_wrapped_in_an_object() -> None:
    call = ToolRequest(call_id="c", name="cpu", arguments='{"core": ')
    encoded = encode(context(input_entry("hi"), answered(call), result_entry(result(call, "?"))))
    assert encoded.body["messages"][1]["content"][0]["input"] == {"INVALID_JSON": '{"core": '}
    assert codes(encoded) == [LossCode.ARGUMENTS_WRAPPED]


def test_tool_ids_have_the_alphabet_that_anthropic_takes_and_stay_different() -> None:
    calls = [ToolRequest(call_id=name, name="cpu") for name in ("call:1", "call.1", "ok_1")]
    written = messages(
        context(input_entry("hi"), answered(*calls), result_entry(*[result(call, "1") for call in calls]))
    )
    ids = [block["id"] for block in written[1]["content"]]
    assert [block["tool_use_id"] for block in written[2]["content"]] == ids
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids)
    assert ids[2] == "ok_1"


def test_empty_texts_are_dropped() -> None:
    written = messages(context(input_entry("hi", Text(text=" \n")), answered(Text(text=""), "ho")))
    assert [len(message["content"]) for message in written] == [1, 1]


def test_what_one_side_said_in_a_row_is_one_message() -> None:
    written = messages(
        context(input_entry("one"), input_entry("two"), answered("a"), answered("b"), input_entry("three"))
    )
    assert [message["role"] for message in written] == ["user", "assistant", "user"]


def test_an_answer_of_which_nothing_can_be_sent_leaves_no_hole() -> None:
    encoded = encode(context(input_entry("one"), answered(Reasoning(text="hm")), input_entry("two")))
    assert [message["role"] for message in encoded.body["messages"]] == ["user"]
    assert codes(encoded) == [LossCode.REASONING_UNSIGNED, LossCode.MESSAGE_LEFT_OUT]


def test_an_answer_that_is_to_be_continued_does_not_end_in_white_space() -> None:
    assert messages(context(input_entry("hi"), answered("It is \n")))[1]["content"] == [
        {"type": "text", "text": "It is"}
    ]


def test_signed_thinking_goes_back_unmodified() -> None:
    redacted = Reasoning(redacted="xx", provider="anthropic")
    content = messages(context(input_entry("hi"), answered(SIGNED, redacted, "ho")))[1]["content"]
    assert content[:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "xx"},
    ]


def test_thinking_of_another_provider_or_without_a_signature_is_never_sent() -> None:
    foreign = Reasoning(text="secret", signature="s", provider="openai")
    unsigned = Reasoning(text="secret", provider="anthropic")
    encoded = encode(context(input_entry("hi"), answered(foreign, unsigned, "ho")))
    assert "secret" not in json.dumps(encoded.body)
    assert codes(encoded) == [LossCode.REASONING_FOREIGN, LossCode.REASONING_UNSIGNED]


def test_a_gateway_under_another_name_gets_its_own_signatures_only() -> None:
    assert types(messages(context(input_entry("hi"), answered(SIGNED, "ho")), provider="bedrock")[1]) == ["text"]
    mine = Reasoning(text="hm", signature="sig==", provider="bedrock")
    assert types(messages(context(input_entry("hi"), answered(mine, "ho")), provider="bedrock")[1]) == [
        "thinking",
        "text",
    ]


def test_images_and_documents_are_blocks_also_inside_results() -> None:
    parts = (
        Media(media_type="image/png", sha256="abc"),
        Media(media_type="application/pdf", sha256="abc", name="a.pdf"),
        Media(media_type="text/plain", sha256="abc", name="a.txt"),
        Media(media_type="image/png", url="https://example.org/a.png"),
    )
    given = context(input_entry(*parts), answered(CALLS[0]), result_entry(result(CALLS[0], parts[0])))
    written = messages(given, media={"abc": PNG}.__getitem__)
    assert types(written[0]) == ["image", "document", "document", "image"]
    assert written[0]["content"][0]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert written[0]["content"][3]["source"] == {"type": "url", "url": "https://example.org/a.png"}
    assert written[2]["content"][0]["content"][0]["type"] == "image"


def test_what_anthropic_does_not_take_becomes_a_note_and_a_loss() -> None:
    encoded = encode(
        context(input_entry(Media(media_type="audio/wav", sha256="abc", name="a.wav"))), media=lambda sha256: b"x"
    )
    assert "a.wav" in encoded.body["messages"][0]["content"][0]["text"]
    assert codes(encoded) == [LossCode.MEDIA_NOT_CARRIED]


def test_the_live_screen_is_part_of_the_last_result_so_that_results_stand_alone() -> None:
    given = context(input_entry("hi"), answered(*CALLS), result_entry(*RESULTS, live_screen="12:00"))
    message = messages(given)[2]
    assert types(message) == ["tool_result", "tool_result"]
    assert message["content"][1]["content"][-1]["text"] == "[Live Screen]\n12:00"
    assert messages(context(input_entry("hi", live_screen="12:00")))[0]["content"][1]["text"] == "[Live Screen]\n12:00"


def test_there_is_always_a_limit() -> None:
    assert encode(context(input_entry("hi"))).body["max_tokens"] == 4096
    assert encode(context(input_entry("hi")), max_tokens=9).body["max_tokens"] == 9


def test_effort_is_adaptive_thinking_or_a_budget_and_excludes_a_temperature() -> None:
    encoded = encode(context(input_entry("hi")), reasoning_effort="high", temperature=0.5)
    assert (encoded.body["thinking"], encoded.body["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})
    assert "temperature" not in encoded.body
    assert codes(encoded) == [LossCode.OPTION_NOT_CARRIED]
    body = encode(context(input_entry("hi")), reasoning_effort="high", switches=Switches(thinking_budget=True)).body
    assert body["thinking"]["budget_tokens"] < body["max_tokens"]


def test_no_thinking_is_asked_for_where_anthropic_would_refuse_it() -> None:
    encoded = encode(canonical(), reasoning_effort="high", tool_choice="required")
    assert "thinking" not in encoded.body
    assert codes(encoded) == [LossCode.OPTION_NOT_CARRIED]
    budget = Switches(thinking_budget=True)
    assert "thinking" not in encode(canonical(), reasoning_effort="high", switches=budget).body
    given = context(input_entry("hi"), answered(SIGNED, CALLS[0]), result_entry(RESULTS[0]))
    assert "thinking" in encode(given, reasoning_effort="high", switches=budget).body
    assert "thinking" in encode(canonical(input_entry("go")), reasoning_effort="high").body


def test_options_become_anthropics_fields() -> None:
    encoded = encode(canonical(), temperature=0.5, top_p=0.9, stop=("END",), stream=True, tool_choice="required")
    body = encoded.body
    assert (encoded.path, body["stream"], body["temperature"]) == ("/v1/messages", True, 0.5)
    assert (body["stop_sequences"], body["tool_choice"]) == (["END"], {"type": "any"})
    assert body["tools"][0]["input_schema"]["properties"] == {"core": {"type": "integer"}}
    assert encode(canonical(), tool_name="cpu").body["tool_choice"] == {"type": "tool", "name": "cpu"}


def test_a_tool_that_another_vendor_runs_is_not_offered() -> None:
    tools = (
        ToolDefinition(name="web_search", extra={"hosted": {"type": "web_search"}, "hosted_by": "openai-responses"}),
    )
    encoded = encode(context(input_entry("hi"), tools=tools))
    assert "tools" not in encoded.body
    assert codes(encoded) == [LossCode.TOOL_NOT_CARRIED]
