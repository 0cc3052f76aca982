"""Event streams of Anthropic Messages, both ways."""

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
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects.anthropic_messages.replies import (
    WORDS,
    block_events,
    decode_error,
    decode_reply,
    encode_error,
    ended,
    usage_from,
    usage_to,
)
from history.dialects.encoder import arguments_of
from history.dialects.finality import Finality
from history.dialects.json_access import obj, string, whole
from history.dialects.reply_encoder import Replying
from history.dialects.sse import sse
from history.dialects.streaming import BlockSequence, Closed, Grew, JsonStreamDecoder, Opened, PartNames, Step
from history.dialects.types import StreamDecoder, StreamEncoder
from history.entries import ToolDefinition


def stream_decoder(provider: str = "") -> StreamDecoder:
    return JsonStreamDecoder(_Reader(provider).read, read_whole=decode_reply)


FINAL_MARKS = (b'"message_stop"', b'"error"')


def finality(name: str, data: Mapping[str, Any]) -> Finality | None:
    return Finality.OVER if (data.get("type") or name) in ("message_stop", "error") else None


class _Reader:
    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._names = PartNames()
        # Block index → the part that its deltas continue.
        self._parts: dict[int | None, str] = {}
        # What a tool of the vendor's own is called with: by block, the block and the JSON so far.
        self._hosted: dict[int | None, tuple[Mapping[str, Any], list[str]]] = {}
        self._usage: dict[str, Any] = {}

    def read(self, name: str, data: Mapping[str, Any]) -> Iterator[Event]:
        match data.get("type") or name:
            case "message_start":
                message = obj(data.get("message"))
                model, request_id = string(message.get("model")), string(message.get("id"))
                yield Started(model=model, request_id=request_id, provider=self._provider)
                yield from self._count(message)
            case "content_block_start":
                yield from self._open(whole(data.get("index")), obj(data.get("content_block")))
            case "content_block_delta":
                yield from self._delta(whole(data.get("index")), obj(data.get("delta")))
            case "content_block_stop":
                yield from self._close(whole(data.get("index")))
            case "message_delta":
                yield from self._count(data)
                if word := string(obj(data.get("delta")).get("stop_reason")):
                    yield ended(word)
            case "error":
                yield decode_error(0, data)

    def _open(self, index: int | None, block: Mapping[str, Any]) -> Iterator[Event]:
        for piece in block_events(block, self._names):
            self._parts[index] = piece.part
            if isinstance(piece, OtherPiece):
                self._hosted[index] = (piece.data, [])
            yield piece

    def _delta(self, index: int | None, delta: Mapping[str, Any]) -> Iterator[Event]:
        part = self._parts.get(index, "")
        match delta.get("type"):
            case "text_delta":
                yield TextPiece(part=part or self._names.same("text"), text=string(delta.get("text")))
            case "citations_delta" if part and obj(delta.get("citation")):
                yield TextPiece(part=part, text="", extra={"citations": [delta["citation"]]})
            case "thinking_delta" if part:
                yield ReasoningPiece(part=part, text=string(delta.get("thinking")))
            case "signature_delta" if part:
                yield ReasoningPiece(part=part, signature=string(delta.get("signature")))
            case "input_json_delta" if part.startswith("call"):
                yield ToolCallPiece(part=part, arguments=string(delta.get("partial_json")))
            case "input_json_delta" if index in self._hosted:
                self._hosted[index][1].append(string(delta.get("partial_json")))

    def _close(self, index: int | None) -> Iterator[Event]:
        """A block of a kind that we only keep is told once more, now that its input is whole."""
        block, pieces = self._hosted.pop(index, ({}, []))
        given = arguments_of("".join(pieces))
        if given:
            yield OtherPiece(part=self._parts[index], data={**block, "input": given})

    def _count(self, holder: Mapping[str, Any]) -> Iterator[Event]:
        """Counts are totals so far, and those that did not change may be left out."""
        if usage := obj(holder.get("usage")):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
            yield UsageReported(usage=usage_from(self._usage))


def stream_encoder(
    *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Sequence[ToolDefinition] = ()
) -> StreamEncoder:
    return _Encoder(model=model, reply_id=reply_id)


class _Encoder(Replying):
    def __init__(self, *, model: str, reply_id: str) -> None:
        super().__init__(model=model, reply_id=reply_id)
        self._row = BlockSequence()
        self._has_begun = False

    def write(self, piece: Piece) -> bytes:
        if isinstance(piece, MediaPiece | OtherPiece):
            return b""
        return self._begin() + self._written(self._row.feed(piece))

    def fail(self, failed: Failed) -> bytes:
        return self._written(self._row.finish()) + sse(encode_error(failed)[1], name="error")

    def close(self, ended: Ended | None) -> bytes:
        closed = self._written(self._row.finish())
        if ended is None:
            return closed
        delta = {"stop_reason": WORDS[ended.reason], "stop_sequence": None}
        final = _event("message_delta", delta=delta, usage=usage_to(self.usage))
        return self._begin() + closed + final + _event("message_stop")

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        message: dict[str, Any] = {
            "id": self.reply_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_to(self.usage),
        }
        return _event("message_start", message=message)

    def _written(self, steps: Iterable[Step]) -> bytes:
        return b"".join(piece for step in steps for piece in _step(step))


def _event(name: str, **fields: Any) -> bytes:
    return sse({"type": name, **fields}, name=name)


def _step(step: Step) -> Iterator[bytes]:
    index = step.block.index
    match step:
        case Opened(block):
            yield _event("content_block_start", index=index, content_block=_opening(block.started))
        case Grew(_, piece):
            for delta in _deltas(piece):
                yield _event("content_block_delta", index=index, delta=delta)
        case Closed():
            yield _event("content_block_stop", index=index)


def _opening(piece: Piece) -> dict[str, Any]:
    match piece:
        case ToolCallPiece():
            return {"type": "tool_use", "id": piece.call_id, "name": piece.name, "input": {}}
        case ReasoningPiece(redacted=redacted) if redacted:
            return {"type": "redacted_thinking", "data": redacted}
        case ReasoningPiece():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "text", "text": ""}


def _deltas(piece: Piece) -> Iterator[dict[str, Any]]:
    match piece:
        case TextPiece():
            if piece.text:
                yield {"type": "text_delta", "text": piece.text}
        case ReasoningPiece():
            if piece.text:
                yield {"type": "thinking_delta", "thinking": piece.text}
            if piece.signature:
                yield {"type": "signature_delta", "signature": piece.signature}
        case ToolCallPiece():
            if piece.arguments:
                yield {"type": "input_json_delta", "partial_json": piece.arguments}
