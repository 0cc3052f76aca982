"""Writer of replies, streams and errors for clients of Anthropic."""

from history.answers.events import AnswerEnded, AnswerFailed, EndReason, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from history.dialects.anthropic_messages.reply_reader import ERROR_TYPES, REASONS
from history.dialects.errors import ERRORS
from history.dialects.replies import OpenBlock, ReplyWriter
from history.dialects.sse import sse
from history.dialects.tools import wrap_arguments
from history.entries import JsonDict, ModelOutput, Part, Reasoning, Text, ToolRequest, Usage

# The first word of each reason.
STOP_REASONS: dict[EndReason, str] = {reason: word for word, reason in reversed(REASONS.items())}
STOP_REASONS |= {"content_filter": "refusal", "other": "end_turn"}
OVERLOADED = 529


def blocks_of(part: Part) -> list[JsonDict]:
    match part:
        case Text():
            return [{"type": "text", "text": part.text}]
        case Reasoning(redacted=redacted) if redacted:
            return [{"type": "redacted_thinking", "data": redacted}]
        case Reasoning():
            return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]
        case ToolRequest():
            arguments = wrap_arguments(part.arguments)
            return [{"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}]
    return []


def _usage_to(usage: Usage | None) -> JsonDict:
    usage = usage or Usage()
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    counts: JsonDict = {
        "input_tokens": max(usage.input_tokens - cached, 0),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return counts


class AnthropicReplyWriter(ReplyWriter):
    @staticmethod
    def encode_error(error: AnswerFailed) -> tuple[int, JsonDict]:
        status = OVERLOADED if error.kind == "overloaded" else ERRORS[error.kind].status
        return status, {"type": "error", "error": {"type": ERROR_TYPES[error.kind], "message": error.message}}

    def write_reply(self, output: ModelOutput, reason: EndReason) -> JsonDict:
        content = [block for part in output.parts for block in blocks_of(part)]
        return self._message(content, STOP_REASONS[reason])

    def _message(self, content: list[JsonDict], stop_reason: str | None) -> JsonDict:
        return {
            "id": self.reply_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": _usage_to(self.usage),
        }

    def write_start(self) -> bytes:
        return _event("message_start", message=self._message([], None))

    def open_block(self, block: OpenBlock) -> bytes:
        (empty,) = blocks_of(OpenBlock(block.index, block.first).part)
        return _event("content_block_start", index=block.index, content_block=empty)

    def write_piece(self, block: OpenBlock, piece: Piece) -> bytes:
        deltas: list[tuple[str, str, str]] = []
        match piece:
            case TextPiece():
                deltas = [("text_delta", "text", piece.text)]
            case ReasoningPiece():
                deltas = [("thinking_delta", "thinking", piece.text), ("signature_delta", "signature", piece.signature)]
            case ToolCallPiece():
                deltas = [("input_json_delta", "partial_json", piece.arguments)]
        return b"".join(
            _event("content_block_delta", index=block.index, delta={"type": kind, field: text})
            for kind, field, text in deltas
            if text
        )

    def close_block(self, block: OpenBlock) -> bytes:
        return _event("content_block_stop", index=block.index)

    def write_error(self, body: JsonDict) -> bytes:
        return sse(body, name="error")

    def write_end(self, ended: AnswerEnded) -> bytes:
        delta = {"stop_reason": STOP_REASONS[ended.reason], "stop_sequence": None}
        return _event("message_delta", delta=delta, usage=_usage_to(self.usage)) + _event("message_stop")


def _event(name: str, **fields: object) -> bytes:
    return sse({"type": name, **fields}, name=name)
