"""Reader of Anthropic's replies, streams, errors and usage."""

from collections.abc import Iterator

from history.answers import events
from history.dialects.errors import ERRORS, failure_event, read_body
from history.dialects.json_access import as_count, as_int, obj, objs, string
from history.dialects.replies import ReplyReader
from history.dialects.request_decoder import as_other
from history.dialects.sse import Finality
from history.dialects.tools import arguments_text, parse_arguments
from history.entries import JsonDict, JsonObject, Usage

DIALECT = "anthropic-messages"

REASONS: dict[str, events.EndReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "pause_turn": "pause",
    "refusal": "refusal",
}
ERROR_TYPES: dict[events.ErrorKind, str] = {kind: f"{kind}_error" for kind in ERRORS}
ERROR_TYPES |= {"too_large": "request_too_large", "context_length": "invalid_request_error", "server": "api_error"}
KINDS: dict[str, events.ErrorKind] = {code: kind for kind, code in ERROR_TYPES.items()}
KINDS["invalid_request_error"] = "invalid_request"


def usage_from(raw: JsonObject) -> Usage:
    """Anthropic's input_tokens exclude tokens read from and written to the cache; ours include them."""
    read, written = as_count(raw.get("cache_read_input_tokens")), as_count(raw.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=as_count(raw.get("input_tokens")) + read + written,
        output_tokens=as_count(raw.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=as_count(obj(raw.get("output_tokens_details")).get("thinking_tokens")),
        raw=raw,
    )


class AnthropicReplyReader(ReplyReader):
    final_marks = (b'"message_stop"', b'"error"')

    def __init__(self, provider: str = "") -> None:
        super().__init__(provider)
        self._parts: dict[int | None, str] = {}  # block index → the part of its deltas
        # Block index → a call of a hosted tool, and its input so far.
        self._hosted_calls: dict[int | None, tuple[JsonObject, list[str]]] = {}
        self._usage: JsonDict = {}

    @staticmethod
    def decode_error(status: int, body: bytes | JsonObject) -> events.AnswerFailed:
        reply = read_body(body)
        error = obj(reply.get("error"))
        code = string(error.get("type"))
        message = string(error.get("message")) or string(reply.get("message"))
        return failure_event(reply, status, message=message, code=code, kind=KINDS.get(code))

    @staticmethod
    def finality(name: str, event: JsonObject) -> Finality | None:
        return Finality.OVER if (event.get("type") or name) in ("message_stop", "error") else None

    def read_reply(self, reply: JsonObject) -> Iterator[events.Event]:
        if reply.get("type") == "error" or "error" in reply:
            yield self.decode_error(0, reply)
            return
        yield from self.start(reply)
        for block in objs(reply.get("content")):
            yield self._block_piece(block)
        if usage := obj(reply.get("usage")):
            yield events.UsageReported(usage=usage_from(usage))
        yield from self._end(reply)

    def read(self, name: str, event: JsonObject) -> Iterator[events.Event]:
        index = as_int(event.get("index"))
        match event.get("type") or name:
            case "message_start":
                message = obj(event.get("message"))
                yield from self.start(message)
                yield from self._count(message)
            case "content_block_start":
                piece = self._block_piece(obj(event.get("content_block")))
                self._parts[index] = piece.part
                if isinstance(piece, events.OtherPiece):
                    self._hosted_calls[index] = (piece.data, [])
                yield piece
            case "content_block_delta":
                yield from self._delta(index, obj(event.get("delta")))
            case "content_block_stop":
                call, pieces = self._hosted_calls.pop(index, ({}, []))
                if arguments := parse_arguments("".join(pieces)):
                    # The whole call replaces its start.
                    yield events.OtherPiece(part=self._parts[index], data={**call, "input": arguments})
            case "message_delta":
                yield from self._count(event)
                yield from self._end(obj(event.get("delta")))
            case "error":
                yield self.decode_error(0, event)

    def _block_piece(self, block: JsonObject) -> events.Piece:
        """The piece of a whole block, or of the start of one."""
        match block.get("type"):
            case "text":
                extra = {"citations": citations} if (citations := objs(block.get("citations"))) else {}
                return events.TextPiece(part=self.same_part("text"), text=string(block.get("text")), extra=extra)
            case "thinking":
                text, signature = string(block.get("thinking")), string(block.get("signature"))
                return events.ReasoningPiece(part=self.new_part("thinking"), text=text, signature=signature)
            case "redacted_thinking":
                return events.ReasoningPiece(part=self.new_part("thinking"), redacted=string(block.get("data")))
            case "tool_use":
                arguments = arguments_text(block.get("input")) if block.get("input") else ""
                call_id, name = string(block.get("id")), string(block.get("name"))
                return events.ToolCallPiece(part=self.new_part("call"), call_id=call_id, name=name, arguments=arguments)
            case _:
                return events.OtherPiece(part=self.new_part("other"), data=as_other(block))

    def _delta(self, index: int | None, delta: JsonObject) -> Iterator[events.Event]:
        part = self._parts.get(index, "")
        match delta.get("type"):
            case "text_delta":
                yield events.TextPiece(part=part or self.same_part("text"), text=string(delta.get("text")))
            case "citations_delta" if part and obj(delta.get("citation")):
                yield events.TextPiece(part=part, text="", extra={"citations": [delta["citation"]]})
            case "thinking_delta" if part:
                yield events.ReasoningPiece(part=part, text=string(delta.get("thinking")))
            case "signature_delta" if part:
                yield events.ReasoningPiece(part=part, signature=string(delta.get("signature")))
            case "input_json_delta" if part.startswith("call"):
                yield events.ToolCallPiece(part=part, arguments=string(delta.get("partial_json")))
            case "input_json_delta" if index in self._hosted_calls:
                self._hosted_calls[index][1].append(string(delta.get("partial_json")))

    def _count(self, holder: JsonObject) -> Iterator[events.Event]:
        """Counts are totals so far; unchanged ones may be missing."""
        if usage := obj(holder.get("usage")):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
            yield events.UsageReported(usage=usage_from(self._usage))

    def _end(self, reply: JsonObject) -> Iterator[events.AnswerEnded]:
        if word := string(reply.get("stop_reason")):
            yield events.AnswerEnded(reason=REASONS.get(word, "other"))
