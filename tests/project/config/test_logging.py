"""Log lines: one record, one line, and no secret."""

import json
import logging
import sys
from typing import Any

import pytest

from project.config.logging import JsonFormatter, LineFormatter


def record_of(message: str, *arguments: object, exc_info: object = None) -> logging.LogRecord:
    return logging.LogRecord("project", logging.WARNING, "", 0, message, arguments, exc_info)  # type: ignore[arg-type]


def line(message: str, *arguments: object, exc_info: object = None) -> str:
    return LineFormatter().format(record_of(message, *arguments, exc_info=exc_info))


def json_line(record: logging.LogRecord) -> dict[str, Any]:
    written = JsonFormatter().format(record)
    assert "\n" not in written
    assert "hunter2" not in written
    parsed: dict[str, Any] = json.loads(written)
    return parsed


@pytest.mark.parametrize(
    "text",
    [
        "GET /v1beta/models?key=hunter2&alt=sse",
        "headers: Authorization: Bearer hunter2",
        "{'authorization': 'Bearer hunter2'}",
        '{"x-api-key": "hunter2"}',
        "x-goog-api-key: hunter2",
        "Not Found: /accounts/link/hunter2/",
        "Not Found: /shared/hunter2/",
        "connecting to postgres://me:hunter2@host/x",
        "password=hunter2",
        "api_key = hunter2",
        "OPENAI_API_KEY=hunter2",
        "SECRET_KEY='hunter2'",
        f"no such key: parley_abcd123456_{'hunter2' * 6}",
        f"upstream refused sk-ant-{'hunter2' * 6}",
    ],
)
def test_a_secret_is_blotted_out(text: str) -> None:
    assert "hunter2" not in line(text)
    assert "hunter2" not in line("%s", text)


def test_a_secret_in_a_traceback_is_blotted_out() -> None:
    try:
        raise RuntimeError("Authorization: Bearer hunter2")
    except RuntimeError:
        written = line("it failed", exc_info=sys.exc_info())
    assert "RuntimeError" in written
    assert "hunter2" not in written


def test_what_is_no_secret_stays() -> None:
    assert line("GET /history/?q=monkey&page=2 took 12 ms").endswith("GET /history/?q=monkey&page=2 took 12 ms")


def test_a_record_is_one_line() -> None:
    assert "\n" not in line("first\nsecond\r\nthird")


def test_a_json_line_has_the_parts_of_a_record_without_secrets() -> None:
    record = record_of("%s\nfailed", "x-api-key: hunter2")
    record.created = 0.25
    parts = {"level": "WARNING", "logger": "project", "message": "x-api-key: •••\nfailed", "process": record.process}
    assert json_line(record) == {"time": "1970-01-01T00:00:00.250+00:00", **parts}


def test_a_json_line_has_the_traceback_of_an_error() -> None:
    try:
        raise RuntimeError("Authorization: Bearer hunter2")
    except RuntimeError:
        parts = json_line(record_of("it failed", exc_info=sys.exc_info()))
    assert parts["exception"].startswith("Traceback")
    assert "RuntimeError: Authorization: Bearer •••" in parts["exception"]


def test_a_refused_request_has_no_traceback_in_either_format() -> None:
    record = record_of("Not Found", exc_info=(ValueError, ValueError("x"), None))
    record.status_code = 404
    assert "exception" not in json_line(record)
    assert "ValueError" not in LineFormatter().format(record)
