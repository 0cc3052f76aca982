"""OpenAI Chat: what a request must look like, rule by rule."""

import json
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from history.dialects import DIALECTS, CallOptions, EncodedRequest, LossCode, Switches
from history.entries import Media, OtherPart, Reasoning, Text, ToolRequest
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

OPTIONS = CallOptions(model="gpt-x")


def encode(given: Any, **options: Any) -> EncodedRequest:
    return DIALECTS["openai-chat"].encode(given, CallOptions(model="gpt-x", **options))


def messages(given: Any, **options: Any) -> list[dict[str, Any]]:
    encoded = encode(given, **options)
    check_type(CompletionCreateParamsNonStreaming, encoded.body)
    return list(encoded.body["messages"])


def codes(encoded: EncodedRequest) -> list[LossCode]:
    return [loss.code for loss in encoded.losses]


def test_the_system_instruction_is_the_first_message() -> None:
    assert messages(context(input_entry("hi")))[0] == {"role": "system", "content": "Be kind."}


def test_reasoning_models_get_a_developer_message() -> None:
    given = context(input_entry("hi"), answered("ho"), instructed("Be brief."))
    roles = [message["role"] for message in messages(given, switches=Switches(system_role="developer"))]
    assert roles == ["developer", "user", "assistant", "developer"]


def test_models_that_know_no_system_role_get_the_instruction_before_the_first_user_text() -> None:
    (message,) = messages(context(input_entry("hi")), switches=Switches(system_role="remove"))
    assert message["role"] == "user"
    assert [part["text"] for part in message["content"]] == ["Be kind.", "hi"]


def test_an_instruction_in_mid_conversation_is_a_system_message_where_it_stands() -> None:
    given = context(input_entry("hi"), answered("ho"), instructed("Be brief."), input_entry("go"))
    assert messages(given)[3] == {"role": "system", "content": "Be brief."}


def test_an_answer_with_calls_is_one_message_with_arguments_as_json_text() -> None:
    message = messages(canonical())[2]
    assert (message["role"], message["content"]) == ("assistant", "Let me look.")
    assert message["tool_calls"][0] == {
        "id": "call_a",
        "type": "function",
        "function": {"name": "cpu", "arguments": '{"core": 1}'},
    }


def test_content_is_null_only_where_there_are_calls() -> None:
    written = messages(
        context(input_entry("hi"), answered(*CALLS), result_entry(result(CALLS[0]), result(CALLS[1])), answered("ok"))
    )
    assert [message["content"] for message in written if message["role"] == "assistant"] == [None, "ok"]


def test_each_result_is_a_tool_message_of_its_own_directly_after_the_calls() -> None:
    written = messages(canonical(input_entry("And now?")))
    assert [message["role"] for message in written] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [message.get("tool_call_id") for message in written[3:5]] == ["call_a", "call_b"]


def test_an_error_is_told_by_its_text() -> None:
    encoded = encode(canonical())
    assert encoded.body["messages"][4]["content"] == "disk is gone"
    assert codes(encoded) == [LossCode.STATUS_NOT_CARRIED]


def test_cut_off_arguments_are_sent_to_the_letter() -> None:
    call = ToolRequest(call_id="c", name="cpu", arguments='{"core": ')
    written = messages(context(input_entry("hi"), answered(call), result_entry(result(call, "?"))))
    assert written[2]["tool_calls"][0]["function"]["arguments"] == '{"core": '


def test_reasoning_is_not_sent_back() -> None:
    encoded = encode(context(input_entry("hi"), answered(Reasoning(text="hm", signature="s", provider="openai"), "ho")))
    assert "hm" not in json.dumps(encoded.body)
    assert codes(encoded) == [LossCode.REASONING_NOT_CARRIED]


def test_a_server_that_wants_its_thinking_back_gets_its_own_and_no_other() -> None:
    given = context(
        input_entry("hi"),
        answered(Reasoning(text="mine", provider="deepseek"), "ho"),
        input_entry("go"),
        answered(Reasoning(text="theirs", provider="qwen"), "ha"),
    )
    switches = Switches(reasoning_content=True)
    encoded = encode(given, provider="deepseek", switches=switches)
    assert [message.get("reasoning_content") for message in encoded.body["messages"]] == [
        None,
        None,
        "mine",
        None,
        None,
    ]


def test_text_that_stood_after_a_call_comes_before_it_and_that_is_told() -> None:
    encoded = encode(context(input_entry("hi"), answered(CALLS[0], "Wait."), result_entry(result(CALLS[0], "1"))))
    assert encoded.body["messages"][2]["content"] == "Wait."
    assert LossCode.PARTS_REORDERED in codes(encoded)


def test_ids_longer_than_forty_characters_are_shortened_alike_for_call_and_result() -> None:
    call = ToolRequest(call_id="x" * 60, name="cpu")
    written = messages(context(input_entry("hi"), answered(call), result_entry(result(call, "1"))))
    short = written[2]["tool_calls"][0]["id"]
    assert len(short) <= 40
    assert written[3]["tool_call_id"] == short


def test_an_image_goes_as_a_data_url_or_by_its_address() -> None:
    image = Media(media_type="image/png", sha256="abc")
    elsewhere = Media(media_type="image/png", url="https://example.org/a.png")
    content = messages(context(input_entry("See:", image, elsewhere)), media={"abc": PNG}.__getitem__)[1]["content"]
    assert content[1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert content[2]["image_url"]["url"] == "https://example.org/a.png"


def test_files_sounds_and_texts_go_as_what_openai_has_for_them() -> None:
    kinds = ("application/pdf", "audio/wav", "text/csv", "application/zip")
    parts = [Media(media_type=kind, sha256="abc", name=kind) for kind in kinds]
    encoded = encode(context(input_entry(*parts)), media=lambda sha256: b"1,2")
    assert [part["type"] for part in encoded.body["messages"][1]["content"]] == ["file", "input_audio", "text", "text"]
    assert codes(encoded) == [LossCode.MEDIA_AS_TEXT, LossCode.MEDIA_NOT_CARRIED]


def test_media_whose_bytes_are_gone_is_told_to_the_model_and_to_us() -> None:
    encoded = encode(
        context(input_entry("See:", Media(media_type="image/png", sha256="abc", name="a.png"))), media={}.__getitem__
    )
    assert "a.png" in encoded.body["messages"][1]["content"][1]["text"]
    assert [loss.text for loss in encoded.losses] == ["The data of a.png was not found. A note was sent instead."]


def test_media_in_a_result_moves_into_a_user_message_behind_all_results() -> None:
    image = Media(media_type="image/png", sha256="abc")
    given = context(
        input_entry("hi"), answered(*CALLS), result_entry(result(CALLS[0], "1", image), result(CALLS[1], "2"))
    )
    encoded = encode(given, media={"abc": PNG}.__getitem__)
    assert [message["role"] for message in encoded.body["messages"]][2:] == ["assistant", "tool", "tool", "user"]
    assert LossCode.MEDIA_MOVED in codes(encoded)


def test_the_live_screen_is_told_with_the_latest_input_or_result_and_can_be_left_out() -> None:
    given = context(input_entry("hi", live_screen="12:00"))
    assert "12:00" in json.dumps(messages(given))
    assert "12:00" not in json.dumps(messages(given, include_live_screen=False))
    after = context(
        input_entry("hi"),
        answered(*CALLS),
        result_entry(result(CALLS[0], "1"), result(CALLS[1], "2"), live_screen="12:00"),
    )
    written = messages(after)
    assert [("12:00" in message["content"]) for message in written[3:]] == [False, True]


def test_parts_that_only_another_vendor_knows_are_named() -> None:
    encoded = encode(context(input_entry("hi"), answered("ho", OtherPart(data={"type": "web_search_call"}))))
    assert [loss.text for loss in encoded.losses] == [
        "A part of type web_search_call was not sent. It belongs to another provider."
    ]


def test_what_one_side_said_in_a_row_is_merged_where_a_server_insists_on_turns() -> None:
    given = context(input_entry("one"), input_entry("two"), answered("a"), answered("b"))
    roles = [message["role"] for message in messages(given)]
    assert roles == ["system", "user", "user", "assistant", "assistant"]
    written = messages(given, switches=Switches(alternate_roles=True))
    assert [message["content"] for message in written] == ["Be kind.", "one\n\ntwo", "a\n\nb"]


def test_options_become_openais_fields() -> None:
    encoded = encode(
        canonical(),
        max_tokens=99,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        stream=True,
        tool_name="cpu",
        reasoning_effort="low",
    )
    body = encoded.body
    assert (encoded.path, body["model"], body["max_completion_tokens"]) == ("/chat/completions", "gpt-x", 99)
    assert (body["temperature"], body["top_p"], body["stop"], body["reasoning_effort"]) == (0.5, 0.9, ["END"], "low")
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert body["tool_choice"] == {"type": "function", "function": {"name": "cpu"}}
    assert body["tools"][0]["function"]["name"] == "cpu"


def test_older_servers_get_the_older_fields() -> None:
    switches = Switches(legacy_max_tokens=True, stream_usage=False)
    body = encode(context(input_entry("hi")), max_tokens=9, stream=True, switches=switches).body
    assert body["max_tokens"] == 9
    assert "stream_options" not in body


def test_how_a_request_came_about_is_told_only_when_asked() -> None:
    assert not encode(canonical()).debug
    debug = encode(canonical(), include_debug=True).debug
    assert debug["losses"] == ["status_not_carried"]
    assert "losses" not in encode(canonical(), include_debug=True).body


def test_an_empty_text_is_no_message() -> None:
    encoded = encode(context(input_entry(Text(text="")), input_entry("hi")))
    assert [message["role"] for message in encoded.body["messages"]] == ["system", "user"]
    assert codes(encoded) == [LossCode.MESSAGE_LEFT_OUT]
