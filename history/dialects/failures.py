"""Errors that all vendors share: HTTP status and a body that may not be JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_letters, digits
from typing import Any

from history.answers.events import ErrorKind
from history.dialects.json_access import parsed

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
# How vendors and local servers say that a conversation is longer than the model can read.
_TOO_LONG = re.compile(
    r"prompt is too long|context[ _](length|window|size)|exceeds the (maximum number of tokens|limit)"
    r"|exceed_context_size|input token count",
    re.IGNORECASE,
)

# A proxy's page says enough in its beginning.
SHOWN = 500
_OF_KEYS = ascii_letters + digits + "_-.+/=~%"


def read_body(body: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that a body holds; anything else becomes an object with an error that shows it."""
    if isinstance(body, Mapping):
        return body
    try:
        found = parsed(body)
    except ValueError:
        return {"error": {"message": _beginning(body[: 4 * SHOWN + 4].decode("utf-8", "replace"))}}
    if isinstance(found, list) and found and isinstance(found[0], Mapping):
        return found[0]
    return found if isinstance(found, Mapping) else {"error": {"message": _beginning(str(found))}}


def _beginning(text: str) -> str:
    """Not cut inside a word: half a key is not known for one, and would be stored."""
    return text.strip() if len(text) <= SHOWN else text[:SHOWN].rstrip(_OF_KEYS).strip()


def refined(kind: ErrorKind, told: str) -> ErrorKind:
    """Most vendors tell only in words that a request is too long for the model."""
    return "context_length" if kind == "invalid_request" and _TOO_LONG.search(told) else kind


def no_reason(status: int) -> str:
    """What is said of an error that says nothing."""
    return f"HTTP {status}" if status else "The vendor gave no reason."
