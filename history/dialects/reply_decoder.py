"""Decoder of replies and streams: bytes to JSON, which the reader of a dialect makes events of."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from history.answers.events import Event, UnreadableEvent
from history.dialects.json_access import parse_json
from history.dialects.replies import ReplyReader
from history.dialects.sse import Documents, ServerSentEvent, SSEDecoder
from history.entries import JsonObject

_SPACE = b" \t\r\n\xef\xbb\xbf"
SHOWN_OF_EVENT = 200  # of an unreadable event


class ReplyDecoder:
    """Decodes the chunks of a stream into events. A stream that breaks off gives no `Ended`.

    Each object of a body that is JSON instead of an event stream (an error, a reply, an array) goes to `read_reply`.
    """

    def __init__(self, reader: ReplyReader) -> None:
        self._reader = reader
        self._sse = SSEDecoder()
        self._documents = Documents()
        self._is_json: bool | None = None

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
                    return list(self._reader.read_reply(reply))
        if self._is_json:
            texts = (document.decode("utf-8", "replace") for document in self._documents.feed(chunk))
            return [event for text in texts for event in self._read_json(text, self._reader.read_reply)]
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
            return self._reader.done()
        return self._read_json(text, partial(self._reader.read, sent.name)) if text else ()

    def _read_json(self, text: str, read: Callable[[JsonObject], Iterable[Event]]) -> Iterable[Event]:
        try:
            value = parse_json(text)
        except ValueError as error:
            return (_skipped(f"not JSON: {error}", text),)
        return read(value) if isinstance(value, Mapping) else (_skipped("not an object", text),)


def _skipped(problem: str, raw: str) -> UnreadableEvent:
    return UnreadableEvent(problem=problem, raw=raw[:SHOWN_OF_EVENT])
