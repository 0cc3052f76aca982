"""Packing and unpacking of entries: nothing is lost, for any text and any blobs."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.db import packing
from history.entries import (
    Entry,
    Media,
    ModelInput,
    ModelOutput,
    NotebookSet,
    OtherPart,
    Reasoning,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
    read_entry,
)
from tests.factories import example_count
from tests.history.conformance.samples import EVERY_KIND, ODD

# Any code point at all: NUL, lone surrogates, what JSON escapes; and what looks like our own references.
LOOK_ALIKES = st.sampled_from(["$blob", "$json_blob", "$$blob", "$", "0" * 64, '{"$blob":"' + "0" * 64 + '"}'])
TEXTS = st.text(st.characters(), max_size=40) | LOOK_ALIKES
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
# Fields that no schema has, so that they are read back into `extra`.
EXTRA = st.dictionaries(TEXTS.map(lambda name: f"${name}") | LOOK_ALIKES, JSON, max_size=2)
TIMES = st.datetimes(min_value=datetime(1971, 1, 1), timezones=st.just(UTC))

PARTS = st.one_of(
    st.builds(Text, text=TEXTS, extra=EXTRA),
    st.builds(Media, media_type=TEXTS, url=TEXTS, name=TEXTS, size=st.integers(0, 9)),
    st.builds(Reasoning, text=TEXTS, signature=TEXTS),
    st.builds(ToolRequest, call_id=TEXTS, name=TEXTS, arguments=TEXTS, extra=EXTRA),
    st.builds(OtherPart, data=OBJECTS.map(lambda data: {**data, "type": "tomorrow"})),
)
RESULTS = st.builds(
    ToolResult, call_id=TEXTS, name=TEXTS, parts=st.lists(PARTS, max_size=2).map(tuple), metadata=OBJECTS
)
TOOLS = st.builds(ToolDefinition, name=TEXTS, description=TEXTS, parameters=OBJECTS)
COMMON = {"at": TIMES, "metadata": OBJECTS, "extra": EXTRA, "agent": TEXTS}
ENTRIES = st.one_of(
    st.builds(ModelInput, parts=st.lists(PARTS, max_size=3).map(tuple), raw=st.none() | TEXTS, **COMMON),
    st.builds(ModelOutput, parts=st.lists(PARTS, max_size=3).map(tuple), plan=st.none() | TEXTS, **COMMON),
    st.builds(ToolResults, results=st.lists(RESULTS, max_size=2).map(tuple), **COMMON),
    st.builds(ToolsOffered, tools=st.lists(TOOLS, max_size=2).map(tuple), **COMMON),
    st.builds(SystemInstructionSet, instruction=TEXTS, **COMMON),
    OBJECTS.map(lambda data: read_entry({**data, "kind": "planner_directive"})),
)


def there_and_back(entry: Entry) -> Entry:
    packed = packing.pack(entry)
    assert set(packing.blobs_in(packed.body)) >= set(packed.blobs)
    return packing.unpack(packed.body, packed.blobs)


@settings(max_examples=example_count(200), deadline=None, derandomize=True)
@given(entry=ENTRIES, limit=st.sampled_from([0, 1, 5, 30, 65_536]))
def test_any_entry_comes_back_with_any_strings_moved_to_blobs(entry: Entry, limit: int) -> None:
    # The limit is a constant of the module; small ones bring every string to the border.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "LONG_TEXT", limit)
        patch.setattr(packing, "LONG_STATE", limit)
        assert there_and_back(entry) == entry


@settings(max_examples=example_count(100), deadline=None, derandomize=True)
@given(entry=ENTRIES)
def test_a_body_is_text_that_any_database_takes(entry: Entry) -> None:
    body = packing.pack(entry).body
    assert "\0" not in body
    assert body.encode().decode() == body


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_kind_comes_back(name: str) -> None:
    assert there_and_back(EVERY_KIND[name]) == EVERY_KIND[name]


@pytest.mark.parametrize("length", [packing.LONG_TEXT, packing.LONG_TEXT + 1])
def test_only_a_text_beyond_the_limit_leaves_the_row(length: int) -> None:
    packed = packing.pack(ModelInput(parts=(Text(text="长" * length),)))
    assert len(packed.blobs) == (length > packing.LONG_TEXT)
    assert there_and_back(ModelInput(parts=(Text(text=ODD * 2_000),))).text == ODD * 2_000


def test_a_blob_lies_under_the_hash_of_its_bytes() -> None:
    text = "x" * 70_000
    assert dict(packing.pack(NotebookSet(content=text)).blobs) == {sha256(text.encode()).hexdigest(): text.encode()}


def test_tool_definitions_are_one_blob_and_what_looks_like_its_name_is_not_taken_for_it() -> None:
    tools = (ToolDefinition(name="clock", description="d" * 2_000),)
    name = next(iter(packing.pack(ToolsOffered(tools=tools)).blobs))
    impostor = ToolsOffered(tools=tools, metadata={"seen": {"$json_blob": name}})
    assert there_and_back(impostor) == impostor


def test_a_missing_blob_is_named() -> None:
    packed = packing.pack(NotebookSet(content="x" * 70_000))
    with pytest.raises(packing.MissingBlob, match=next(iter(packed.blobs))):
        packing.unpack(packed.body, {})


def test_an_entry_beyond_all_measure_is_refused() -> None:
    with pytest.raises(packing.EntryTooLarge, match="67,108,864"):
        packing.pack(NotebookSet(content="x" * (packing.MAX_ENTRY_CHARS + 1)))


def test_a_body_that_cannot_be_read_is_shown_as_what_it_is() -> None:
    entry = packing.unpack('{"kind":"model_input","at":7}', {})
    assert entry.kind == "unknown"


@settings(max_examples=example_count(100), deadline=None, derandomize=True)
@given(inputs=OBJECTS)
def test_inputs_come_back_with_clean_texts(inputs: dict[str, Any]) -> None:
    stored, blobs = packing.pack_inputs({"given": inputs, "prompt": "p" * 2_000})
    assert len(blobs) >= 1
    read = packing.restore(stored, blobs)
    assert read["prompt"] == "p" * 2_000
    assert "\0" not in packing.dump(read).replace("\\u0000", "\0")


@pytest.mark.parametrize(
    ("text", "clean"), [("a\0b", "a�b"), ("a\ud83db", "a�b"), ("\ud83d\ude00", "😀"), ("中文", "中文")]
)
def test_a_column_gets_clean_text(text: str, clean: str) -> None:
    assert packing.clean(text) == clean


def test_metadata_for_a_column_is_short_and_finite() -> None:
    cleaned = packing.clean_json({"a": float("nan"), "b": "x" * 5_000, "c\0": [1, "\0"], "many": list(range(500))})
    assert cleaned["a"] is None
    assert (len(cleaned["b"]), cleaned["c�"], len(cleaned["many"])) == (4_096, [1, "�"], 100)
