"""Base class of reply decoders, which make JSON events of bytes, and errors in replies of all dialects."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from string import ascii_letters, digits
from typing import ClassVar

from history.answers.events import AnswerFailed, AnswerStarted, ErrorKind, Event, UnreadableEvent
from history.dialects.json_access import parse_json, string
from history.dialects.sse import Documents, Finality, ServerSentEvent, SSEDecoder
from history.entries import JsonObject

_SPACE = b" \t\r\n\xef\xbb\xbf"
SHOWN_OF_EVENT = 200  # of an unreadable event


class ReplyDecoder:
    """Decodes the chunks of a stream into events. A stream that breaks off gives no `Ended`.

    Each object of a body that is JSON instead of an event stream (an error, a reply, an array) goes to `read_reply`.
    """

    final_marks: ClassVar[tuple[bytes, ...]]  # every final event of a stream contains one of these

    def __init__(self, provider: str = "") -> None:
        self.provider = provider
        self.has_started = False
        self._part_count, self._part_kind = 0, ""
        self._sse = SSEDecoder()
        self._documents = Documents()
        self._is_json: bool | None = None
        self.set_up()

    def set_up(self) -> None:
        """Make the state of this dialect."""

    @staticmethod
    def decode_error(status: int, body: bytes | JsonObject) -> AnswerFailed:
        """Decode an HTTP error, or one within a stream, which has the status 0."""
        raise NotImplementedError

    @staticmethod
    def finality(name: str, event: JsonObject) -> Finality | None:
        """Whether this event of a stream ends the answer; None if it does not show that."""
        raise NotImplementedError

    def read(self, name: str, event: JsonObject) -> Iterable[Event]:
        raise NotImplementedError

    def read_reply(self, reply: JsonObject) -> Iterable[Event]:
        raise NotImplementedError

    def done(self) -> Iterable[Event]:
        """Called when the stream says ``[DONE]``."""
        return ()

    def start(self, reply: JsonObject, *, model: str = "model", request_id: str = "id") -> Iterator[AnswerStarted]:
        if not self.has_started:
            self.has_started = True
            names = {"model": string(reply.get(model)), "request_id": string(reply.get(request_id))}
            yield AnswerStarted(**names, provider=self.provider)

    def same_part(self, kind: str) -> str:
        """The name of the current part if it is of this kind, else a new name: its consecutive pieces are one part."""
        if kind != self._part_kind:
            self._part_count, self._part_kind = self._part_count + 1, kind
        return f"{kind}-{self._part_count}"

    def new_part(self, kind: str) -> str:
        self._part_kind = ""
        return self.same_part(kind)

    def feed(self, chunk: bytes) -> list[Event]:
        if self._is_json is None:
            # Servers send spaces to keep the connection open.
            if not (first := chunk.strip(_SPACE)):
                return []
            self._is_json = first[:1] in b"{["
            if first[:1] == b"{" and first[-1:] == b"}":
                try:
                    reply = parse_json(first.decode("utf-8", "replace"))
                except ValueError:  # several objects
                    pass
                else:
                    return list(self.read_reply(reply))
        if self._is_json:
            texts = (document.decode("utf-8", "replace") for document in self._documents.feed(chunk))
            return [event for text in texts for event in self._read_json(text, self.read_reply)]
        return [event for sent in self._sse.feed(chunk) for event in self._read_event(sent)]

    def close(self) -> list[Event]:
        if self._is_json:
            rest = self._documents.close()
            text = rest[:SHOWN_OF_EVENT].decode("utf-8", "replace")
            return [_skipped("the stream was cut off inside this object", text)] if rest else []
        return [event for sent in self._sse.close() for event in self._read_event(sent)]

    def _read_event(self, sent: ServerSentEvent) -> Iterable[Event]:
        text = sent.data.strip()
        if text.startswith("[DONE]"):
            return self.done()
        return self._read_json(text, partial(self.read, sent.name)) if text else ()

    def _read_json(self, text: str, read: Callable[[JsonObject], Iterable[Event]]) -> Iterable[Event]:
        try:
            value = parse_json(text)
        except ValueError as error:
            return (_skipped(f"not JSON: {error}", text),)
        return read(value) if isinstance(value, Mapping) else (_skipped("not an object", text),)


def _skipped(problem: str, raw: str) -> UnreadableEvent:
    return UnreadableEvent(problem=problem, raw=raw[:SHOWN_OF_EVENT])


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


def failure_event(
    reply: JsonObject, status: int, *, message: str, code: str, kind: ErrorKind | None, details: str = ""
) -> AnswerFailed:
    """Most vendors report a full context window only in the text of an invalid request."""
    kind = kind or KIND_OF_STATUS.get(status, "server")
    if kind == "invalid_request" and _TOO_LONG.search(f"{details} {message}"):
        kind = "context_length"
    message = message or (f"HTTP {status}" if status else "The provider gave no reason.")
    return AnswerFailed(message=message, code=code, kind=kind, status=status, raw=reply)
