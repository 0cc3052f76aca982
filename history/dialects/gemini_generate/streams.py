"""Event streams of Gemini, both ways; each chunk has the shape of a reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from history.answers.events import (
    Ended,
    Event,
    Failed,
    MediaPiece,
    OtherPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
)
from history.dialects.finality import Finality
from history.dialects.gemini_generate.replies import (
    WORDS,
    ReplyReader,
    call_part,
    chunk,
    encode_error,
    portable,
    signed,
)
from history.dialects.json_access import obj, objs, string
from history.dialects.reply_encoder import Replying
from history.dialects.sse import sse
from history.dialects.streaming import BlockSequence, Closed, Grew, JsonStreamDecoder, Opened, Step
from history.dialects.types import StreamDecoder, StreamEncoder
from history.entries import ToolDefinition, Usage


def stream_decoder(provider: str = "") -> StreamDecoder:
    """Events, or the array that Gemini streams to those who do not ask for them: a chunk is the same in both."""
    reader = ReplyReader(provider)

    def read(name: str, data: Mapping[str, Any]) -> Iterable[Event]:
        return reader.read(data)

    return JsonStreamDecoder(read, read_whole=reader.read)


FINAL_MARKS = (b'"finishReason"', b'"blockReason"', b'"error"')


def finality(name: str, data: Mapping[str, Any]) -> Finality | None:
    """Gemini has no last event: the chunk with the reason to stop is the last one, unless another follows it."""
    data = obj(data.get("response")) or data
    if "error" in data:
        return Finality.OVER
    candidates = objs(data.get("candidates"))
    if any(string(candidate.get("finishReason")) for candidate in candidates):
        return Finality.COMPLETE
    if string(obj(data.get("promptFeedback")).get("blockReason")):
        return Finality.COMPLETE
    return Finality.OPEN if candidates else None


def stream_encoder(
    *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Sequence[ToolDefinition] = ()
) -> StreamEncoder:
    return _Encoder(model=model, reply_id=reply_id)


class _Encoder(Replying):
    def __init__(self, *, model: str, reply_id: str) -> None:
        super().__init__(model=model, reply_id=reply_id)
        self._row = BlockSequence()
        # A signature goes out with the call after it, or else by itself.
        self._signature = ""

    def write(self, piece: Piece) -> bytes:
        return b"" if isinstance(piece, MediaPiece | OtherPiece) else self._written(self._row.feed(piece))

    def fail(self, failed: Failed) -> bytes:
        return self._flush() + sse(encode_error(failed)[1])

    def close(self, ended: Ended | None) -> bytes:
        flushed = self._flush()
        if ended is None:
            return flushed
        return flushed + self._chunk([{"text": ""}], reason=WORDS[ended.reason], usage=self.usage or Usage())

    def _flush(self) -> bytes:
        closed = self._written(self._row.finish())
        return closed + b"".join(self._chunk([part]) for part in self._pending())

    def _written(self, steps: Iterable[Step]) -> bytes:
        return b"".join(self._chunk([part]) for step in steps for part in self._parts(step))

    def _parts(self, step: Step) -> Iterator[dict[str, Any]]:
        """Texts at once; a call when it is whole, because its arguments are an object."""
        match step:
            case Opened():
                return
            case Grew(_, TextPiece(text=text)) if text:
                yield from (*self._pending(), {"text": text})
            case Grew(_, ReasoningPiece(text=text)) if text:
                yield from (*self._pending(), {"text": text, "thought": True})
            case Closed(block) if isinstance(block.started, ToolCallPiece):
                started = block.started
                call = call_part(started.call_id, started.name, block.text("arguments") or "{}")
                signature, self._signature = self._signature, ""
                yield {**call, "thoughtSignature": signature} if signature else call
            case Closed(block) if signature := portable(block.text("signature")):
                yield from self._pending()
                self._signature = signature

    def _pending(self) -> list[dict[str, Any]]:
        signature, self._signature = self._signature, ""
        return signed(signature)

    def _chunk(self, parts: list[dict[str, Any]], *, reason: str = "", usage: Usage | None = None) -> bytes:
        return sse(chunk(reply_id=self.reply_id, model=self.model, parts=parts, reason=reason, usage=usage))
