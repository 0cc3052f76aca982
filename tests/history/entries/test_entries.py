"""Entries: frozen, typed, and serialised to JSON without loss."""

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.entries import (
    KINDS,
    SCHEMA_VERSION,
    DebugLog,
    Entry,
    EntryError,
    Gap,
    HeadMoved,
    MaskedResult,
    Media,
    ModelInput,
    ModelOutput,
    NotebookSet,
    Numbering,
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
    entry_from_json,
    entry_to_json,
    kind_of,
    read_entry,
)
from tests.factories import example_count

pytestmark = pytest.mark.no_database

# Any text, lone surrogates and NUL included: models and tools produce them.
TEXTS = st.text(st.characters(), max_size=12)
NUMBERS = st.integers(-(2**53), 2**53)
SECONDS = st.one_of(st.none(), st.floats(0, 1e6))
TIMES = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=8)), timezone(timedelta(minutes=-210))]))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
# Fields of a schema that we do not know yet.
EXTRA = st.dictionaries(TEXTS.map(lambda name: f"later_{name}"), JSON, max_size=2)

PARTS = st.one_of(
    st.builds(Text, text=TEXTS, extra=EXTRA),
    st.builds(Media, media_type=TEXTS, sha256=TEXTS, url=TEXTS, name=TEXTS, size=NUMBERS, extra=EXTRA),
    st.builds(Reasoning, text=TEXTS, signature=TEXTS, provider=TEXTS, redacted=TEXTS, extra=EXTRA),
    st.builds(ToolRequest, call_id=TEXTS, name=TEXTS, arguments=TEXTS, extra=EXTRA),
    st.builds(OtherPart, data=OBJECTS.map(lambda data: {**data, "type": "of a later version"})),
)
PART_LISTS = st.lists(PARTS, max_size=3).map(tuple)
USAGE = st.builds(
    Usage, input_tokens=NUMBERS, source=st.sampled_from(["provider", "partial", "estimated"]), raw=OBJECTS
)
RESULTS = st.builds(
    ToolResult,
    call_id=TEXTS,
    name=TEXTS,
    status=st.sampled_from(["success", "failed", "skipped", "interrupted"]),
    parts=PART_LISTS,
    error=TEXTS,
    started_at=st.one_of(st.none(), TIMES),
    duration=SECONDS,
    metadata=OBJECTS,
    extra=EXTRA,
)
TOOLS = st.builds(ToolDefinition, name=TEXTS, description=TEXTS, parameters=OBJECTS, extra=EXTRA)
MASKS = st.builds(MaskedResult, seq=NUMBERS, index=NUMBERS)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "at": TIMES, "agent": TEXTS, "is_internal": st.booleans(), "metadata": OBJECTS, "extra": EXTRA,
}  # fmt: skip
OWN: dict[type[Entry], dict[str, st.SearchStrategy[Any]]] = {
    SystemInstructionSet: {"instruction": TEXTS},
    ToolsOffered: {"tools": st.lists(TOOLS, max_size=2).map(tuple)},
    NotebookSet: {"content": TEXTS, "author": TEXTS},
    PlanSet: {"plan": TEXTS},
    ModelInput: {"channel": TEXTS, "parts": PART_LISTS, "raw": st.one_of(st.none(), TEXTS)},
    ModelOutput: {
        "plan": st.one_of(st.none(), TEXTS), "parts": PART_LISTS, "provider": TEXTS, "model": TEXTS,
        "status": st.sampled_from(["complete", "interrupted", "failed"]), "end_reason": TEXTS, "error": TEXTS,
        "usage": st.one_of(st.none(), USAGE), "latency": SECONDS, "duration": SECONDS, "request_id": TEXTS,
    },
    ToolResults: {"results": st.lists(RESULTS, max_size=2).map(tuple), "overall": TEXTS},
    Summary: {
        "first": NUMBERS, "last": NUMBERS, "summary": TEXTS, "masks": st.lists(MASKS, max_size=2).map(tuple),
        "provider": TEXTS, "model": TEXTS,
    },
    Retracted: {"seq": NUMBERS, "reason": TEXTS},
    HeadMoved: {"to": NUMBERS, "reason": TEXTS},
    Gap: {"reason": TEXTS},
    DebugLog: {"category": TEXTS, "message": TEXTS},
}  # fmt: skip
BY_KIND = {cls.kind: st.builds(cls, **COMMON, **own) for cls, own in OWN.items()}


def there_and_back(entry: Entry) -> Entry:
    return entry_from_json(json.loads(json.dumps(entry_to_json(entry))))


def test_the_strategies_know_every_kind() -> None:
    assert set(BY_KIND) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_survives_json_without_loss(kind: str) -> None:
    @settings(max_examples=example_count(40), deadline=None)
    @given(BY_KIND[kind])
    def survives(entry: Entry) -> None:
        assert there_and_back(entry) == entry
        assert type(there_and_back(entry)) is KINDS[kind]
        assert entry_to_json(there_and_back(entry)) == entry_to_json(entry)

    survives()


@settings(max_examples=example_count(60), deadline=None)
@given(OBJECTS, TEXTS.filter(lambda kind: kind not in KINDS))
def test_an_unknown_kind_is_kept_exactly_as_it_came(data: dict[str, Any], kind: str) -> None:
    stored = {**data, "kind": kind}
    entry = entry_from_json(stored)
    assert isinstance(entry, UnknownEntry)
    assert entry_to_json(entry) == stored
    assert kind_of(entry) == kind[:40]


def test_a_later_schema_version_is_kept_and_shown_as_such() -> None:
    stored = {"kind": "gap", "v": SCHEMA_VERSION + 1, "reason": {"now": "an object"}}
    entry = entry_from_json(stored)
    assert isinstance(entry, UnknownEntry)
    assert "schema version" in entry.problem
    assert entry_to_json(entry) == stored


@settings(max_examples=example_count(60), deadline=None)
@given(st.one_of(JSON, OBJECTS.map(lambda data: {**data, "kind": "model_input"})))
def test_reading_never_fails_and_keeps_what_it_cannot_read(stored: Any) -> None:
    entry = read_entry(stored)
    if isinstance(entry, UnknownEntry) and isinstance(stored, dict):
        assert entry_to_json(entry) == stored


def test_defaults_are_not_written() -> None:
    at = datetime(2026, 3, 4, tzinfo=UTC)
    assert entry_to_json(ModelInput(at=at)) == {"kind": "model_input", "v": 1, "at": "2026-03-04T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        ([], "an entry is an object with a text 'kind'"),
        ({"kind": 3}, "an entry is an object with a text 'kind'"),
        ({"kind": "notebook_set"}, "notebook_set.at is missing"),
        ({"kind": "notebook_set", "at": "2026-03-04"}, "notebook_set.content is missing"),
        ({"kind": "notebook_set", "content": 3}, "notebook_set.content: expected a text, got int"),
        ({"kind": "head_moved", "to": True}, "head_moved.to: expected a whole number, got bool"),
        ({"kind": "model_input", "at": "noon"}, "model_input.at: expected an ISO 8601 time, got 'noon'"),
        ({"kind": "model_input", "parts": {}}, "model_input.parts: expected a list, got dict"),
        ({"kind": "model_input", "parts": [{"type": "text"}]}, "model_input.parts[0].text is missing"),
        (
            {"kind": "model_output", "status": "fine"},
            "model_output.status: expected one of complete, interrupted, failed",
        ),
        ({"kind": "model_output", "metadata": []}, "model_output.metadata: expected an object, got list"),
        (
            {"kind": "tool_results", "results": [{"call_id": "a", "name": "b"}, {"call_id": "a"}]},
            "tool_results.results[1].name is missing",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(stored: Any, complaint: str) -> None:
    with pytest.raises(EntryError) as caught:
        entry_from_json(stored)
    assert complaint in str(caught.value)


def test_entries_are_frozen_in_depth() -> None:
    given_metadata = {"deep": [{"er": [1]}]}
    entry = ModelInput(metadata=given_metadata, parts=(Text(text="hi"),))
    with pytest.raises(FrozenInstanceError):
        entry.channel = "x"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        entry.parts[0].text = "x"  # type: ignore[union-attr, misc]
    with pytest.raises(TypeError):
        entry.metadata["deep"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        entry.metadata["deep"][0]["er"] = 1
    given_metadata["deep"].clear()
    assert entry_to_json(entry)["metadata"] == {"deep": [{"er": [1]}]}


def test_metadata_is_not_shared() -> None:
    assert isinstance(ModelInput().metadata, Mapping)
    assert there_and_back(ModelInput(metadata={"a": 1})).metadata != ModelInput().metadata


def test_an_unknown_outcome_makes_no_entry() -> None:
    with pytest.raises(EntryError, match=r"ToolResult\.status is 'error', and must be one of success"):
        ToolResult(call_id="a", name="look", status="error")  # type: ignore[arg-type]


def test_a_fact_has_a_time_with_an_offset() -> None:
    assert Gap().at.tzinfo is not None
    assert entry_from_json({"kind": "gap", "at": "2025-12-31T10:00:00"}).at.tzinfo is UTC


def test_an_input_keeps_what_was_typed_beside_what_it_became() -> None:
    entry = ModelInput(raw="/ask  hi", parts=(Text(text="hi"), Media(media_type="image/png", name="a.png")))
    assert (entry.raw, entry.text, entry.channel) == ("/ask  hi", "hi", "chat")
    assert [media.name for media in entry.attachments] == ["a.png"]
    assert ModelInput(parts=(Text(text="hi"),)).raw is None


def test_calls_live_inside_an_answer_and_cut_off_arguments_stay_as_written() -> None:
    call = ToolRequest(call_id="c1", name="read", arguments='{"path": "/et')
    entry = there_and_back(ModelOutput(plan="look first", parts=(Text(text="Let me see."), call)))
    assert isinstance(entry, ModelOutput)
    assert entry.tool_requests == (call,)
    assert (entry.plan, entry.text) == ("look first", "Let me see.")
    assert "tool_request" not in KINDS


def test_results_are_one_entry_with_an_outcome_per_call() -> None:
    results = (
        ToolResult(call_id="a", name="x", parts=(Text(text="1"),)),
        ToolResult(call_id="b", name="y", error="no"),
    )
    assert ToolResults(results=results).text == "1\n\nno"
    assert ToolResults(results=results, overall="one of two").text == "one of two"


def test_roles_are_the_four_that_people_know() -> None:
    assert {cls.role for cls in KINDS.values()} == {"system", "user", "assistant", "tool"}
    assert (ModelInput.role, ModelOutput.role, ToolResults.role) == ("user", "assistant", "tool")


def test_an_internal_entry_says_so() -> None:
    assert there_and_back(ModelInput(is_internal=True)).is_internal
    assert "agent" in {field.name for field in fields(ModelOutput)}


def renumbering(**numbers: int) -> Numbering:
    found = Numbering()
    for old, new in numbers.items():
        found.add(int(old.removeprefix("n")), new)
    return found


def test_entries_that_name_others_can_be_renumbered() -> None:
    numbers = renumbering(n2=12, n3=13, n4=14, n5=15)
    summary = Summary(first=2, last=5, masks=(MaskedResult(seq=3, index=0), MaskedResult(seq=9, index=0)))
    moved = summary.renumbered(numbers)
    assert (moved.first, moved.last, moved.masks) == (12, 15, (MaskedResult(seq=13, index=0),))
    assert Retracted(seq=4).renumbered(numbers).seq == 14
    assert HeadMoved(to=4).renumbered(numbers).to == 14
    assert Gap(reason="x").renumbered(numbers).text == "x"


@pytest.mark.parametrize(
    ("first", "last", "range_in_the_copy"),
    [(1, 4, (1, 2)), (3, 9, (2, 3)), (5, 6, (0, 0)), (0, 0, (0, 0)), (0, 4, (0, 0)), (8, 2, (0, 0))],
)
def test_a_range_becomes_that_of_its_entries_in_the_copy(
    first: int, last: int, range_in_the_copy: tuple[int, int]
) -> None:
    moved = Summary(first=first, last=last).renumbered(renumbering(n2=1, n4=2, n8=3))
    assert (moved.first, moved.last) == range_in_the_copy


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "yesterday", 7])
def test_a_time_that_no_calendar_holds_is_named(time: object) -> None:
    with pytest.raises(EntryError, match=r"model_input\.at: expected an ISO 8601 time"):
        entry_from_json({"kind": "model_input", "at": time})


def test_what_is_nested_too_deeply_is_refused_and_not_a_crash() -> None:
    deep: object = "end"
    for _ in range(200):
        deep = [deep]
    bottomless = {"kind": "model_input", "at": "2026-01-02T03:04:05+00:00", "metadata": {"deep": deep}}
    with pytest.raises(EntryError, match="nested too deeply"):
        entry_from_json(bottomless)
    shown = read_entry(bottomless)
    assert isinstance(shown, UnknownEntry)
    assert "nested too deeply" in shown.problem
