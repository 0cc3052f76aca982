"""Errors in replies of all dialects, with their HTTP status."""

import re
from collections.abc import Mapping
from string import ascii_letters, digits

from history.answers.events import ErrorKind, Failed
from history.dialects.json_access import parse_json
from history.entries import JsonObject

SHOWN_OF_BODY = 500  # of an unreadable body


STATUS_OF_KIND: dict[ErrorKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "context_length": 400,
    "rate_limit": 429,
    "server": 500,
    "overloaded": 503,
    "timeout": 504,
}
KIND_OF_STATUS: dict[int, ErrorKind] = {status: kind for kind, status in STATUS_OF_KIND.items()}
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


def failed(
    reply: JsonObject, status: int, *, message: str, code: str, kind: ErrorKind | None, details: str = ""
) -> Failed:
    """Most vendors report a full context window only in the text of an invalid request."""
    kind = kind or KIND_OF_STATUS.get(status, "server")
    if kind == "invalid_request" and _TOO_LONG.search(f"{details} {message}"):
        kind = "context_length"
    message = message or (f"HTTP {status}" if status else "The provider gave no reason.")
    return Failed(message=message, code=code, kind=kind, status=status, raw=reply)
