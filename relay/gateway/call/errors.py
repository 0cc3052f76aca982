"""Errors of the gateway, written in the dialect of the caller."""

from __future__ import annotations

from history.access.key_cache import ApiKeyError
from history.answers.events import ErrorKind, Failed
from history.dialects import DIALECTS
from history.dialects.json_access import as_bytes

NAMED = 200  # no longer than this is a caller's word repeated
# How a call ends whose upstream sent something else than an answer: a web page, or bytes that cannot be read.
UNREADABLE = "upstream_unreadable"
KIND_OF_KEYS: dict[int, ErrorKind] = {401: "authentication", 403: "permission", 503: "overloaded"}


class Refusal(Exception):
    """Raised anywhere before the first byte of a reply. `status` 0: the one that goes with the kind."""

    def __init__(
        self,
        message: str,
        kind: ErrorKind = "invalid_request",
        *,
        status: int = 0,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message, self.kind, self.status, self.headers = message, kind, status, headers

    def told(self, dialect: str) -> tuple[int, bytes]:
        status, body = DIALECTS[dialect].encode_error(Failed(message=self.message, kind=self.kind))
        return self.status or status, as_bytes(body)


def key_refusal(error: ApiKeyError) -> Refusal:
    headers = (("retry-after", "2"),) if error.retry_helps else ()
    return Refusal(str(error), KIND_OF_KEYS.get(error.status, "authentication"), headers=headers)


def model_not_found(name: str) -> Refusal:
    return Refusal(f"The model '{name[:NAMED]}' does not exist here. GET /v1/models lists those that do.", "not_found")


def not_found(words: str, dialect: str) -> Refusal:
    """A 404 that is not about a model: for some vendors' clients that is another error."""
    return Refusal(words, DIALECTS[dialect].HTTP_API.not_found_kind, status=404)


def unreadable_reply(message: str) -> Refusal:
    """A reply with a good status that is no answer at all: its own code, in a header that every dialect can have."""
    return Refusal(message, "server", status=502, headers=(("x-parley-error", UNREADABLE),))
