"""Log lines: one record, one line, and no secret."""

import logging
import sys

import pytest

from project.config.logging import LineFormatter


def line(message: str, *arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("project", logging.WARNING, "", 0, message, arguments, exc_info)  # type: ignore[arg-type]
    return LineFormatter().format(record)


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
