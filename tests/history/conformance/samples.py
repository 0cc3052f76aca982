"""Entries to store: one of every kind with all its corners, and strategies for whole histories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from history.entries import (
    DebugLog,
    Entry,
    Gap,
    MaskedResult,
    Media,
    ModelInput,
    ModelOutput,
    NotebookSet,
    OtherPart,
    PlanSet,
    Reasoning,
    Retracted,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
    UnknownEntry,
    Usage,
    read_entry,
)

AT = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
ODD = 'a\0b \ud83d c 中文 😀 \u2028 \x1f \\ " {"$blob": "' + "0" * 64 + '"}'

EVERY_KIND: dict[str, Entry] = {
    "an instruction": SystemInstructionSet(at=AT, instruction=ODD),
    "tools": ToolsOffered(at=AT, tools=(ToolDefinition(name="clock", description="时间", parameters={"a": [None]}),)),
    "a notebook": NotebookSet(at=AT, content="likes tea", author="ada"),
    "a plan": PlanSet(at=AT, plan="- [x] look\n- [ ] 写", agent="helper"),
    "an input with everything": ModelInput(
        at=AT.astimezone(timezone(timedelta(hours=8))),
        channel="terminal",
        parts=(Text(text=ODD, extra={"cache": True}), Media(media_type="image/png", url="https://example.org/a.png")),
        raw="as typed",
        agent="operator",
        is_internal=True,
        metadata={"tenant": {"id": 7, "tags": ["a", {}]}, "$blob": "not ours"},
        extra={"new_field": [1, 2]},
    ),
    "an answer with everything": ModelOutput(
        at=AT,
        plan="first this",
        parts=(
            Reasoning(text="hm", signature="c2ln", provider="anthropic"),
            Reasoning(redacted="opaque"),
            Text(text=ODD),
            OtherPart(data={"type": "citation", "of": 1}),
        ),
        provider="anthropic",
        model="model-1",
        end_reason="end_turn",
        usage=Usage(input_tokens=120, output_tokens=30, cache_read_tokens=100, raw={"input": 120}),
        latency=0.25,
        duration=1.5,
        request_id="req_1",
    ),
    "an answer that failed": ModelOutput(at=AT, status="failed", error="overloaded", end_reason="upstream_error"),
    "an answer cut short": ModelOutput(at=AT, parts=(Text(text="so f"),), status="interrupted", end_reason="stopped"),
    "a summary": Summary(at=AT, first=1, last=1, summary="hello", masks=(MaskedResult(seq=1, index=0),)),
    "a retraction": Retracted(at=AT, seq=1, reason="wrong"),
    "a gap": Gap(at=AT, reason="three lines could not be read"),
    "a debug log": DebugLog(at=AT, category="timing", message="slow"),
    "a kind of tomorrow": read_entry({"kind": "planner_directive", "at": AT.isoformat(), "steps": [{"$literal": 1}]}),
    "a known kind, malformed": read_entry({"kind": "model_input", "at": AT.isoformat(), "parts": 7}),
}  # fmt: skip


def answer_with_calls(*call_ids: str, text: str = "", name: str = "clock", **fields: Any) -> ModelOutput:
    calls = tuple(ToolRequest(call_id=call_id, name=name, arguments='{"zone": "utc"}') for call_id in call_ids)
    said = (Text(text=text),) if text else ()
    return ModelOutput(parts=(*said, *calls), model="model-1", **fields)


def outcomes(*call_ids: str, text: str = "noon", name: str = "clock", **fields: Any) -> ToolResults:
    results = (ToolResult(call_id=one, name=name, parts=(Text(text=text),), **fields) for one in call_ids)
    return ToolResults(results=tuple(results))


def user_message(text: str, **fields: Any) -> ModelInput:
    return ModelInput(parts=(Text(text=text),), **fields)


def answered(text: str, **fields: Any) -> ModelOutput:
    return ModelOutput(parts=(Text(text=text),), model="model-1", **fields)


# Histories: stretches that a page may cut anywhere, except inside a call and its results.

BETWEEN = st.lists(
    st.sampled_from([
        SystemInstructionSet(instruction="be brief"),
        NotebookSet(content="likes tea"),
        Gap(reason="lost"),
        UnknownEntry(data={"kind": "planner_directive"}),
    ]),
    max_size=6,
)  # fmt: skip


@st.composite
def called(draw: st.DrawFn) -> list[Entry]:
    ids = [f"c{number}" for number in range(draw(st.integers(1, 3)))]
    return [answer_with_calls(*ids), *draw(BETWEEN), outcomes(*ids)]


STRETCHES = st.one_of(
    st.just([user_message("question")]),
    st.just([answered("answer")]),
    st.just([NotebookSet(content="likes coffee")]),
    called(),
)
HISTORIES = st.lists(STRETCHES, min_size=1, max_size=8).map(lambda parts: [entry for part in parts for entry in part])
