"""What vendors stream, with everything that goes wrong on the way."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.answers.events import AnswerEnded, AnswerFailed, UnreadableEvent, UsageReported
from history.dialects import DIALECTS
from history.entries import OtherPart, Reasoning, Text, ToolRequest
from tests.factories import example_count
from tests.history.dialects.samples import (
    ANTHROPIC,
    CHAT,
    GEMINI,
    GEMINI_CHUNKS,
    NAMES,
    RESPONSE,
    RESPONSES,
    STREAMS,
    answer,
    assemble,
    decode,
    gemini_chunk,
    sent,
)

pytestmark = pytest.mark.no_database

every_dialect = pytest.mark.parametrize("name", NAMES)


@every_dialect
def test_a_stream_becomes_text_calls_counts_and_an_end(name: str) -> None:
    output = answer(name, STREAMS[name])
    assert output.text == "Let me look. 你好"
    assert [(call.call_id, call.name, json.loads(call.arguments)) for call in output.tool_requests] == [
        ("call_a", "cpu", {"core": 1}),
        ("call_b", "disk", {}),
    ]
    assert (output.status, output.end_reason, output.provider) == ("complete", "tool_use", "acme")
    assert output.request_id
    assert output.model


@every_dialect
def test_input_tokens_are_all_that_was_read_cached_or_not(name: str) -> None:
    usage = answer(name, STREAMS[name]).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (100, 20)
    assert (usage.cache_read_tokens, usage.reasoning_tokens) == (60, 5)
    assert usage.cache_write_tokens == (10 if name == "anthropic-messages" else 0)
    assert usage.raw


@every_dialect
@given(data=st.data())
@settings(deadline=None, max_examples=example_count(40))
def test_any_chunking_gives_the_same_events(name: str, data: st.DataObject) -> None:
    stream = STREAMS[name]
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert decode(name, *chunks) == decode(name, stream)


@every_dialect
def test_a_stream_fed_byte_by_byte_gives_the_same_events(name: str) -> None:
    stream = STREAMS[name]
    assert decode(name, *[stream[place : place + 1] for place in range(len(stream))]) == decode(name, stream)


@every_dialect
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_other_line_ends_give_the_same_events(name: str, end: bytes) -> None:
    assert decode(name, STREAMS[name].replace(b"\n", end)) == decode(name, STREAMS[name])


@every_dialect
def test_data_without_a_space_and_a_byte_order_mark_give_the_same_events(name: str) -> None:
    stream = b"\xef\xbb\xbf" + STREAMS[name].replace(b"data: ", b"data:")
    assert decode(name, stream) == decode(name, STREAMS[name])


@every_dialect
def test_one_event_that_is_not_json_is_reported_and_the_rest_goes_on(name: str) -> None:
    first, _, rest = STREAMS[name].partition(b"\n\n")
    events = decode(name, first + b'\n\ndata: {"broken": \n\ndata: 7\n\n' + rest)
    assert [event.problem[:8] for event in events if isinstance(event, UnreadableEvent)] == ["not JSON", "not an o"]
    assert [event for event in events if not isinstance(event, UnreadableEvent)] == decode(name, STREAMS[name])


@every_dialect
def test_a_stream_that_breaks_off_has_no_end_and_is_interrupted(name: str) -> None:
    middle = STREAMS[name].index(b"look") + 20
    events = decode(name, STREAMS[name][:middle])
    assert not any(isinstance(event, AnswerEnded) for event in events)
    output = assemble(events)
    assert output.status == "interrupted"
    assert output.text.startswith("Let me")


@every_dialect
@given(junk=st.binary(max_size=200))
@settings(deadline=None, max_examples=example_count(60))
def test_random_bytes_never_raise(name: str, junk: bytes) -> None:
    assemble(decode(name, junk))
    assemble(decode(name, b"data: " + junk))
    DIALECTS[name].decode_reply(junk)
    DIALECTS[name].decode_error(500, junk)


FIELDS = (
    *("type", "choices", "delta", "content", "tool_calls", "function", "id", "index", "usage", "error", "message"),
    *("content_block", "item", "output_index", "output", "response", "candidates", "parts", "text", "functionCall"),
    *("args", "thoughtSignature", "summary", "model", "finish_reason", "call_id", "arguments", "inlineData", "data"),
)
TYPES = (
    *("", "message_start", "content_block_start", "content_block_delta", "message_delta", "error", "text_delta"),
    *("response.created", "response.output_item.added", "response.output_item.done", "response.completed"),
    *("response.failed", "response.output_text.delta", "response.reasoning_summary_text.delta", "message", "text"),
    *("tool_use", "function_call", "reasoning", "web_search_call", "thinking", "input_json_delta", "thinking_delta"),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.sampled_from(TYPES)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)),
    max_leaves=12,
)
BODIES = st.lists(st.tuples(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON)), max_size=4)


@every_dialect
@given(bodies=BODIES)
@settings(deadline=None)
def test_odd_json_never_raises(name: str, bodies: list[tuple[str, dict[str, object]]]) -> None:
    written = b"".join(sent({**body, "type": kind} if kind else body) for kind, body in bodies)
    assemble(decode(name, written))
    for _, body in bodies:
        assemble(DIALECTS[name].decode_reply(json.dumps(body).encode()))


def test_json_that_nests_without_end_is_reported() -> None:
    deep = b"[" * 5_000 + b"]" * 5_000
    assert [type(event) for event in decode("openai-chat", b"data: " + deep + b"\n\n")] == [UnreadableEvent]


# OpenAI Chat.


def test_chat_choices_that_are_null_are_no_error() -> None:
    assert b'"choices": null' in CHAT
    assert not [event for event in decode("openai-chat", CHAT) if isinstance(event, AnswerFailed | UnreadableEvent)]


def test_chat_a_missing_done_changes_nothing() -> None:
    assert answer("openai-chat", CHAT.replace(b"data: [DONE]\n\n", b"")) == answer("openai-chat", CHAT)


def test_chat_done_without_a_reason_is_an_end() -> None:
    stream = sent({"choices": [{"delta": {"content": "hi"}}]}, "data: [DONE]\n\n")
    assert answer("openai-chat", stream).end_reason == "stop"


def test_chat_an_error_after_a_200_keeps_what_was_said() -> None:
    error = {"error": {"message": "The server is busy", "type": "server_error", "code": "overloaded"}}
    output = answer("openai-chat", sent({"choices": [{"delta": {"content": "Hal"}}]}, error))
    assert (output.status, output.text, output.error) == ("failed", "Hal", "The server is busy")


def test_chat_calls_that_all_have_index_0_are_told_apart_by_their_ids() -> None:
    calls = [
        {
            "choices": [
                {"delta": {"tool_calls": [{"index": 0, "id": one, "function": {"name": one, "arguments": "{}"}}]}}
            ]
        }
        for one in ("a", "b")
    ]
    assert [call.name for call in answer("openai-chat", sent(*calls)).tool_requests] == ["a", "b"]


def test_chat_servers_that_repeat_id_and_name_in_each_piece_are_understood() -> None:
    pieces = [
        {
            "choices": [
                {"delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "cpu", "arguments": piece}}]}}
            ]
        }
        for piece in ('{"x"', ":1}")
    ]
    assert answer("openai-chat", sent(*pieces)).tool_requests == (
        ToolRequest(call_id="a", name="cpu", arguments='{"x":1}'),
    )


def called(*calls: dict[str, Any]) -> bytes:
    """Each in a chunk of its own, and the end."""
    chunks = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]
    return sent(*chunks, {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})


def test_chat_calls_without_ids_that_all_have_index_0_are_told_apart() -> None:
    said = [("cpu", "{}"), ("cpu", '{"core"'), ("cpu", ":1}"), ("cpu", ""), ("disk", ""), ("memory", "{}")]
    stream = called(*[{"index": 0, "function": {"name": name, "arguments": piece}} for name, piece in said])
    assert answer("openai-chat", stream).tool_requests == (
        ToolRequest(call_id="call_0", name="cpu", arguments="{}"),
        ToolRequest(call_id="call_1", name="cpu", arguments='{"core":1}'),
        ToolRequest(call_id="call_2", name="disk", arguments="{}"),
        ToolRequest(call_id="call_3", name="memory", arguments="{}"),
    )


@pytest.mark.parametrize("client", NAMES)
def test_chat_calls_whose_names_come_later_reach_every_client_with_them(client: str) -> None:
    stream = called(
        {"index": 0, "id": "a", "function": {"arguments": '{"co'}},
        {"index": 0, "function": {"name": "cpu", "arguments": 're"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    )
    encoder = DIALECTS[client].stream_encoder(model="m", reply_id="r1")
    translated = b"".join(map(encoder.feed, decode("openai-chat", stream))) + encoder.end()
    (call,) = answer(client, translated).tool_requests
    assert (call.call_id, call.name, json.loads(call.arguments)) == ("a", "cpu", {"core": 1})


def test_chat_arguments_whose_name_never_comes_are_kept() -> None:
    stream = called({"index": 0, "id": "a", "function": {"arguments": '{"core":1}'}})
    assert answer("openai-chat", stream).tool_requests == (ToolRequest(call_id="a", name="", arguments='{"core":1}'),)


def test_chat_arguments_that_are_an_object_already_are_read() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "cpu", "arguments": {"core": 1}}}
    stream = sent({"choices": [{"delta": {"tool_calls": [call]}}]})
    assert answer("openai-chat", stream).tool_requests[0].arguments == '{"core":1}'


def test_chat_stop_with_calls_is_an_end_for_tools() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "cpu", "arguments": "{}"}}
    stream = sent({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]})
    assert answer("openai-chat", stream).end_reason == "tool_use"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_chat_thinking_of_other_servers_is_read(field: str) -> None:
    output = answer("openai-chat", sent({"choices": [{"delta": {field: "hm"}}]}))
    assert output.parts == (Reasoning(text="hm", provider="acme"),)


def test_chat_a_refusal_is_a_text_and_an_end_of_its_own() -> None:
    stream = sent(
        {"choices": [{"delta": {"refusal": "I cannot"}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    )
    assert (answer("openai-chat", stream).text, answer("openai-chat", stream).end_reason) == ("I cannot", "refusal")


def test_a_whole_reply_in_place_of_a_stream_is_read() -> None:
    reply = {"id": "1", "model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    output = answer("openai-chat", json.dumps(reply).encode())
    assert (output.text, output.status) == ("hi", "complete")


# OpenAI Responses.


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        ("completed", {}, ("complete", "tool_use")),
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, ("complete", "length")),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, ("complete", "content_filter")),
        ("failed", {"error": {"code": "server_error", "message": "oh"}}, ("failed", "")),
    ],
)
def test_responses_usage_is_read_from_any_last_word(
    status: str, fields: dict[str, object], expected: tuple[str, str]
) -> None:
    last = {"type": f"response.{status}", "response": {**RESPONSE, "status": status, **fields}}
    stream = RESPONSES[: RESPONSES.index(b"event: response.completed")] + sent(last)
    output = answer("openai-responses", stream)
    assert (output.status, output.end_reason) == expected
    assert output.usage is not None
    assert output.usage.input_tokens == 100


def test_responses_items_that_only_the_last_word_tells_are_read() -> None:
    output = answer("openai-responses", sent({"type": "response.completed", "response": RESPONSE}))
    assert output.parts == answer("openai-responses", RESPONSES).parts


def test_responses_reasoning_keeps_its_id_its_paragraphs_and_its_encrypted_content() -> None:
    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA"}
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": place, "delta": text}
        for place, text in enumerate(("one", "two"))
    ]
    output = answer(
        "openai-responses", sent(*deltas, {"type": "response.output_item.done", "output_index": 0, "item": item})
    )
    extra = {"id": "rs_1", "summary": summary}
    assert output.parts == (Reasoning(text="one\n\ntwo", signature="gAAA", provider="acme", extra=extra),)


def test_responses_two_messages_in_a_row_are_two_texts_in_a_stream_and_in_a_whole_reply() -> None:
    """Codex's models say what they do, and then what came of it."""
    texts = ("I look.", "It rains.")
    items = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]} for text in texts
    ]
    deltas = [
        {"type": "response.output_text.delta", "output_index": place, "delta": piece}
        for place, text in enumerate(texts)
        for piece in (text[:3], text[3:])
    ]
    end = {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": items}}
    whole = {"id": "r1", "status": "completed", "output": items}
    for reply in (sent(*deltas, end), json.dumps(whole).encode()):
        output = answer("openai-responses", reply)
        assert output.parts == tuple(Text(text=text) for text in texts)
        assert output.text == "I look.\n\nIt rains."


def test_responses_tools_that_take_plain_text_are_calls() -> None:
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"}
    output = answer("openai-responses", sent({"type": "response.output_item.done", "output_index": 0, "item": item}))
    assert output.tool_requests == (ToolRequest(call_id="c1", name="apply_patch", arguments='{"input":"*** Begin"}'),)


@pytest.mark.parametrize("is_cut", [True, False])
def test_chat_tools_that_take_plain_text_are_calls_in_a_stream_and_in_a_whole_reply(is_cut: bool) -> None:
    def delta(**custom: str) -> dict[str, Any]:
        return {"choices": [{"delta": {"tool_calls": [{"index": 0, "type": "custom", "custom": custom}]}}]}

    first = delta(name="apply_patch", input="")
    first["choices"][0]["delta"]["tool_calls"][0]["id"] = "c1"
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    pieces = [first, delta(input='*** "'), delta(input="x\n"), *([] if is_cut else [end])]
    told = '{"input":"*** \\"x\\n' + ("" if is_cut else '"}')
    streamed = answer("openai-chat", sent(*pieces))
    assert streamed.tool_requests == (ToolRequest(call_id="c1", name="apply_patch", arguments=told),)
    call = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": '*** "x\n'}}
    whole = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    if not is_cut:
        assert answer("openai-chat", json.dumps(whole).encode()).tool_requests == streamed.tool_requests


PATCH: list[dict[str, Any]] = [
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "apply_patch", "input": ""},
    },
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": '*** Begin "'},
    {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "x\n"},
]


def test_responses_a_broken_stream_keeps_the_input_of_a_text_tool() -> None:
    output = answer("openai-responses", sent(*PATCH))
    assert output.status == "interrupted"
    told = '{"input":"*** Begin \\"x\\n'
    assert output.tool_requests == (ToolRequest(call_id="c1", name="apply_patch", arguments=told),)


def test_responses_a_tool_that_takes_plain_text_is_told_once() -> None:
    item = {**PATCH[0]["item"], "input": '*** Begin "x\n'}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    completed = {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": [item]}}
    output = answer("openai-responses", sent(*PATCH, done, completed))
    assert [json.loads(call.arguments) for call in output.tool_requests] == [{"input": '*** Begin "x\n'}]
    assert output.end_reason == "tool_use"


def test_responses_an_error_event_is_an_error() -> None:
    output = answer("openai-responses", sent({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}))
    assert (output.status, output.error) == ("failed", "slow")


# Anthropic.


def test_anthropic_thinking_keeps_its_signature_and_redacted_thinking_its_data() -> None:
    stream = sent(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "xx"}},
    )
    assert answer("anthropic-messages", stream).parts == (
        Reasoning(text="hm", signature="sig==", provider="acme"),
        Reasoning(redacted="xx", provider="acme"),
    )


def test_anthropic_what_the_vendors_own_tools_are_asked_is_kept() -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": text} for text in ('{"query": "wea', 'ther"}')]
    stream = sent(
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": piece} for piece in pieces),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Rain."}},
        {"type": "content_block_stop", "index": 1},
    )
    searched, text = answer("anthropic-messages", stream).parts
    assert searched == OtherPart(data={**block, "input": {"query": "weather"}})
    assert text == Text(text="Rain.")


def test_anthropic_counts_are_totals_so_far() -> None:
    usages = [event.usage for event in decode("anthropic-messages", ANTHROPIC) if isinstance(event, UsageReported)]
    assert [(usage.input_tokens, usage.output_tokens) for usage in usages] == [(100, 1), (100, 20)]


def test_anthropic_an_error_after_a_200_keeps_what_was_said() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    stream = ANTHROPIC[: ANTHROPIC.index(b"event: content_block_stop")] + sent(error)
    events = decode("anthropic-messages", stream)
    assert [event.kind for event in events if isinstance(event, AnswerFailed)] == ["overloaded"]
    assert (assemble(events).status, assemble(events).text) == ("failed", "Let me look. 你好")


def test_anthropic_texts_in_a_row_are_one_text_with_its_citations() -> None:
    stream = sent(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "The sky "}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "is blue."}},
    )
    assert answer("anthropic-messages", stream).parts == (
        Text(text="The sky is blue.", extra={"citations": [{"url": "u"}]}),
    )


# Gemini.


def test_gemini_an_array_instead_of_events_is_read_object_by_object() -> None:
    array = json.dumps(GEMINI_CHUNKS, indent=2).encode()
    assert decode("gemini-generate", array) == decode("gemini-generate", GEMINI)
    decoder = DIALECTS["gemini-generate"].stream_decoder("acme")
    assert decoder.feed(array[: len(array) // 2])


def test_gemini_a_signature_stands_before_its_call_and_after_its_text() -> None:
    parts = answer("gemini-generate", GEMINI).parts
    assert [type(part) for part in parts] == [Text, Reasoning, ToolRequest, ToolRequest]
    chunks = [gemini_chunk([{"text": "Hel"}]), gemini_chunk([{"text": "lo", "thoughtSignature": "c2ln"}])]
    assert answer("gemini-generate", sent(*chunks)).parts == (
        Text(text="Hello"),
        Reasoning(signature="c2ln", provider="acme"),
    )


def test_gemini_a_call_without_an_id_gets_the_same_one_every_time() -> None:
    calls = [{"functionCall": {"name": "cpu", "args": {"core": 1}}}] * 2
    first, second = answer("gemini-generate", sent(gemini_chunk(calls))).tool_requests
    assert first.call_id != second.call_id
    assert answer("gemini-generate", sent(gemini_chunk(calls))).tool_requests == (first, second)


def test_gemini_thoughts_are_reasoning_and_a_blocked_prompt_is_a_filtered_end() -> None:
    assert answer("gemini-generate", sent(gemini_chunk([{"text": "hm", "thought": True}]))).parts == (
        Reasoning(text="hm", provider="acme"),
    )
    blocked = answer("gemini-generate", sent({"promptFeedback": {"blockReason": "SAFETY"}}))
    assert (blocked.status, blocked.end_reason) == ("complete", "content_filter")


def test_gemini_an_error_in_place_of_a_stream_is_an_error() -> None:
    body = [{"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}]
    (failed,) = decode("gemini-generate", json.dumps(body).encode())
    assert isinstance(failed, AnswerFailed)
    assert (failed.kind, failed.status, failed.message) == ("rate_limit", 429, "Quota")
