"""Encoder of replies, streams and errors for clients of Gemini. A chunk of a stream has the shape of a reply."""

from collections.abc import Sequence

from history.answers.assembly import end_reason
from history.answers.events import Ended, EndReason, Failed, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from history.dialects.gemini_generate.reply_decoder import ERRORS
from history.dialects.reply_decoder import STATUS_OF_KIND
from history.dialects.reply_encoder import OpenBlock, ReplyStreamEncoder
from history.dialects.request_decoder import from_base64
from history.dialects.sse import sse
from history.dialects.tools import wrap_arguments
from history.entries import (
    JsonDict,
    ModelOutput,
    OtherPart,
    Part,
    Reasoning,
    Text,
    ToolDefinition,
    ToolRequest,
    Usage,
    thaw,
)

FINISH_REASONS: dict[EndReason, str] = {
    "stop": "STOP",
    "tool_use": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "STOP",
    "other": "OTHER",
}


def encode_reply(
    output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()
) -> JsonDict:
    reason = FINISH_REASONS[end_reason(output.end_reason or "stop")]
    return _reply(reply_id, output.model, _parts_of(output.parts), reason=reason, usage=output.usage)


def encode_error(error: Failed) -> tuple[int, JsonDict]:
    status = STATUS_OF_KIND[error.kind]
    return status, {"error": {"code": status, "message": error.message, "status": ERRORS[error.kind]}}


def _reply(
    reply_id: str, model: str, parts: list[JsonDict], *, reason: str = "", usage: Usage | None = None
) -> JsonDict:
    candidate: JsonDict = {"content": {"role": "model", "parts": parts}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    counts = {"usageMetadata": _usage_to(usage)} if usage else {}
    return {"candidates": [candidate], **counts, "modelVersion": model, "responseId": reply_id}


def _usage_to(usage: Usage) -> JsonDict:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": max(usage.output_tokens - usage.reasoning_tokens, 0),
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


def _parts_of(parts: tuple[Part, ...]) -> list[JsonDict]:
    written: list[JsonDict] = []
    signature = ""
    for part in parts:
        match part:
            case Reasoning():
                written += signature_parts(signature)
                written += [{"text": part.text, "thought": True}] if part.text else []
                signature = _portable(part.signature)
                continue
            case ToolRequest():
                written.append(_call_part(part.call_id, part.name, part.arguments, signature))
            case Text() if part.text:
                written += [*signature_parts(signature), {"text": part.text}]
            case OtherPart(data=data) if "executableCode" in data or "codeExecutionResult" in data:
                written += [*signature_parts(signature), dict(thaw(data))]
            case _:
                continue
        signature = ""
    return written + signature_parts(signature)


def _call_part(call_id: str, name: str, arguments: str, signature: str) -> JsonDict:
    call = {"functionCall": {"id": call_id, "name": name, "args": wrap_arguments(arguments)}}
    return {**call, "thoughtSignature": signature} if signature else call


def signature_parts(signature: str) -> list[JsonDict]:
    """A signature without a call: Gemini sends it with an empty text."""
    return [{"text": "", "thoughtSignature": signature}] if signature else []


def _portable(signature: str) -> str:
    """Gemini's signatures are base64; its clients fail on any other."""
    return "" if from_base64(signature) is None else signature


class _StreamEncoder(ReplyStreamEncoder):
    # The signature for the next call; without one it is sent by itself.
    signature = ""

    def open_block(self, block: OpenBlock) -> bytes:
        return b""

    def write_piece(self, block: OpenBlock, piece: Piece) -> bytes:
        match piece:
            case TextPiece(text=text) if text:
                return self._write_parts(*self._take_signature(), {"text": text})
            case ReasoningPiece(text=text) if text:
                return self._write_parts(*self._take_signature(), {"text": text, "thought": True})
        return b""

    def close_block(self, block: OpenBlock) -> bytes:
        """Write a call as a whole, because its arguments are an object."""
        first = block.first
        if isinstance(first, ToolCallPiece):
            signature, self.signature = self.signature, ""
            return self._write_parts(_call_part(first.call_id, first.name, block.text("arguments") or "{}", signature))
        if not (signature := _portable(block.text("signature"))):
            return b""
        written = self._write_parts(*self._take_signature())
        self.signature = signature
        return written

    def flush(self) -> bytes:
        return super().flush() + self._write_parts(*self._take_signature())

    def write_error(self, failed: Failed) -> bytes:
        return sse(encode_error(failed)[1])

    def write_end(self, ended: Ended) -> bytes:
        reason, usage = FINISH_REASONS[ended.reason], self.usage or Usage()
        return sse(_reply(self.reply_id, self.model, [{"text": ""}], reason=reason, usage=usage))

    def _take_signature(self) -> list[JsonDict]:
        signature, self.signature = self.signature, ""
        return signature_parts(signature)

    def _write_parts(self, *parts: JsonDict) -> bytes:
        """Each part is a chunk."""
        return b"".join(sse(_reply(self.reply_id, self.model, [part])) for part in parts)


stream_encoder = _StreamEncoder
