"""Shared parts of reply decoders: JSON events from bytes, part names, error kinds."""

import re
from collections.abc import Callable, Iterable, Mapping
from string import ascii_letters, digits

from history.answers.events import ErrorKind, Event, Skipped, Started
from history.dialects.json_access import parse_json, string
from history.dialects.sse import Documents, ServerSentEvent, SSEDecoder
from history.entries import JsonObject

# How much of an unreadable event or body is shown.
SHOWN_OF_EVENT, SHOWN_OF_BODY = 200, 500
_SPACE = b" \t\r\n\xef\xbb\xbf"

ReadEvent = Callable[[str, JsonObject], Iterable[Event]]
ReadReply = Callable[[JsonObject], Iterable[Event]]


class JsonStreamDecoder:
    """Parses bytes into JSON objects and passes each to `read` with the name of its event.

    A body that is JSON instead of an event stream (an error, a whole reply, an array) goes object by object to
    `read_reply`. `done` is called when the stream says ``[DONE]``.
    """

    def __init__(self, read: ReadEvent, *, read_reply: ReadReply, done: Callable[[], Iterable[Event]] = tuple) -> None:
        self._read, self._read_reply, self._done = read, read_reply, done
        self._sse = SSEDecoder()
        self._documents = Documents()
        self._is_json: bool | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        if self._is_json is None:
            # Servers send spaces to keep the connection open.
            if not (first := chunk.lstrip(_SPACE)):
                return []
            self._is_json = first[:1] in b"{["
            if (reply := _whole_object(first)) is not None:
                return list(self._read_reply(reply))
        if self._is_json:
            return [event for text in self._documents.feed(chunk) for event in self._read_document(text)]
        return [event for sent in self._sse.feed(chunk) for event in self._read_event(sent)]

    def close(self) -> list[Event]:
        if self._is_json:
            rest = self._documents.close()
            return [_skipped("the stream was cut off inside this object", rest)] if rest else []
        return [event for sent in self._sse.close() for event in self._read_event(sent)]

    def _read_event(self, sent: ServerSentEvent) -> Iterable[Event]:
        text = sent.data.strip()
        if text.startswith("[DONE]"):
            return self._done()
        if not text:
            return ()
        try:
            event = parse_json(text)
        except ValueError as error:
            return (_skipped(f"not JSON: {error}", text),)
        return self._read(sent.name, event) if isinstance(event, Mapping) else (_skipped("not an object", text),)

    def _read_document(self, text: bytes) -> Iterable[Event]:
        try:
            return self._read_reply(parse_json(text.decode("utf-8", "replace")))
        except ValueError as error:
            return (_skipped(f"not JSON: {error}", text),)


def _whole_object(text: bytes) -> JsonObject | None:
    """A reply in one chunk: nothing has to search for its end."""
    if text[:1] != b"{" or not text.rstrip(_SPACE).endswith(b"}"):
        return None
    try:
        reply: JsonObject = parse_json(text.decode("utf-8", "replace"))
    except ValueError:
        return None
    return reply


def _skipped(problem: str, raw: str | bytes) -> Skipped:
    shown = raw[:SHOWN_OF_EVENT]
    return Skipped(problem=problem, raw=shown if isinstance(shown, str) else shown.decode("utf-8", "replace"))


class PartNames:
    """Names for the parts of an answer; consecutive pieces of one kind are one part."""

    def __init__(self) -> None:
        self._count = 0
        self._kind = ""

    def same(self, kind: str) -> str:
        """The name of the current part if it is of this kind, else a new name."""
        if kind != self._kind:
            self._count, self._kind = self._count + 1, kind
        return f"{kind}-{self._count}"

    def new(self, kind: str) -> str:
        self._kind = ""
        return self.same(kind)


def started(reply: JsonObject, *, model: str = "model", request_id: str = "id", provider: str = "") -> Started:
    return Started(model=string(reply.get(model)), request_id=string(reply.get(request_id)), provider=provider)


# Errors: an HTTP status and a body that may not be JSON

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


def refine_kind(kind: ErrorKind, message: str) -> ErrorKind:
    """Most vendors report a full context window only in the text of an invalid request."""
    return "context_length" if kind == "invalid_request" and _TOO_LONG.search(message) else kind


def default_message(status: int) -> str:
    return f"HTTP {status}" if status else "The vendor gave no reason."
