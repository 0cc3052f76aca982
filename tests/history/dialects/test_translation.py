"""One conversation, several vendors: every request is fit for the vendor it goes to, every stream for its client."""

import json
import subprocess
import sys
from typing import Any

import pytest

from history.answers.assembly import Assembler
from history.answers.events import AnswerEnded, Event, ToolCallPiece
from history.context.rendering import render_context
from history.context.repair import find_unpaired
from history.context.values import ContextOptions, Snapshot
from history.dialects import DIALECTS, CallOptions, LossCode, context_of
from history.entries import Entry, ModelInput, ModelOutput, Node, Text, ToolResult, ToolResults
from tests.history.dialects.samples import ANTHROPIC, AT, CHAT, GEMINI, NAMES, STREAMS, TOOLS, answer

pytestmark = pytest.mark.no_database


@pytest.mark.parametrize("upstream", NAMES)
@pytest.mark.parametrize("client", NAMES)
def test_a_stream_of_one_vendor_is_understood_by_a_client_of_any_other(upstream: str, client: str) -> None:
    decoder = DIALECTS[upstream].stream_decoder("acme")
    encoder = DIALECTS[client].stream_encoder(model="m", reply_id="r1")
    stream = b"".join(encoder.feed(event) for event in (*decoder.feed(STREAMS[upstream]), *decoder.close()))
    translated, original = answer(client, stream + encoder.end()), answer(upstream, STREAMS[upstream])
    assert translated.text == original.text
    assert [(call.call_id, call.name, json.loads(call.arguments)) for call in translated.tool_requests] == [
        (call.call_id, call.name, json.loads(call.arguments)) for call in original.tool_requests
    ]
    assert (translated.status, translated.end_reason) == (original.status, original.end_reason)
    assert translated.usage is not None
    assert (translated.usage.input_tokens, translated.usage.output_tokens) == (100, 20)


def test_calls_without_arguments_reach_a_client_of_chat_with_an_empty_object() -> None:
    """What its SDK puts together, piece by piece, is JSON also where no piece brought any."""
    encoder = DIALECTS["openai-chat"].stream_encoder(model="m", reply_id="r1", with_usage=False)
    said: list[Event] = [
        ToolCallPiece(part="a", call_id="a", name="now"),
        ToolCallPiece(part="b", call_id="b", name="cpu", arguments='{"core"'),
        ToolCallPiece(part="b", arguments=":1}"),
        ToolCallPiece(part="a", arguments=""),
        ToolCallPiece(part="c", call_id="c", name="disk"),
        AnswerEnded(reason="tool_use"),
    ]
    stream = b"".join(map(encoder.feed, said)) + encoder.end()
    put_together = {0: "", 1: "", 2: ""}
    for line in stream.decode().splitlines():
        if line.startswith("data: {"):
            for call in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls", []):
                put_together[call["index"]] += call["function"]["arguments"]
    assert put_together == {0: "{}", 1: '{"core":1}', 2: "{}"}


def mixed_session() -> list[Entry]:
    """Anthropic plans, OpenAI executes with two parallel tools, Gemini reviews and calls once more."""
    entries: list[Entry] = [ModelInput(at=AT, parts=(Text(text="How is the machine?"),))]
    for dialect, provider, stream in (
        ("anthropic-messages", "anthropic", ANTHROPIC),
        ("openai-chat", "openai", CHAT),
        ("gemini-generate", "gemini", GEMINI),
    ):
        decoder = DIALECTS[dialect].stream_decoder(provider)
        events = decoder.feed(stream) + decoder.close()
        output = Assembler().feed_all(events).output(at=AT)
        results = tuple(
            ToolResult(call_id=call.call_id, name=call.name, parts=(Text(text="fine"),))
            for call in output.tool_requests
        )
        entries += [output, ToolResults(at=AT, results=results)]
    return entries


@pytest.mark.parametrize("name", NAMES)
def test_a_mixed_session_is_in_order_of_time_and_fit_for_every_vendor(name: str) -> None:
    nodes = tuple(Node(seq=seq, parent=seq - 1, entry=entry) for seq, entry in enumerate(mixed_session(), 1))
    snapshot = Snapshot(session_id="s", version=len(nodes), nodes=nodes, system_instruction="Be kind.", tools=TOOLS)
    context = render_context(snapshot, ContextOptions())
    assert [entry.seq for entry in context.entries] == [1, 2, 3, 4, 5, 6, 7]
    encoded = DIALECTS[name].encode(context, CallOptions(model="m", stream=True))
    decoded = DIALECTS[name].decode_request(encoded.body)
    said = [entry for entry in decoded.entries if isinstance(entry, ModelOutput)]
    assert [len(entry.tool_requests) for entry in said] == [2, 2, 2]
    assert len({call.call_id for entry in said for call in entry.tool_requests}) == 6
    assert find_unpaired(context.entries) == ()
    signature = "c2ln" in json.dumps(encoded.body)
    assert signature == (name == "gemini-generate")


def test_only_the_answer_of_gemini_itself_goes_back_to_it_with_a_signature() -> None:
    nodes = tuple(Node(seq=seq, parent=seq - 1, entry=entry) for seq, entry in enumerate(mixed_session(), 1))
    context = render_context(Snapshot(session_id="s", version=7, nodes=nodes), ContextOptions())
    encoded = DIALECTS["gemini-generate"].encode(context, CallOptions(model="m"))
    replaced = [loss.seq for loss in encoded.losses if loss.code is LossCode.SIGNATURE_REPLACED]
    assert replaced == [2, 4]


def test_dialects_know_nothing_of_django_and_open_no_connection() -> None:
    script = (
        "import sys, history.dialects, history.answers.assembly\n"
        "bad = {'django', 'channels', 'socket', 'aiohttp', 'requests', 'ssl'} & set(sys.modules)\n"
        "print(*sorted(bad))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_long_answer_in_many_pieces_costs_no_more_than_its_length(name: str) -> None:
    """Counted in bytes that are written, not in time: an encoder that repeats what it said would show here."""

    def written(pieces: int) -> int:
        encoder = DIALECTS[name].stream_encoder(model="m", reply_id="r1")
        decoder = DIALECTS["gemini-generate"].stream_decoder()
        chunk = b'data: {"candidates":[{"content":{"parts":[{"text":"word "}]}}]}\n\n'
        events = [event for _ in range(pieces) for event in decoder.feed(chunk)]
        return sum(len(encoder.feed(event)) for event in events) + len(encoder.end())

    assert written(2_000) < 2.2 * written(1_000)


# Files that lie at a vendor.

AT_GOOGLE = ("gs://bucket/a.png", "https://generativelanguage.googleapis.com/v1beta/files/a")


def translated(body: dict[str, Any], *, client: str, upstream: str) -> tuple[str, list[str]]:
    """What goes out, and what is named as lost."""
    decoded = DIALECTS[client].decode_request(body)
    encoded = DIALECTS[upstream].encode(context_of(decoded), CallOptions(model="m"))
    return json.dumps(encoded.body), [loss.code.value for loss in (*decoded.losses, *encoded.losses)]


@pytest.mark.parametrize("address", AT_GOOGLE)
@pytest.mark.parametrize("upstream", NAMES)
def test_a_file_that_only_google_opens_is_told_in_words_to_others(upstream: str, address: str) -> None:
    part = {"fileData": {"fileUri": address, "mimeType": "image/png"}}
    body = {"contents": [{"role": "user", "parts": [{"text": "See:"}, part]}]}
    sent, lost = translated(body, client="gemini-generate", upstream=upstream)
    is_google = upstream == "gemini-generate"
    assert (address in sent, "could not be sent" in sent) == (is_google, not is_google)
    assert lost == ([] if is_google else ["media_not_carried"])


@pytest.mark.parametrize("upstream", NAMES)
def test_a_public_picture_goes_by_its_address(upstream: str) -> None:
    part = {"fileData": {"fileUri": "https://example.org/a.png", "mimeType": "image/png"}}
    body = {"contents": [{"role": "user", "parts": [part]}]}
    sent, lost = translated(body, client="gemini-generate", upstream=upstream)
    assert "https://example.org/a.png" in sent
    assert lost == []


OF_CHAT, OF_RESPONSES = {"type": "file", "file": {"file_id": "file-1"}}, {"type": "input_file", "file_id": "file-1"}
HI, CALL = {"role": "user", "content": "Hi"}, {"id": "a", "function": {"name": "f", "arguments": "{}"}}
ITEM = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize("upstream", NAMES)
@pytest.mark.parametrize(
    ("client", "body"),
    [
        ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "See:"}, OF_CHAT]}]}),
        ("openai-chat", {"messages": [{"role": "system", "content": [OF_CHAT]}, HI]}),
        ("openai-chat", {"messages": [HI, {"role": "system", "content": [{"type": "text", "text": "See:"}, OF_CHAT]}]}),
        (
            "openai-chat",
            {
                "messages": [
                    HI,
                    {"role": "assistant", "tool_calls": [CALL]},
                    {"role": "tool", "tool_call_id": "a", "content": [OF_CHAT]},
                ]
            },
        ),
        ("openai-responses", {"input": [{"role": "user", "content": [OF_RESPONSES]}, HI]}),
        ("openai-responses", {"input": [{"role": "developer", "content": [OF_RESPONSES]}, HI]}),
        (
            "openai-responses",
            {"input": [HI, ITEM, {"type": "function_call_output", "call_id": "a", "output": [OF_RESPONSES]}]},
        ),
    ],
)
def test_a_file_by_its_id_is_named_as_not_carried_wherever_it_stands(
    client: str, body: dict[str, Any], upstream: str
) -> None:
    sent, lost = translated(body, client=client, upstream=upstream)
    assert "file-1" not in sent
    assert lost.count("part_not_carried") == 1
