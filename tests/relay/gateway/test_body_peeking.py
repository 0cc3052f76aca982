"""What the relay reads of a call and of its reply without parsing them: a few fields, and the edges."""

import json

import pytest

from history.dialects import DIALECTS
from relay.gateway.call import bodies
from relay.gateway.replies import EDGE_BYTES, ReplyCopy, find_usage, read_answer_id

pytestmark = pytest.mark.any_database

LONG = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "word " * 1000}], "tools": [{"a": 1}]}


def test_a_glance_shows_what_carrying_needs_and_leaves_the_conversation_unread() -> None:
    assert bodies.peek_model(json.dumps(LONG).encode()) == "m"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_so_does_the_glance_that_looks_for_references(dialect: str) -> None:
    asked, refers = bodies.peek_body(json.dumps({**LONG, "input": [], "contents": []}).encode(), dialect)
    assert {"messages", "input", "contents"}.isdisjoint(asked)
    assert (asked["model"], refers) == ("m", [])


@pytest.mark.parametrize("odd", [b'"temperature":NaN', b'"user":"\\ud800"', b'"model":"x"'])
def test_what_only_a_lenient_parser_reads_is_read_all_the_same(odd: bytes) -> None:
    assert bodies.peek_model(b"{" + odd + b',"model":"m"}') == "m"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_lenient_parser_counts_references_of_every_dialect(dialect: str) -> None:
    body = b'{"temperature":NaN,"input":[{"type":"item_reference","id":"rs_1"}],"cachedContent":"cachedContents/1"}'
    _, references = bodies.peek_body(body, dialect)
    assert [reference.name for reference in references] == ["rs_1", "cachedContents/1"]


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_request_within_requests_is_searched_for_references(levels: int) -> None:
    body = {"contents": [{"parts": [{"fileData": {"fileUri": "files/1"}}]}]}
    for _ in range(levels):
        body = {"generateContentRequest": body}  # type: ignore[dict-item]
    _, references = bodies.peek_body(json.dumps(body).encode(), "gemini-generate")
    assert [reference.name for reference in references] == ["files/1"]


@pytest.mark.parametrize("broken", [b"", b"[1]", b'"text"', b'{"model":"m"', b"\xff\xfe", b"[" * 5000])
def test_what_is_no_object_shows_nothing(broken: bytes) -> None:
    assert bodies.peek_model(broken) == ""


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_the_edges_of_a_reply_are_kept_however_it_is_cut_into_pieces(size: int) -> None:
    said = bytes(number % 251 for number in range(5 * EDGE_BYTES))
    edges = ReplyCopy()
    for start in range(0, len(said), size):
        edges.add(said[start : start + size])
    assert (edges.head, edges.tail) == (said[:EDGE_BYTES], said[-EDGE_BYTES:])


def test_the_last_count_of_a_reply_is_the_one_that_holds() -> None:
    said = (
        b'{"usage": {"prompt_tokens": 1}} "usage": null, "usage" : {"prompt_tokens": 7, "completion_tokens": 2}, \xe4'
    )
    usage = find_usage("openai-chat", said, said)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (7, 2)


def test_a_reply_without_a_count_has_none() -> None:
    assert find_usage("openai-chat", b'{"usage": [1]}', b'{"usage": {"prompt_') is None


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'data: {"type":"response.created","response":{"id":"resp_1-a","object":"response"}}', "resp_1-a"),
        (b'{"id" : "resp_2", "previous_response_id": "resp_1"}', "resp_2"),
        (b'{"id": "chatcmpl-1"}', ""),
        (b'{"id": "resp_', ""),
    ],
)
def test_the_name_of_a_reply_stands_at_its_beginning(head: bytes, name: str) -> None:
    assert read_answer_id(head) == name
