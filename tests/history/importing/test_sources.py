"""Files in wrong letters, too large, cut off, or nothing at all."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from history.formats import sources
from history.formats.base import Conversation, FormatError, UnreadableConversation
from history.formats.readers import reader_for
from history.formats.reports import note_text
from history.formats.sources import Source
from tests.history.importing.files import (
    chatgpt,
    chatgpt_node,
    claude_code,
    codex_meta,
    codex_said,
    document,
    lines,
    path_of,
    read_all,
    read_one,
    source_of,
    text,
    texts,
)

HELLO = [{"role": "user", "content": "Grüße, 世界"}, {"role": "assistant", "content": "déjà vu"}]


@pytest.mark.parametrize(
    "encode",
    [
        lambda words: words.encode("utf-8"),
        lambda words: words.encode("utf-8-sig"),
        lambda words: words.encode("utf-16"),
        lambda words: words.encode("utf-16-le"),
        lambda words: words.encode("utf-16-be"),
        lambda words: words.encode("utf-32"),
    ],
    ids=["utf-8", "mark", "utf-16", "utf-16-le", "utf-16-be", "utf-32"],
)
def test_letters_are_read_as_they_were_written(encode: Callable[[str], bytes]) -> None:
    for words in (json.dumps({"messages": HELLO}, ensure_ascii=False), json.dumps(HELLO, ensure_ascii=False)):
        assert texts(path_of(read_one(encode(words)))) == ["Grüße, 世界", "déjà vu"]


def test_latin_letters_are_read_and_that_is_said() -> None:
    content = json.dumps({"messages": [{"role": "user", "content": "Grüße"}]}, ensure_ascii=False).encode("latin-1")
    source = source_of(content)
    reader = reader_for(source.sample)
    assert reader is not None
    found = next(reader.read(source))
    assert isinstance(found, Conversation)
    assert texts(path_of(found)) == ["Grüße"]
    assert [note_text(note) for note in source.notes.as_tuple()] == [
        "The file is not UTF-8. It was read as Windows-1252 (Latin-1)."
    ]


def test_one_wrong_byte_does_not_make_all_letters_wrong() -> None:
    content = json.dumps({"messages": HELLO}, ensure_ascii=False).encode().replace(b"vu", b"v\xff")
    source = source_of(content)
    assert source.encoding.name == "utf-8"
    assert texts(path_of(read_one(content))) == ["Grüße, 世界", "déjà v\ufffd"]


def test_a_list_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    whole = document(
        [
            chatgpt(chatgpt_node("u", None, "user", [f"Number {n}."]), id=f"c{n}", conversation_id=f"c{n}")
            for n in range(5)
        ]
    )
    source = source_of(whole[: len(whole) * 7 // 10])
    reader = reader_for(source.sample)
    assert reader is not None
    found = [one for one in reader.read(source) if isinstance(one, Conversation)]
    assert len(found) >= 3
    assert "damaged or incomplete" in source.notes.as_tuple()[0].what


def test_a_document_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    messages = [{"id": f"m{n}", "type": "user", "content": f"Number {n}."} for n in range(20)]
    whole = document({"sessionId": "s", "startTime": "2026-01-01T00:00:00Z", "projectHash": "p", "messages": messages})
    found = read_one(whole[: len(whole) // 2])
    assert 5 <= len(found.nodes) < 20


def test_what_is_too_large_for_one_conversation_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_CONVERSATION", 100_000)
    long = "x" * 60_000
    many = document([{"messages": [{"role": "user", "content": long}]}] * 20)
    assert len(read_all(many)) == 20, "a file may be as long as it likes"
    for content in (
        document([{"messages": [{"role": "user", "content": long * 3}]}]),
        document({"messages": [{"role": "user", "content": long * 3}]}),
        lines(*(claude_code("user", f"u{n}", None, long) for n in range(3))),
    ):
        with pytest.raises(FormatError, match="MB are not read"):
            read_all(content)


def test_a_line_that_is_too_long_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINE", 1_000)
    monkeypatch.setattr(sources, "MEGABYTE", 100)
    short = {"messages": [{"role": "user", "content": "Hi."}]}
    found = read_all(lines(short, {"messages": [{"role": "user", "content": "x" * 5_000}]}, short | {"id": "2"}))
    assert [type(one) for one in found] == [Conversation, UnreadableConversation, Conversation]


def test_deep_nesting_and_millions_of_values_are_refused_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "MAX_VALUES", 10_000)
    deep = b'[{"mapping": ' + b"[" * 100_000
    crowded = b'[{"mapping": [' + b"{}," * 10_100
    for content in (deep, crowded):
        with pytest.raises(FormatError, match="nested too deeply or has too many values"):
            list(source_of(content).items())
    with pytest.raises(FormatError, match="too many values"):
        assert source_of(b'{"messages": [' + b"{}," * 10_100 + b"{}]}\n").sample


@pytest.mark.parametrize(
    "content", [b"", b" \n ", b"hello", b"\0" * 100, b"PK\x03\x04", b"[]", b"{}", b"[1, 2]", b"<html>"]
)
def test_a_file_without_a_conversation_has_no_reader(content: bytes) -> None:
    assert reader_for(source_of(content).sample) is None


SAMPLES = [
    lines(
        claude_code("user", "u1", None, "Hi."),
        claude_code(
            "assistant", "a1", "u1", [text("Hello."), {"type": "tool_use", "id": "t", "name": "x", "input": {}}]
        ),
        claude_code("user", "r1", "a1", [{"type": "tool_result", "tool_use_id": "t", "content": "y"}]),
    ),
    lines(codex_meta(), codex_said("user", "Hi."), codex_said("assistant", "Hello.")),
    document([chatgpt(chatgpt_node("u", None, "user", ["Hi."]), chatgpt_node("a", "u", "assistant", ["Hello."]))]),
    document(
        {"session_id": "s", "created_at": "2025-12-31T10:00:00", "messages": [{"role": "user", "content": "Hi."}]}
    ),
    document(
        {"sessionId": "s", "startTime": "2026-01-01", "messages": [{"id": "1", "type": "user", "content": "Hi."}]}
    ),
    lines({"conversations": [{"from": "human", "value": "Hi."}]}),
    lines({"messages": HELLO}),
]


def _swallowed(content: bytes) -> None:
    """Either it is read, or refused in words; nothing else happens."""
    source = source_of(content)
    try:
        reader = reader_for(source.sample)
        found = list(reader.read(source)) if reader else []
    except FormatError:
        return
    for one in found:
        assert isinstance(one, UnreadableConversation) or all(
            node.parent is None or node.parent < place for place, node in enumerate(one.nodes)
        )


@given(sample=st.sampled_from(SAMPLES), start=st.integers(0, 300), length=st.integers(0, 2_000))
def test_any_piece_of_a_file_is_read_or_refused(sample: bytes, start: int, length: int) -> None:
    _swallowed(sample[start : start + length])


@given(sample=st.sampled_from(SAMPLES), place=st.integers(0, 2_000), rubbish=st.binary(max_size=20))
def test_rubbish_anywhere_is_read_over_or_refused(sample: bytes, place: int, rubbish: bytes) -> None:
    _swallowed(sample[:place] + rubbish + sample[place + len(rubbish) :])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_any_value_in_any_place_is_borne(sample: bytes, data: st.DataObject) -> None:
    """Take a real file and put something else where a value was."""
    try:
        records = [json.loads(sample)]
    except ValueError:
        records = [json.loads(line) for line in sample.splitlines()]
    changed = _changed(records, data)
    content = lines(*changed) if len(records) > 1 else json.dumps(changed[0]).encode()
    _swallowed(content)


def _changed(value: object, data: st.DataObject) -> list[object]:
    """A copy in which one value, somewhere, is another."""
    copy = json.loads(json.dumps(value))
    spot, key = copy, data.draw(st.integers(0, len(copy) - 1))
    while isinstance(spot[key], dict | list) and spot[key] and data.draw(st.integers(0, 9)):
        spot = spot[key]
        key = data.draw(st.sampled_from(list(spot) if isinstance(spot, dict) else list(range(len(spot)))))
    spot[key] = data.draw(JSON)
    assert isinstance(copy, list)
    return copy


def test_memory_does_not_grow_with_the_length_of_a_list(tmp_path: Path) -> None:
    """Twelve megabytes, of which no more is held at once than a few conversations."""
    path = tmp_path / "conversations.json"
    words = "The quick brown fox jumps over the lazy dog. " * 200
    with path.open("w") as file:
        file.write("[")
        for number in range(450):
            nodes = [chatgpt_node(f"n{n}", f"n{n - 1}" if n else None, "user", [words]) for n in range(3)]
            file.write(
                ("," if number else "") + json.dumps(chatgpt(*nodes, id=f"c{number}", conversation_id=f"c{number}"))
            )
        file.write("]")
    assert path.stat().st_size > 12_000_000
    source = Source("conversations.json", lambda: path.open("rb"))
    reader = reader_for(source.sample)
    assert reader is not None
    tracemalloc.start()
    count = sum(isinstance(found, Conversation) for found in reader.read(source))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 450
    assert peak < 3_000_000
