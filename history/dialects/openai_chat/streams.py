"""Event streams of OpenAI Chat Completions, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from history.answers.assembly import NO_ARGUMENTS
from history.answers.events import (
    Beside,
    Ended,
    Event,
    Failed,
    Piece,
    ReasoningPiece,
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects.custom_tools import input_of
from history.dialects.encoder import taking_text
from history.dialects.finality import Finality
from history.dialects.json_access import obj, objs, string
from history.dialects.openai_chat.replies import (
    WORDS,
    Calls,
    decode_error,
    decode_reply,
    encode_error,
    ended,
    message_events,
    usage_from,
    usage_to,
)
from history.dialects.reply_encoder import Replying
from history.dialects.sse import sse
from history.dialects.streaming import JsonStreamDecoder
from history.dialects.types import StreamDecoder, StreamEncoder
from history.entries import ToolDefinition

DONE = sse("[DONE]")


def stream_decoder(provider: str = "") -> StreamDecoder:
    reader = _Reader(provider)
    return JsonStreamDecoder(reader.read, read_whole=decode_reply, done=reader.done)


FINAL_MARKS = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', b'"error":{', b'"error": {')


def finality(name: str, data: Mapping[str, Any]) -> Finality | None:
    """The reason to stop ends the answer; counts, `[DONE]` and further answers may follow."""
    if data.get("error"):
        return Finality.OVER
    choices = objs(data.get("choices"))
    if any(string(choice.get("finish_reason")) for choice in choices):
        return Finality.COMPLETE
    return Finality.OPEN if choices else None


class _Answer:
    """One choice of a stream: mostly there is but one."""

    def __init__(self) -> None:
        self._calls = Calls()
        self._is_refused = self._has_ended = False

    def read(self, choice: Mapping[str, Any]) -> Iterator[Piece | Ended]:
        delta = obj(choice.get("delta"))
        self._is_refused = self._is_refused or bool(string(delta.get("refusal")))
        yield from message_events(delta, self._calls)
        if word := string(choice.get("finish_reason")):
            self._has_ended = True
            yield from self._calls.rest()
            found = ended(word, has_calls=self._calls.count > 0)
            yield Ended(reason="refusal", raw_reason=word) if self._is_refused else found

    def done(self) -> Iterator[Piece | Ended]:
        """``[DONE]`` without a reason is an end all the same."""
        if not self._has_ended:
            self._has_ended = True
            yield from self._calls.rest()
            yield ended("stop", has_calls=self._calls.count > 0)


class _Reader:
    """The first choice is the answer; what further ones say is told as such."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._first: int | None = None
        self._answers: dict[int, _Answer] = {}
        self._has_started = self._has_failed = False

    def read(self, name: str, data: Mapping[str, Any]) -> Iterator[Event]:
        if data.get("error"):
            self._has_failed = True
            yield decode_error(0, data)
            return
        if not self._has_started and (data.get("id") or data.get("model")):
            self._has_started = True
            model, request_id = string(data.get("model")), string(data.get("id"))
            yield Started(model=model, request_id=request_id, provider=self._provider)
        for place, choice in enumerate(objs(data.get("choices"))):
            index = choice.get("index")
            index = index if isinstance(index, int) else place
            yield from self._told(index, self._answer(index).read(choice))
        if usage := obj(data.get("usage")):
            yield UsageReported(usage=usage_from(usage))

    def done(self) -> Iterable[Event]:
        if self._has_failed:
            return []
        if not self._answers:
            self._answer(0)
        return [event for index, answer in self._answers.items() for event in self._told(index, answer.done())]

    def _answer(self, index: int) -> _Answer:
        if self._first is None:
            self._first = index
        return self._answers.get(index) or self._answers.setdefault(index, _Answer())

    def _told(self, index: int, events: Iterable[Piece | Ended]) -> Iterable[Event]:
        if index == self._first:
            return events
        return (Beside(answer=index, event=event) for event in events)


def stream_encoder(
    *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Sequence[ToolDefinition] = ()
) -> StreamEncoder:
    """`with_usage`: whether the client asked for the chunk with the counts; others would stumble over it."""
    of_text = taking_text(tools)
    return _Encoder(model=model, reply_id=reply_id, created=created, with_usage=with_usage, of_text=of_text)


class _Encoder(Replying):
    def __init__(self, *, model: str, reply_id: str, created: int, with_usage: bool, of_text: frozenset[str]) -> None:
        super().__init__(model=model, reply_id=reply_id)
        self._created, self._with_usage, self._of_text = created, with_usage, of_text
        self._has_begun = False
        # The part that the text so far ends with, and whether something else came after it.
        self._text_part, self._is_apart = "", False
        self._calls: dict[str, int] = {}
        # The calls for which no arguments have come.
        self._without: set[int] = set()
        # What calls with plain text have so far: only all of it tells the text.
        self._texts: dict[int, list[str]] = {}
        self._thinking = ""

    def write(self, piece: Piece) -> bytes:
        if isinstance(piece, TextPiece):
            return self._text(piece) if piece.text else b""
        self._is_apart = True
        if isinstance(piece, ReasoningPiece):
            return self._thought(piece) if piece.text else b""
        if isinstance(piece, ToolCallPiece) and (call := self._call(piece)):
            return self._delta(tool_calls=[call])
        return b""

    def fail(self, failed: Failed) -> bytes:
        return sse(encode_error(failed)[1])

    def close(self, ended: Ended | None) -> bytes:
        if ended is None:
            return b""
        final = self._without_arguments() + self._with_texts() + self._delta(finish_reason=WORDS[ended.reason])
        counts = self._chunk(choices=[], usage=usage_to(self.usage)) if self._with_usage else b""
        return final + counts + DONE

    def _text(self, piece: TextPiece) -> bytes:
        """There is one text only: another one, or what comes after something else, is a new paragraph of it."""
        gap = "\n\n" if self._text_part and (self._is_apart or self._text_part != piece.part) else ""
        self._text_part, self._is_apart = piece.part, False
        return self._delta(content=gap + piece.text)

    def _thought(self, piece: ReasoningPiece) -> bytes:
        gap = "\n\n" if self._thinking and self._thinking != piece.part else ""
        self._thinking = piece.part
        return self._delta(reasoning_content=gap + piece.text)

    def _call(self, piece: ToolCallPiece) -> dict[str, Any] | None:
        function = {"arguments": piece.arguments}
        is_new = piece.part not in self._calls
        index = self._calls.setdefault(piece.part, len(self._calls))
        if index in self._texts or (is_new and piece.name in self._of_text):
            self._texts.setdefault(index, []).append(piece.arguments)
            custom = {"name": piece.name, "input": ""}
            return {"index": index, "id": piece.call_id, "type": "custom", "custom": custom} if is_new else None
        if piece.arguments:
            self._without.discard(index)
        elif is_new:
            self._without.add(index)
        if not is_new:
            return {"index": index, "function": function}
        return {"index": index, "id": piece.call_id, "type": "function", "function": {"name": piece.name, **function}}

    def _without_arguments(self) -> bytes:
        """Clients parse the text that they have put together, and an empty one is no JSON."""
        calls = [{"index": index, "function": {"arguments": NO_ARGUMENTS}} for index in sorted(self._without)]
        return self._delta(tool_calls=calls) if calls else b""

    def _with_texts(self) -> bytes:
        texts = {index: input_of("".join(pieces)) for index, pieces in self._texts.items()}
        calls = [{"index": index, "custom": {"input": text}} for index, text in texts.items()]
        return self._delta(tool_calls=calls) if calls else b""

    def _delta(self, *, finish_reason: str | None = None, **delta: Any) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._chunk(choices=[choice], **({"usage": None} if self._with_usage else {}))

    def _chunk(self, **fields: Any) -> bytes:
        head = {"id": self.reply_id, "object": "chat.completion.chunk", "created": self._created}
        return sse({**head, "model": self.model, **fields})
