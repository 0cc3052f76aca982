"""Writer of replies, streams and errors for clients of Gemini. A chunk of a stream has the shape of a reply."""

from history.answers.events import AnswerEnded, AnswerFailed, EndReason, Piece, ReasoningPiece, TextPiece
from history.dialects.errors import ERRORS
from history.dialects.gemini_generate.reply_reader import REASONS
from history.dialects.json_access import from_base64, without_empty
from history.dialects.replies import OpenBlock, ReplyWriter
from history.dialects.sse import sse
from history.dialects.tools import wrap_arguments
from history.entries import JsonDict, ModelOutput, OtherPart, Part, Reasoning, Text, ToolRequest, Usage, thaw

# The first word of each reason.
FINISH_REASONS: dict[EndReason, str] = {reason: word for word, reason in reversed(REASONS.items())}
FINISH_REASONS |= {"tool_use": "STOP", "refusal": "SAFETY", "pause": "STOP", "other": "OTHER"}


def _usage_to(usage: Usage) -> JsonDict:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": max(usage.output_tokens - usage.reasoning_tokens, 0),
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


def signature_parts(signature: str) -> list[JsonDict]:
    """A signature without a call: Gemini sends it with an empty text."""
    return [{"text": "", "thoughtSignature": signature}] if signature else []


def _portable(signature: str) -> str:
    """Gemini's signatures are base64; its clients fail on any other."""
    return "" if from_base64(signature) is None else signature


class GeminiReplyWriter(ReplyWriter):
    signature = ""  # the signature for the next call; without one it is sent by itself

    @staticmethod
    def encode_error(error: AnswerFailed) -> tuple[int, JsonDict]:
        names = ERRORS[error.kind]
        return names.status, {"error": {"code": names.status, "message": error.message, "status": names.google}}

    def write_reply(self, output: ModelOutput, reason: EndReason) -> JsonDict:
        parts = [written for part in output.parts for written in self._parts(part)]
        return self._reply([*parts, *self._take_signature()], reason=FINISH_REASONS[reason], usage=output.usage)

    def write_piece(self, block: OpenBlock, piece: Piece) -> bytes:
        return self._write_parts(self._parts(piece))

    def close_block(self, block: OpenBlock) -> bytes:
        """Write a call as a whole, because its arguments are an object."""
        match block.part:
            case ToolRequest() as call:
                return self._write_parts(self._parts(call))
            case Reasoning(signature=signature) if _portable(signature):
                return self._write_parts(self._parts(Reasoning(signature=signature)))
        return b""

    def write_rest(self) -> bytes:
        return self._write_parts(self._take_signature())

    def write_end(self, ended: AnswerEnded) -> bytes:
        reason, usage = FINISH_REASONS[ended.reason], self.usage or Usage()
        return sse(self._reply([{"text": ""}], reason=reason, usage=usage))

    def _parts(self, part: Part | Piece) -> list[JsonDict]:
        match part:
            case Text(text=text) | TextPiece(text=text) if text:
                return [*self._take_signature(), {"text": text}]
            case ReasoningPiece(text=text) if text:
                return [*self._take_signature(), {"text": text, "thought": True}]
            case Reasoning():
                thought = [{"text": part.text, "thought": True}] if part.text else []
                written = [*self._take_signature(), *thought]
                self.signature = _portable(part.signature)
                return written
            case ToolRequest():
                function = {"id": part.call_id, "name": part.name, "args": wrap_arguments(part.arguments)}
                signature, self.signature = self.signature, ""
                return [{"functionCall": function, **without_empty(thoughtSignature=signature)}]
            case OtherPart(data=data) if "executableCode" in data or "codeExecutionResult" in data:
                return [*self._take_signature(), dict(thaw(data))]
        return []

    def _take_signature(self) -> list[JsonDict]:
        signature, self.signature = self.signature, ""
        return signature_parts(signature)

    def _write_parts(self, parts: list[JsonDict]) -> bytes:
        return b"".join(sse(self._reply([part])) for part in parts)

    def _reply(self, parts: list[JsonDict], *, reason: str = "", usage: Usage | None = None) -> JsonDict:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **without_empty(finishReason=reason)}
        counts = {"usageMetadata": _usage_to(usage)} if usage else {}
        return {"candidates": [candidate], **counts, "modelVersion": self.model, "responseId": self.reply_id}
