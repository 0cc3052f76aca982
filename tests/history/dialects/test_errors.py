"""Errors in each vendor's own envelope: read, understood, and written again."""

import json
from typing import Any, get_args

import pytest

from history.answers.events import AnswerFailed, ErrorKind
from history.dialects import DIALECTS
from tests.history.dialects.samples import NAMES

pytestmark = pytest.mark.no_database

every_dialect = pytest.mark.parametrize("name", NAMES)


def read(name: str, status: int, body: Any) -> AnswerFailed:
    return DIALECTS[name].decode_error(status, json.dumps(body).encode())


@every_dialect
@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_an_error_that_we_write_is_read_as_what_it_is(name: str, kind: ErrorKind) -> None:
    message = "prompt is too long" if kind == "context_length" else "Sorry, 不"
    status, body = DIALECTS[name].encode_error(AnswerFailed(message=message, kind=kind))
    failed = read(name, status, body)
    # Google has one word for both.
    expected = "invalid_request" if (name, kind) == ("gemini-generate", "too_large") else kind
    assert (failed.kind, failed.message, failed.status) == (expected, message, status)


@every_dialect
def test_a_proxys_page_is_shown_by_its_beginning(name: str) -> None:
    failed = DIALECTS[name].decode_error(502, b"<html>Bad gateway</html>" + b"x" * 5_000)
    assert failed.message.startswith("<html>Bad gateway")
    assert len(failed.message) <= 500
    assert failed.kind == "server"


@every_dialect
def test_an_empty_body_is_told_by_its_status(name: str) -> None:
    assert DIALECTS[name].decode_error(503, b"").message == "HTTP 503"
    assert DIALECTS[name].decode_error(503, b"").kind == "overloaded"


@pytest.mark.parametrize(
    ("name", "status", "body", "kind"),
    [
        ("openai-chat", 429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "billing"),
        ("openai-chat", 400, {"error": {"message": "long", "code": "context_length_exceeded"}}, "context_length"),
        ("openai-chat", 400, {"error": {"type": "exceed_context_size_error", "message": "n"}}, "context_length"),
        ("openai-chat", 500, {"error": "model not loaded"}, "server"),
        ("openai-responses", 401, {"error": {"message": "key", "code": "invalid_api_key"}}, "authentication"),
        ("anthropic-messages", 529, {"type": "error", "error": {"type": "overloaded_error"}}, "overloaded"),
        (
            "anthropic-messages",
            400,
            {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}},
            "context_length",
        ),
        (
            "gemini-generate",
            400,
            {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}},
            "authentication",
        ),
        (
            "gemini-generate",
            400,
            {"error": {"status": "INVALID_ARGUMENT", "message": "The input token count exceeds the maximum"}},
            "context_length",
        ),
    ],
)
def test_what_vendors_really_say_is_understood(name: str, status: int, body: Any, kind: ErrorKind) -> None:
    assert read(name, status, body).kind == kind
