"""Gemini generateContent: what a request must look like, rule by rule."""

import json
from typing import Any

import pytest
from google.genai import types as genai

from history.dialects import DIALECTS, CallOptions, EncodedRequest, LossCode, Switches
from history.entries import Media, Reasoning, Text, ToolRequest
from tests.history.dialects.samples import (
    CALLS,
    PNG,
    RESULTS,
    answered,
    canonical,
    context,
    input_entry,
    instructed,
    result,
    result_entry,
)

pytestmark = pytest.mark.no_database

SIGNED = Reasoning(signature="c2ln", provider="gemini")


def encode(given: Any, **options: Any) -> EncodedRequest:
    return DIALECTS["gemini-generate"].encode(given, CallOptions(model="gemini-x", **options))


def contents(given: Any, **options: Any) -> list[dict[str, Any]]:
    encoded = encode(given, **options)
    for content in encoded.body["contents"]:
        genai.Content.model_validate(content)
    return list(encoded.body["contents"])


def codes(encoded: EncodedRequest) -> list[LossCode]:
    return [loss.code for loss in encoded.losses]


def test_the_system_instruction_is_a_field_or_precedes_the_user_text() -> None:
    assert encode(context(input_entry("hi"))).body["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    encoded = encode(context(input_entry("hi")), switches=Switches(system_role="remove"))
    assert "systemInstruction" not in encoded.body
    assert encoded.body["contents"][0]["parts"] == [{"text": "Be kind."}, {"text": "hi"}]


def test_an_instruction_in_mid_conversation_is_marked_user_text() -> None:
    encoded = encode(context(input_entry("hi"), answered("ho"), instructed("Be brief.")))
    assert encoded.body["contents"][2]["parts"][0]["text"] == "<system>\nBe brief.\n</system>"
    assert codes(encoded) == [LossCode.SYSTEM_AS_TEXT]


def test_there_are_as_many_responses_as_calls_in_one_user_content() -> None:
    written = contents(canonical())
    assert [content["role"] for content in written] == ["user", "model", "user"]
    calls = [part["functionCall"]["id"] for part in written[1]["parts"] if "functionCall" in part]
    assert [part["functionResponse"]["id"] for part in written[2]["parts"]] == calls == ["call_a", "call_b"]
    assert [part["functionResponse"]["name"] for part in written[2]["parts"]] == ["cpu", "disk"]


def test_a_result_is_an_output_or_an_error() -> None:
    first, second = contents(canonical())[2]["parts"]
    assert first["functionResponse"]["response"] == {"output": "12 %"}
    assert second["functionResponse"]["response"] == {"error": "disk is gone"}


def test_user_text_follows_the_responses_in_the_same_content_or_by_a_switch_in_its_own() -> None:
    written = contents(canonical(input_entry("And now?")))
    assert [len(content["parts"]) for content in written] == [1, 3, 3]
    written = contents(canonical(input_entry("And now?")), switches=Switches(separate_user_text=True))
    assert [content["role"] for content in written] == ["user", "model", "user", "user"]
    assert written[3]["parts"] == [{"text": "And now?"}]


def test_the_signature_stands_on_the_first_call_of_a_turn_only() -> None:
    given = context(input_entry("hi"), answered("So:", SIGNED, *CALLS), result_entry(*RESULTS))
    parts = contents(given)[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, "c2ln", None]


def test_a_lost_signature_is_replaced_by_the_documented_sentinel() -> None:
    encoded = encode(canonical())
    parts = encoded.body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, "skip_thought_signature_validator", None]
    assert codes(encoded) == [LossCode.SIGNATURE_REPLACED]
    switches = Switches(signature_sentinel=False)
    assert "thoughtSignature" not in json.dumps(encode(canonical(), switches=switches).body)


def test_a_signature_of_a_text_goes_back_on_the_text() -> None:
    assert contents(context(input_entry("hi"), answered("ho", SIGNED)))[1]["parts"] == [
        {"text": "ho", "thoughtSignature": "c2ln"}
    ]


def test_sequential_steps_each_have_their_signature() -> None:
    given = context(
        input_entry("hi"),
        answered(SIGNED, CALLS[0]),
        result_entry(result(CALLS[0], "1")),
        answered(Reasoning(signature="c2lo", provider="gemini"), CALLS[1]),
        result_entry(result(CALLS[1], "2")),
    )
    written = contents(given)
    assert [written[place]["parts"][0]["thoughtSignature"] for place in (1, 3)] == ["c2ln", "c2lo"]


def test_thoughts_are_never_sent_back_and_foreign_signatures_neither() -> None:
    thought = Reasoning(text="secret", provider="gemini")
    foreign = Reasoning(text="secret", signature="Zm9v", provider="anthropic")
    encoded = encode(context(input_entry("hi"), answered(thought, foreign, "ho")))
    assert "secret" not in json.dumps(encoded.body)
    assert "Zm9v" not in json.dumps(encoded.body)
    assert codes(encoded) == [LossCode.REASONING_UNSIGNED, LossCode.REASONING_FOREIGN]


def test_args_are_an_object_and_cut_off_ones_are_wrapped() -> None:
    call = ToolRequest(call_id="c", name="cpu", arguments='{"core": ')
    written = contents(context(input_entry("hi"), answered(SIGNED, call), result_entry(result(call, "?"))))
    assert written[1]["parts"][0]["functionCall"]["args"] == {"INVALID_JSON": '{"core": '}


def test_what_one_side_said_in_a_row_is_one_content_and_empty_parts_are_dropped() -> None:
    written = contents(context(input_entry("one", Text(text="")), input_entry("two"), answered("a"), answered("b")))
    assert [len(content["parts"]) for content in written] == [2, 2]


def test_media_goes_inline_or_by_its_address_and_into_a_result_or_behind_it() -> None:
    image, file = Media(media_type="image/png", sha256="abc"), Media(media_type="video/mp4", url="gs://a/b.mp4")
    given = context(input_entry(image, file), answered(SIGNED, CALLS[0]), result_entry(result(CALLS[0], "1", image)))
    media = {"abc": PNG}.__getitem__
    written = contents(given, media=media)
    inline = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    assert written[0]["parts"] == [inline, {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a/b.mp4"}}]
    assert written[2]["parts"][0]["functionResponse"]["parts"] == [inline]
    encoded = encode(given, media=media, switches=Switches(media_in_results=False))
    assert inline in encoded.body["contents"][2]["parts"]
    assert codes(encoded) == [LossCode.MEDIA_MOVED]


def test_the_live_screen_is_a_part_of_its_own() -> None:
    given = context(input_entry("hi"), answered(SIGNED, *CALLS), result_entry(*RESULTS, live_screen="12:00"))
    assert contents(given)[2]["parts"][2] == {"text": "[Live Screen]\n12:00"}
    written = contents(given, switches=Switches(separate_user_text=True))
    assert written[3]["parts"] == [{"text": "[Live Screen]\n12:00"}]


def test_options_become_geminis_fields() -> None:
    encoded = encode(
        canonical(), max_tokens=9, temperature=0.5, top_p=0.9, stop=("END",), reasoning_effort="high", tool_name="cpu"
    )
    assert encoded.path == "/v1beta/models/gemini-x:generateContent"
    assert encoded.body["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["END"],
        "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True},
    }
    calling = encoded.body["toolConfig"]["functionCallingConfig"]
    assert calling == {"mode": "ANY", "allowedFunctionNames": ["cpu"]}
    (tools,) = encoded.body["tools"]
    assert [function["name"] for function in tools["functionDeclarations"]] == ["cpu", "disk"]
    genai.Tool.model_validate(tools)
    genai.GenerationConfig.model_validate(encoded.body["generationConfig"])


def test_a_stream_is_asked_for_as_events() -> None:
    assert (
        encode(context(input_entry("hi")), stream=True).path == "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
    )
