"""Errors in replies of all dialects: kinds, statuses, names at vendors, unreadable bodies."""

import re
from collections.abc import Mapping
from string import ascii_letters, digits
from typing import NamedTuple

from history.answers.events import AnswerFailed, ErrorKind
from history.dialects.json_access import parse_json
from history.entries import JsonObject

SHOWN_OF_BODY = 500  # of an unreadable body


class ErrorNames(NamedTuple):
    status: int
    openai_type: str
    openai_code: str | None
    google: str


ERRORS: dict[ErrorKind, ErrorNames] = {
    "invalid_request": ErrorNames(400, "invalid_request_error", None, "INVALID_ARGUMENT"),
    "authentication": ErrorNames(401, "invalid_request_error", "invalid_api_key", "UNAUTHENTICATED"),
    "billing": ErrorNames(402, "insufficient_quota", "insufficient_quota", "FAILED_PRECONDITION"),
    "permission": ErrorNames(403, "invalid_request_error", "permission_denied", "PERMISSION_DENIED"),
    "not_found": ErrorNames(404, "invalid_request_error", "model_not_found", "NOT_FOUND"),
    "conflict": ErrorNames(409, "invalid_request_error", "conflict", "ABORTED"),
    "too_large": ErrorNames(413, "invalid_request_error", "request_too_large", "INVALID_ARGUMENT"),
    "context_length": ErrorNames(400, "invalid_request_error", "context_length_exceeded", "INVALID_ARGUMENT"),
    "rate_limit": ErrorNames(429, "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"),
    "server": ErrorNames(500, "server_error", None, "INTERNAL"),
    "overloaded": ErrorNames(503, "server_error", "overloaded", "UNAVAILABLE"),
    "timeout": ErrorNames(504, "server_error", "timeout", "DEADLINE_EXCEEDED"),
}
KIND_OF_STATUS: dict[int, ErrorKind] = {names.status: kind for kind, names in ERRORS.items()}
KIND_OF_STATUS |= {400: "invalid_request", 408: "timeout", 422: "invalid_request", 529: "overloaded"}
# Messages of vendors and local servers for a conversation longer than the context window.
_TOO_LONG = re.compile(
    r"prompt is too long|context[ _](length|window|size)|exceeds the (maximum number of tokens|limit)"
    r"|exceed_context_size|input token count",
    re.IGNORECASE,
)
_KEY_CHARACTERS = ascii_letters + digits + "_-.+/=~%"


def read_body(body: bytes | JsonObject) -> JsonObject:
    """The object in a body; any other body becomes an error object with its beginning."""
    if isinstance(body, Mapping):
        return body
    try:
        value = parse_json(body)
    except ValueError:
        return {"error": {"message": _beginning(body[: 4 * SHOWN_OF_BODY + 4].decode("utf-8", "replace"))}}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return value[0]
    return value if isinstance(value, Mapping) else {"error": {"message": _beginning(str(value))}}


def _beginning(text: str) -> str:
    """Never cut within a word: redaction does not recognise half a key."""
    return text.strip() if len(text) <= SHOWN_OF_BODY else text[:SHOWN_OF_BODY].rstrip(_KEY_CHARACTERS).strip()


def failure_event(
    reply: JsonObject, status: int, *, message: str, code: str, kind: ErrorKind | None, details: str = ""
) -> AnswerFailed:
    """Most vendors report a full context window only in the text of an invalid request."""
    kind = kind or KIND_OF_STATUS.get(status, "server")
    if kind == "invalid_request" and _TOO_LONG.search(f"{details} {message}"):
        kind = "context_length"
    message = message or (f"HTTP {status}" if status else "The provider gave no reason.")
    return AnswerFailed(message=message, code=code, kind=kind, status=status, raw=reply)
