"""Scanners and unpackers of request bodies: linear in the size of the body, however hostile it is."""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Callable

import pytest
import zstandard

from bench.growth import assert_linear
from history.dialects import DIALECTS
from relay.gateway.call import bodies, decompression, json_scanner
from relay.gateway.call.decompression import Decompression

pytestmark = pytest.mark.any_database

LIMIT = 64 * 1024 * 1024

# Each makes a body of about n bytes.
HOSTILE_JSON: dict[str, Callable[[int], bytes]] = {
    "fields beside one non-ASCII letter": lambda n: (
        '{"sessionId":"é",' + ",".join(f'"{k}":"{"x" * 190}"' for k in range(n // 200)) + ',"model":"m"}'
    ).encode(),
    "NaN": lambda n: b'{"sessionId":"s","model":"m","x":NaN,"messages":[' + b",".join([b"{}"] * (n // 3)) + b"]}",
    "nested lists": lambda n: b'{"sessionId":"s","model":"m","x":[' + b"[],{}," * (n // 6) + b"0]}",
    "escapes": lambda n: b'{"sessionId":"s","model":"m","x":"' + b'\\"' * (n // 2) + b'"}',
    "backslashes": lambda n: b'{"sessionId":"s","model":"m","x":"' + b"\\\\" * (n // 2) + b'"}',
    "short strings": lambda n: b'{"sessionId":"s","model":"m","x":[' + b'"",' * (n // 3) + b"0]}",
    "white space": lambda n: b'{"sessionId":"s",' + b" \n" * (n // 2) + b'"model":"m"}',
    "digits": lambda n: b'{"sessionId":"s","model":"m","x":' + b"1" * n + b"}",
    "models": lambda n: b'{"sessionId":"s","model":"m","x":[' + b'{"model":"m"},' * (n // 14) + b"0]}",
    "wrong types": lambda n: b'{"sessionId":"s","model":"m","messages":["' + b"x" * n + b'"]}',
    "references": lambda n: (
        b'{"sessionId":"s","model":"m","input":[{"file_id":"f"}],"messages":[{"content":['
        + b'{"file":{"file_id":"f"}},' * (n // 25)
        + b"0]}]}"
    ),
}
HOSTILE_FORMS: dict[str, Callable[[int], bytes]] = {
    "names without an end": lambda n: b'--b\r\nname="model"' + b'\r\nname="model"' * (n // 14),
    "many parts": lambda n: b"--b\r\n" + b"\r\n--b\r\n" * (n // 7),
    "delimiters": lambda n: b"--\r\n" * (n // 4),
    "no delimiter": lambda n: b"--" + b"b" * 40 + b"\r\n" + b"-" * n,
    "one long head": lambda n: b"--b\r\nx: y\r\n" + b"x" * n + b"\r\n--b--",
}


@pytest.mark.parametrize("shape", HOSTILE_JSON)
def test_cutting_a_field_and_renaming_a_model_are_linear(shape: str) -> None:
    make = HOSTILE_JSON[shape]
    cut = make(1_000)
    assert b"sessionId" not in json_scanner.without_field(cut, "sessionId")
    assert_linear(lambda body: json_scanner.without_field(body, "sessionId"), make, size=90_000)
    assert_linear(lambda body: json_scanner.with_model(body, "other"), make, size=90_000)
    assert_linear(lambda body: json_scanner.with_model_of_path(body, "n", instead_of="m"), make, size=90_000)


@pytest.mark.parametrize("shape", HOSTILE_JSON)
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_looking_for_references_is_linear(dialect: str, shape: str) -> None:
    assert_linear(lambda body: bodies.peek_body(body, dialect), HOSTILE_JSON[shape], size=90_000)
    assert_linear(bodies.explain_missing_model, HOSTILE_JSON[shape], size=90_000)


@pytest.mark.parametrize("shape", HOSTILE_FORMS)
def test_finding_the_model_of_a_form_is_linear(shape: str) -> None:
    assert_linear(json_scanner.model_in_form, HOSTILE_FORMS[shape], size=90_000)
    assert_linear(lambda body: json_scanner.with_model(body, "other"), HOSTILE_FORMS[shape], size=90_000)


def _members(n: int) -> bytes:
    return gzip.compress(b"a") * (n // 21)


def _text(n: int) -> bytes:
    return b"".join(b"Line %d of many, in words. " % number for number in range(n // 27))


# Each makes a packed body; the first of n bytes, the others of what is n bytes long unpacked.
PACKED: dict[str, tuple[str, int, Callable[[int], bytes]]] = {
    "many members": ("gzip", 50_000, _members),
    "zstd frames": ("zstd", 50_000, lambda n: zstandard.compress(b"a") * (n // 10)),
    "gzip zeros": ("gzip", 1_500_000, lambda n: gzip.compress(b"\0" * n)),
    "deflate zeros": ("deflate", 1_500_000, lambda n: zlib.compress(b"\0" * n)),
    "deflate without a header": ("deflate", 1_500_000, lambda n: zlib.compress(b"\0" * n, wbits=-15)),
    "zstd zeros": ("zstd", 6_000_000, lambda n: zstandard.compress(b"\0" * n)),
    "gzip text": ("gzip", 1_500_000, lambda n: gzip.compress(_text(n))),
    "zstd text": ("zstd", 1_500_000, lambda n: zstandard.compress(_text(n))),
    "twice": ("gzip, gzip", 1_500_000, lambda n: gzip.compress(gzip.compress(b"\0" * n))),
}


@pytest.mark.parametrize("shape", PACKED)
def test_unpacking_is_linear(shape: str) -> None:
    encoding, size, make = PACKED[shape]
    assert_linear(lambda body: decompression.decompress(body, encoding, limit=LIMIT), make, size=size)
    assert_linear(lambda body: sum(map(len, Decompression(encoding).in_slices(body))), make, size=size)


def test_a_body_that_is_compressed_many_times_is_refused() -> None:
    with pytest.raises(json_scanner.Unreadable, match="more than 3 times"):
        decompression.decompress(b"", "gzip, gzip, gzip, gzip", limit=LIMIT)


def test_a_bomb_stops_at_the_limit() -> None:
    for packed, encoding in (
        (gzip.compress(b"\0" * 3_000_000), "gzip"),
        (zlib.compress(b"\0" * 3_000_000), "deflate"),
        (zstandard.compress(b"\0" * 3_000_000), "zstd"),
        (gzip.compress(gzip.compress(b"\0" * 3_000_000)), "gzip, gzip"),
    ):
        with pytest.raises(bodies.TooLarge):
            decompression.decompress(packed, encoding, limit=1_000_000)


def test_a_body_of_very_many_fields_is_refused_where_one_must_be_cut() -> None:
    many = json.dumps({f"f{number}": 1 for number in range(2_000)}).encode()
    with pytest.raises(json_scanner.Unreadable, match="1000 top-level fields"):
        json_scanner.without_field(many, "sessionId")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (b'{"sessionId":1}', b"{}"),
        (b'{"sessionId":1,"sessionId":2}', b"{}"),
        (b'{"sessionId":{"a":["}"]},"b":"\\"}"}', b'{"b":"\\"}"}'),
        ('{"a":"嗨" , "sessionId":"é","b":[1]}'.encode(), '{"a":"嗨","b":[1]}'.encode()),
        (b'{"a":NaN,"session\\u0049d":"x","b":1}', b'{"a":NaN,"b":1}'),
        (b'{"a":"\xff","sessionId":"x"}', b'{"a":"\xff"}'),
    ],
)
def test_a_field_is_cut_with_one_comma(given: bytes, wanted: bytes) -> None:
    assert json_scanner.without_field(given, "sessionId") == wanted


@pytest.mark.parametrize("broken", [b"", b"[1]", b'{"a', b'{"a":', b'{"a":[', b'{"a":"\\', b'{"a":[1}}'])
def test_what_is_no_object_has_no_fields_to_cut(broken: bytes) -> None:
    with contextlib.suppress(json_scanner.Unreadable):
        assert json_scanner.without_field(broken, "sessionId") == broken


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nname="model"\r\n\r\nfake\r\n'
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--b--\r\n'
)


def test_the_model_of_a_form_is_read_from_its_part_and_replaced_there() -> None:
    assert json_scanner.model_in_form(FORM) == "whisper"
    assert json_scanner.with_model(FORM, "other") == FORM.replace(b"whisper", b"other")


# Parsers take the first, the last or both of two values, so none of these may pass.
TWICE: list[tuple[str, bytes]] = [
    ("openai-chat", b'{"messages":[{"content":[{"file":{"file_id":"theirs","file_id":"mine"}}]}]}'),
    ("openai-chat", b'{"messages":[{"content":[{"file":{"file_id":"theirs"}}],"content":"x"}]}'),
    ("openai-chat", b'{"messages":[{"content":[{"file":{"file_id":"theirs"}}]}],"messages":[]}'),
    ("openai-chat", b'{"x":NaN,"messages":[{"content":[{"file":{"file_id":"theirs","file_id":"mine"}}]}]}'),
    ("openai-chat", b'{"messages":[{"content":[{"file":{"file_id":"theirs","file\\u005fid":"mine"}}]}]}'),
    ("openai-responses", b'{"input":[{"output":[{"type":"input_file","file_id":"theirs"}],"output":"x"}]}'),
    ("openai-responses", b'{"input":[{"type":"item_reference","id":"theirs","id":"mine"}]}'),
    ("openai-responses", b'{"input":[{"type":"item_reference","id":"theirs","type":"message"}]}'),
    ("openai-responses", b'{"previous_response_id":"theirs","previous_response_id":null}'),
    ("openai-responses", b'{"prompt":{"id":"theirs","id":"mine"}}'),
    ("openai-responses", b'{"tools":[{"container":{"file_ids":["theirs"],"file_ids":[]}}]}'),
    ("anthropic-messages", b'{"container":{"id":"theirs","id":"mine"}}'),
    ("anthropic-messages", b'{"messages":[{"content":[{"source":{"file_id":"theirs","file_id":"mine"}}]}]}'),
    ("gemini-generate", b'{"contents":[{"parts":[{"fileData":{"fileUri":"files/theirs"},"fileData":null}]}]}'),
]


@pytest.mark.parametrize(("dialect", "body"), TWICE)
def test_a_reference_beside_a_key_that_comes_twice_is_refused(dialect: str, body: bytes) -> None:
    with pytest.raises(json_scanner.Unreadable, match="twice"):
        bodies.peek_body(body, dialect)


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai-responses", b'{"input":[{"content":[{"type":"input_file","file_id":"theirs"}]}]}'),
        ("openai-chat", b'{"messages":[{"content":[{"type":"file","file":{"file_id":"theirs"}}]}]}'),
        ("anthropic-messages", b'{"messages":[{"content":[{"source":{"type":"file","file_id":"theirs"}}]}]}'),
    ],
)
def test_a_reference_is_found_however_it_is_written(dialect: str, body: bytes) -> None:
    for written in (
        body.replace(b"file_id", b"file\\u005fid"),
        body.replace(b"file_id", b"\\u0066ile_id"),
        body.replace(b'":', b'" \n\t:'),
        body.replace(b"theirs", b"th\\u0065irs"),
        b'{"zz":NaN,' + body[1:],
        b'{"pad":"' + b"x" * 100_000 + b'",' + body[1:],
    ):
        assert [reference.name for reference in bodies.peek_body(written, dialect)[1]] == ["theirs"], written[:200]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_keys_that_come_twice_pass_where_nothing_is_referred_to(dialect: str) -> None:
    assert bodies.peek_body(b'{"model":"a","model":"b","messages":[]}', dialect)[0]["model"] == "b"
