"""Server-sent events and JSON objects, out of bytes that were cut anywhere."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from history.dialects.sse import Documents, SSEDecoder, sse

pytestmark = pytest.mark.no_database


def events(*chunks: bytes) -> list[tuple[str, str]]:
    decoder = SSEDecoder()
    found = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [(event.name, event.data) for event in (*found, *decoder.close())]


def test_lines_may_end_in_lf_cr_or_crlf() -> None:
    for end in (b"\n", b"\r", b"\r\n"):
        assert events(end.join([b"event: a", b"data: 1", b"", b"data: 2", b"", b""])) == [("a", "1"), ("", "2")]


def test_a_crlf_that_is_cut_in_two_is_one_line_end() -> None:
    assert events(b"data: 1\r", b"\n", b"data: 2\r", b"\n\r", b"\n") == [("", "1\n2")]


def test_a_character_that_is_cut_in_two_is_whole_again() -> None:
    written = "data: 你好\n\n".encode()
    assert events(written[:7], written[7:]) == [("", "你好")]


def test_a_space_after_the_colon_is_not_needed_and_only_one_is_removed() -> None:
    assert events(b"data:1\n\ndata:  2\n\n") == [("", "1"), ("", " 2")]


def test_data_in_several_lines_is_joined() -> None:
    assert events(b"data: {\ndata: }\n\n") == [("", "{\n}")]


def test_comments_ids_retries_and_unknown_fields_are_passed_over() -> None:
    assert events(b": keepalive\nid: 7\nretry: 10\nfoo: bar\ndata\ndata: 1\n\n: x\n\n") == [("", "\n1")]


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert events(b"\xef\xbb", b"\xbfdata: 1\n\n") == [("", "1")]


def test_a_name_does_not_outlive_its_event() -> None:
    assert events(b"event: a\n\ndata: 1\n\n") == [("", "1")]


def test_a_last_event_without_its_empty_line_counts() -> None:
    assert events(b"data: [DONE]") == [("", "[DONE]")]


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    assert sse({"a": "\ud800"}) == b'data: {"a":"\\ud800"}\n\n'


def test_text_stays_on_one_line_for_clients_that_use_splitlines() -> None:
    said = "".join(map(chr, range(0x3000)))
    (line,) = sse({"a": said}).decode().removesuffix("\n\n").splitlines()
    assert json.loads(line.removeprefix("data: ")) == {"a": said}


@given(st.lists(st.tuples(st.sampled_from(["", "ping"]), st.text(max_size=8)), max_size=5), st.data())
@settings(deadline=None)
def test_any_chunking_gives_the_same_events(sent: list[tuple[str, str]], data: st.DataObject) -> None:
    written = b"".join(sse({"text": text}, name=name) for name, text in sent)
    found = events(*cut(written, data))
    assert [(name, json.loads(text)["text"]) for name, text in found] == sent


@given(st.binary(), st.data())
@settings(deadline=None)
def test_random_bytes_give_the_same_events_in_any_chunking(written: bytes, data: st.DataObject) -> None:
    assert events(*cut(written, data)) == events(written)


OBJECTS = st.lists(st.dictionaries(st.text(max_size=3), st.sampled_from(['"', "\\", "{", "}", "[", "ü"])), max_size=4)


@given(OBJECTS, st.booleans(), st.data())
@settings(deadline=None)
def test_objects_are_found_in_an_array_or_in_a_row(
    objects: list[dict[str, str]], in_array: bool, data: st.DataObject
) -> None:
    texts = [json.dumps(one, ensure_ascii=False, indent=1) for one in objects]
    written = (f"[{', '.join(texts)}]" if in_array else "\n".join(texts)).encode()
    documents = Documents()
    found = [text for chunk in cut(written, data) for text in documents.feed(chunk)]
    assert [json.loads(text) for text in found] == objects
    assert documents.close() == b""


def test_an_object_that_was_cut_off_is_told() -> None:
    documents = Documents()
    assert list(documents.feed(b'[{"a": 1}, {"b": ')) == [b'{"a": 1}']
    assert documents.close() == b'{"b": '


def cut(written: bytes, data: st.DataObject) -> list[bytes]:
    places = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6)))
    return [written[start:end] for start, end in zip([0, *places], [*places, len(written)], strict=True)]
