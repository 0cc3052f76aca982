"""Paths for property tests: some as we write them ourselves, some as broken as an import can be."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

from hypothesis import strategies as st

from history.context.messages import dropped_entry
from history.context.values import ContextEntry, ContextOptions, Role, Snapshot
from history.entries import (
    Entry,
    Gap,
    MaskedResult,
    ModelInput,
    ModelOutput,
    Node,
    NotebookSet,
    OtherPart,
    Part,
    Reasoning,
    Retracted,
    Status,
    Summary,
    Text,
    ToolRequest,
    ToolResult,
    ToolResults,
    UnknownEntry,
)

AT = datetime(2026, 3, 4, tzinfo=UTC)
IDS = ("", "a", "b", "c")
LONG = "a longer text " * 20


def call(call_id: str, name: str = "read") -> ToolRequest:
    return ToolRequest(call_id=call_id, name=name)


def result(call_id: str, name: str = "read", text: str = "done") -> ToolResult:
    return ToolResult(call_id=call_id, name=name, parts=(Text(text=text),))


SO, NOTHING, BLANK, HOLLOW = Text(text="so"), Text(text=""), Text(text=" "), OtherPart(data={})
CALLS: list[tuple[Part, ...]] = [
    *((SO, call(one)) for one in IDS),
    *((call(one), call(two)) for one, two in product(IDS, IDS)),
    (SO, call("a"), call("b", "write"), call("c")),
]
OUTPUT_PARTS: list[tuple[Part, ...]] = [
    (SO,), (Text(text=LONG),), (), (NOTHING,), (BLANK,), (HOLLOW,), (Reasoning(signature="s"),), (Reasoning(), SO),
    (OtherPart(data={"type": "citation"}), SO), (call("a"), NOTHING), *CALLS,
]  # fmt: skip
INPUT_PARTS: list[tuple[Part, ...]] = [
    (Text(text="hello"),), (Text(text="你好，世界"),), (Text(text=LONG),), (), (NOTHING,), (BLANK, SO), (call("a"), SO),
]  # fmt: skip
RESULTS: list[tuple[ToolResult, ...]] = [
    (),
    *((result(one, name),) for one, name in product(IDS, ("read", "write"))),
    *((result(one), result(two, text=LONG)) for one, two in product(IDS, IDS)),
    (result("c"), result("b"), result("a")),
]
INPUTS = [
    *(ModelInput(at=AT, parts=parts) for parts in INPUT_PARTS),
    ModelInput(at=AT, parts=(SO,), is_internal=True),
    ModelInput(at=AT, parts=(SO,), channel="system"),
]
STATUSES: tuple[Status, ...] = ("complete", "interrupted", "failed")
OUTPUTS = [
    ModelOutput(at=AT, parts=parts, status=status, error="secret") for parts, status in product(OUTPUT_PARTS, STATUSES)
]
OTHERS: list[Entry] = [
    *(dropped_entry(kind, at=AT) for kind in ("model_input", "model_output", "tool_results")),
    Gap(at=AT, reason="a broken line"),
    NotebookSet(at=AT, content="secret note"),
    UnknownEntry(at=AT, data={"kind": "later"}),
]

# A step on a path is an entry, or something that depends on the steps before it.
ANSWER, RETRACT = "answer", "retract"
_NUMBERS = st.integers(0, 40)
SUMMARIES = st.tuples(st.booleans(), st.booleans(), _NUMBERS, _NUMBERS, _NUMBERS, st.integers(0, 2))
STEPS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(INPUTS[:3]),
    st.sampled_from(INPUTS),
    st.sampled_from(OUTPUTS),
    st.sampled_from([ToolResults(at=AT, results=results) for results in RESULTS]),
    st.just(ANSWER),
    st.just(ANSWER),
    st.sampled_from(OTHERS),
    SUMMARIES,
    SUMMARIES,
    st.just(RETRACT),
)
PATHS = st.one_of(*(st.lists(st.tuples(st.integers(1, 3), STEPS), min_size=few, max_size=20) for few in (0, 10)))


def paths() -> st.SearchStrategy[tuple[Node, ...]]:
    """A path with gaps in its numbers, and entries that answer what came before, or do not."""
    return PATHS.map(_walk)


def _walk(steps: list[tuple[int, Any]]) -> tuple[Node, ...]:
    nodes: list[Node] = []
    seq = 0
    for distance, step in steps:
        parent, seq = seq, seq + distance
        nodes.append(Node(seq=seq, parent=parent, entry=_entry(step, nodes)))
    return tuple(nodes)


def _entry(step: Any, before: list[Node]) -> Entry:
    if isinstance(step, tuple):
        return _summary(*step, numbers=[node.seq for node in before])
    if step == RETRACT:
        summaries = [node.seq for node in before if isinstance(node.entry, Summary)]
        return Retracted(at=AT, seq=summaries[-1] if summaries else 1)
    if step == ANSWER:
        outputs = [node.entry for node in before if isinstance(node.entry, ModelOutput)]
        return answer_to(outputs[-1]) if outputs else INPUTS[0]
    assert isinstance(step, Entry)
    return step


def _summary(astray: bool, within_turn: bool, *places: int, numbers: list[int]) -> Summary:
    """Of entries on the path; astray: of any numbers at all."""
    *named, index = places
    first, last, masked = named if astray or not numbers else [numbers[place % len(numbers)] for place in named]
    if not astray:
        first, last = min(first, last), max(first, last)
    masks = (MaskedResult(seq=masked, index=index),)
    return Summary(at=AT, first=first, last=last, summary="in short", within_turn=within_turn, masks=masks)


def answer_to(output: ModelOutput) -> ToolResults:
    return ToolResults(at=AT, results=tuple(result(asked.call_id, asked.name) for asked in output.tool_requests))


_SCREENS, _SURROUNDINGS = st.sampled_from([None, "12:00"]), st.sampled_from([None, "Today is Monday."])
OPTIONS = st.builds(
    ContextOptions,
    max_turns=st.one_of(st.none(), st.integers(1, 6)),
    max_messages=st.one_of(st.none(), st.integers(1, 12)),
    max_tokens=st.one_of(st.none(), st.integers(1, 600)),
    inject_notebook=st.booleans(),
    live_screen=_SCREENS,
    environment=_SURROUNDINGS,
    calibration=st.sampled_from([1.0, 0.7, 1.3]),
)


def options() -> st.SearchStrategy[ContextOptions]:
    return OPTIONS


def snapshot_of(nodes: tuple[Node, ...], **fields: Any) -> Snapshot:
    version = nodes[-1].seq if nodes else 0
    return Snapshot(session_id="s1", version=version, nodes=nodes, system_instruction="Be kind.", **fields)


MESSAGES = [
    *(ContextEntry(role=Role.MODEL_INPUT, parts=parts, origin=(1,)) for parts in INPUT_PARTS),
    ContextEntry(role=Role.SYSTEM, parts=(SO,), origin=(2,)),
    *(ContextEntry(role=Role.MODEL_OUTPUT, parts=parts, origin=(3,)) for parts in OUTPUT_PARTS),
    *(ContextEntry(role=Role.MODEL_OUTPUT, parts=parts) for parts in OUTPUT_PARTS),
    *(ContextEntry(role=Role.TOOL_RESULT, results=results, origin=(4,)) for results in RESULTS),
    *(ContextEntry(role=Role.TOOL_RESULT, results=results, live_screen="12:00") for results in RESULTS[1:]),
]
HEAPS = st.lists(st.sampled_from(MESSAGES), max_size=14)


def context_entries() -> st.SearchStrategy[list[ContextEntry]]:
    """Messages in any order at all."""
    return HEAPS
