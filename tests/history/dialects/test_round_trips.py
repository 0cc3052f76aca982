"""What goes through a language comes back the same, but for what it cannot carry: the losses, spelled out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.answers.assembly import Assembler
from history.answers.events import END_REASONS, Event, ReasoningPiece, TextPiece, ToolCallPiece, end_reason
from history.context.values import Context, ContextEntry, Role
from history.dialects import DIALECTS, CallOptions, LossCode, context_of
from history.dialects.json_access import from_base64
from history.entries import (
    Media,
    ModelOutput,
    Part,
    Reasoning,
    ResultStatus,
    Status,
    Text,
    ToolRequest,
    ToolResult,
    Usage,
    text_of,
)
from tests.factories import example_count
from tests.history.dialects.samples import AT, NAMES, PNG, events_of

pytestmark = pytest.mark.no_database

every_dialect = pytest.mark.parametrize("name", NAMES)

WORDS = st.one_of(
    st.text(min_size=1, max_size=6), st.sampled_from(["你好", "a\r\nb", "data: x\n\n", "\x00", " ", "😀"])
)
ARGUMENTS = st.one_of(
    st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3)), max_size=2).map(json.dumps),
    st.sampled_from(['{"cut', "{}", "[1]", '{"a": "b', "nonsense"]),
)
SIGNATURES = st.sampled_from(["", "c2ln", "Z2Vt"])


def texts() -> st.SearchStrategy[Part]:
    return st.builds(Text, text=WORDS)


def reasonings() -> st.SearchStrategy[Part]:
    open_ones = st.builds(Reasoning, text=WORDS, signature=SIGNATURES, provider=st.just("acme"))
    hidden = st.sampled_from([Reasoning(redacted="xx", provider="acme"), Reasoning(signature="c2ln", provider="acme")])
    return st.one_of(open_ones, hidden)


@st.composite
def outputs(draw: st.DrawFn) -> ModelOutput:
    parts = list(draw(st.lists(st.one_of(texts(), reasonings()), max_size=4)))
    for number, arguments in enumerate(draw(st.lists(ARGUMENTS, max_size=3))):
        place = draw(st.integers(0, len(parts)))
        parts.insert(place, ToolRequest(call_id=f"call_{number}", name="cpu", arguments=arguments))
    read, written, fresh = draw(st.tuples(*[st.integers(0, 99)] * 3))
    thought, told = draw(st.tuples(*[st.integers(0, 99)] * 2))
    usage = Usage(
        input_tokens=fresh + read + written,
        output_tokens=thought + told,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
    )
    statuses: tuple[Status, ...] = ("complete", "complete", "interrupted", "failed")
    status = draw(st.sampled_from(statuses))
    return ModelOutput(
        at=AT,
        parts=tuple(parts),
        provider="acme",
        model="m",
        request_id="r1",
        status=status,
        end_reason=draw(st.sampled_from(END_REASONS)) if status == "complete" else "",
        error="oh 不" if status == "failed" else "",
        usage=usage,
    )


# Answers, through a stream.


@st.composite
def pieces_of(draw: st.DrawFn, output: ModelOutput) -> list[Event]:
    """The events of an answer, in smaller pieces; those of calls that stand side by side may come mixed."""
    events: list[Event] = []
    for kind, group in groupby(events_of(output), key=type):
        found = [_cut(draw, event) for event in group]
        if kind is ToolCallPiece:
            while any(found):
                events.append(draw(st.sampled_from([pieces for pieces in found if pieces])).pop(0))
        else:
            events.extend(piece for pieces in found for piece in pieces)
    return events


def _cut(draw: st.DrawFn, event: Event) -> list[Event]:
    if isinstance(event, TextPiece):
        return [replace(event, text=piece) for piece in _halves(draw, event.text)]
    if isinstance(event, ReasoningPiece) and event.text:
        thoughts: list[Event] = [replace(event, text=piece, signature="") for piece in _halves(draw, event.text)]
        return [*thoughts, replace(event, text="")]
    if isinstance(event, ToolCallPiece):
        first, *rest = _halves(draw, event.arguments)
        later: list[Event] = [ToolCallPiece(part=event.part, arguments=piece) for piece in rest]
        return [replace(event, arguments=first), *later]
    return [event]


def _halves(draw: st.DrawFn, text: str) -> list[str]:
    place = draw(st.integers(0, len(text)))
    return [text[:place], text[place:]]


@every_dialect
@given(data=st.data())
@settings(deadline=None, max_examples=example_count(120))
def test_an_answer_comes_back_through_a_stream_in_any_chunking(name: str, data: st.DataObject) -> None:
    output = data.draw(outputs())
    encoder = DIALECTS[name].stream_encoder(model="m", reply_id="r1")
    events = data.draw(pieces_of(output))
    stream = b"".join(encoder.feed(event) for event in events) + encoder.end()
    decoder = DIALECTS[name].stream_decoder("acme")
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    chunks = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    decoded = [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.close()
    # Where the calls were mixed with each other, they stand in the order in which they began.
    began = Assembler(provider="acme").feed_all(events).output(at=AT)
    again = Assembler(provider="acme").feed_all(decoded).output(at=AT)
    assert comparable(again) == comparable(replace(began, parts=carried(name, began.parts)))
    assert (again.status, again.error) == (output.status, output.error)
    if output.status == "complete":
        assert again.end_reason == carried_reason(name, output)
        assert counts(again) == counts(output, name)


@every_dialect
@given(output=outputs())
@settings(deadline=None, max_examples=example_count(80))
def test_an_answer_comes_back_through_a_whole_reply(name: str, output: ModelOutput) -> None:
    output = replace(output, status="complete", end_reason=output.end_reason or "stop", error="")
    events = DIALECTS[name].decode_reply(DIALECTS[name].encode_reply(output, reply_id="r1"))
    again = Assembler(provider="acme").feed_all(events).output(at=AT)
    expected = carried(name, output.parts)
    if name == "openai-chat":
        kinds = (Reasoning, Text, ToolRequest)
        expected = tuple(sorted(expected, key=lambda part: [isinstance(part, kind) for kind in kinds], reverse=True))
    assert comparable(again) == comparable(replace(output, parts=expected))
    assert again.end_reason == carried_reason(name, output)
    assert counts(again) == counts(output, name)


def comparable(output: ModelOutput) -> list[Any]:
    """Parts as they count: arguments by their value, ids of reasoning not at all."""
    return [
        ("call", part.call_id, part.name, _value(part.arguments))
        if isinstance(part, ToolRequest)
        else replace(part, extra={})
        for part in output.parts
    ]


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def carried(name: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """What is left of an answer in this language."""
    if name == "openai-chat":
        return tuple(_in_chat(parts))
    if name != "anthropic-messages":
        parts = tuple(part for part in parts if not (isinstance(part, Reasoning) and part.redacted))
    if name == "gemini-generate":
        parts = tuple(piece for part in parts for piece in _in_gemini(part))
    return parts if name == "openai-responses" else tuple(glued(parts, thoughts=name == "gemini-generate"))


def _in_chat(parts: tuple[Part, ...]) -> Iterator[Part]:
    """One thought, one text and the calls, in the order in which each began; no signatures."""
    thought = "\n\n".join(part.text for part in parts if isinstance(part, Reasoning) and part.text)
    seen: set[type] = set()
    for part in parts:
        if isinstance(part, ToolRequest):
            yield part
        elif isinstance(part, Text) and Text not in seen:
            yield Text(text=text_of(parts))
        elif isinstance(part, Reasoning) and part.text and Reasoning not in seen:
            yield Reasoning(text=thought, provider="acme")
        if not isinstance(part, Reasoning) or part.text:
            seen.add(type(part))


def _in_gemini(part: Part) -> Iterator[Part]:
    """A thought and its signature are two parts."""
    if not isinstance(part, Reasoning):
        yield part
        return
    if part.text:
        yield Reasoning(text=part.text, provider="acme")
    if part.signature and from_base64(part.signature) is not None:
        yield Reasoning(signature=part.signature, provider="acme")


def glued(parts: tuple[Part, ...], *, thoughts: bool) -> Iterator[Part]:
    """Texts in a row are one text; so are Gemini's thoughts in a row, which have no borders."""
    for kind, group in groupby(parts, key=lambda part: (type(part), bool(getattr(part, "signature", "")))):
        found = list(group)
        text = "".join(part.text for part in found if isinstance(part, Text | Reasoning))
        if kind[0] is Text:
            yield Text(text=text)
        elif thoughts and kind == (Reasoning, False):
            yield Reasoning(text=text, provider="acme")
        else:
            yield from found


def carried_reason(name: str, output: ModelOutput) -> str:
    reason = end_reason(output.end_reason)
    calls = bool(output.tool_requests)
    if name == "anthropic-messages":
        return {"content_filter": "refusal", "other": "stop"}.get(reason, reason)
    if reason == "refusal":
        return "content_filter"
    if reason == "other" and name == "gemini-generate":
        return "other"
    if reason in ("stop", "pause", "other") or (reason == "tool_use" and name != "openai-chat"):
        return "tool_use" if calls else "stop"
    return reason


def counts(output: ModelOutput, name: str = "") -> tuple[int, ...]:
    usage = output.usage or Usage()
    written = 0 if name == "gemini-generate" else usage.cache_write_tokens
    return usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, written, usage.reasoning_tokens


# Conversations, through a request.

IMAGE = Media(media_type="image/png", sha256="4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6", size=8)


@st.composite
def contexts(draw: st.DrawFn, provider: str) -> Context:
    entries: list[ContextEntry] = [ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text="hello"),))]
    for number in range(draw(st.integers(0, 4))):
        entries += draw(turns(number, provider))
    return Context(entries=tuple(entries), system=draw(st.sampled_from(["", "Be kind."])))


@st.composite
def turns(draw: st.DrawFn, number: int, provider: str) -> list[ContextEntry]:
    words = st.sampled_from(["one", "你好", "a\n\nb"])
    said = [ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=draw(words)), *draw(st.sampled_from([(), (IMAGE,)]))))]
    if draw(st.booleans()):
        said.append(ContextEntry(role=Role.SYSTEM, parts=(Text(text="Be brief."),)))
    thought = draw(st.sampled_from([(), (Reasoning(text="hm", signature="c2ln", provider=provider),)]))
    calls = tuple(
        ToolRequest(call_id=f"call_{number}_{place}", name="cpu", arguments=draw(ARGUMENTS))
        for place in range(draw(st.integers(0, 2)))
    )
    answer = ContextEntry(role=Role.MODEL_OUTPUT, parts=(*thought, Text(text=draw(words)), *calls))
    statuses: tuple[ResultStatus, ...] = ("success", "failed")
    results = tuple(
        ToolResult(
            call_id=call.call_id, name="cpu", status=draw(st.sampled_from(statuses)), parts=(Text(text=draw(words)),)
        )
        for call in calls
    )
    return [*said, answer, ContextEntry(role=Role.TOOL_RESULT, results=results)] if calls else [*said, answer]


EXPECTED_LOSSES = {
    "openai-chat": {LossCode.REASONING_NOT_CARRIED, LossCode.STATUS_NOT_CARRIED},
    "openai-responses": {LossCode.STATUS_NOT_CARRIED},
    "anthropic-messages": {LossCode.SYSTEM_AS_TEXT, LossCode.ARGUMENTS_WRAPPED},
    "gemini-generate": {LossCode.SYSTEM_AS_TEXT, LossCode.ARGUMENTS_WRAPPED, LossCode.SIGNATURE_REPLACED},
}


@every_dialect
@given(data=st.data())
@settings(deadline=None, max_examples=example_count(80))
def test_a_conversation_comes_back_through_a_request(name: str, data: st.DataObject) -> None:
    dialect = DIALECTS[name]
    context = data.draw(contexts(dialect.HTTP_API.vendor))
    encoded = dialect.encode(context, CallOptions(model="m", media={IMAGE.sha256: PNG}.__getitem__))
    decoded = dialect.decode_request(json.loads(json.dumps(encoded.body)))
    again = context_of(decoded)
    assert again.system == context.system
    assert summary(name, again) == summary(name, context)
    assert {loss.code for loss in encoded.losses} <= EXPECTED_LOSSES[name]
    assert not again.report.remarks
    # What was read and is sent once more is the same request.
    assert dialect.encode(again, CallOptions(model="m", media=decoded.blobs.__getitem__)).body == encoded.body


def summary(name: str, context: Context) -> list[Any]:
    """A conversation as it counts in this language: what one side said in a row is one message."""
    entries = [_as_sent(name, entry) for entry in context.entries]
    written = []
    for role, group in groupby(entries, key=lambda entry: entry.role):
        found = list(group)
        text = "\n\n".join(text_of(entry.parts) for entry in found)
        written.append((role, text, [item for entry in found for item in _items(name, entry)]))
    return written


def _as_sent(name: str, entry: ContextEntry) -> ContextEntry:
    if entry.role is Role.SYSTEM and name in ("anthropic-messages", "gemini-generate"):
        text = Text(text=f"<system>\n{text_of(entry.parts)}\n</system>")
        return ContextEntry(role=Role.MODEL_INPUT, parts=(text,))
    return entry


def _items(name: str, entry: ContextEntry) -> Iterator[Any]:
    for part in entry.parts:
        if isinstance(part, ToolRequest):
            yield part.call_id, part.name, _value(part.arguments)
        elif isinstance(part, Media):
            yield part.sha256
        elif isinstance(part, Reasoning) and name != "openai-chat":
            yield part.signature, part.provider
    for result in entry.results:
        has_status = name in ("anthropic-messages", "gemini-generate")
        yield result.call_id, result.name, result.text, result.status if has_status else "success"
