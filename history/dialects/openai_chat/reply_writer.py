"""Writer of replies and streams for clients of OpenAI Chat Completions."""

from typing import Any

from history.answers.assembly import NO_ARGUMENTS
from history.answers.events import AnswerEnded, EndReason, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from history.dialects.json_access import without_empty
from history.dialects.openai_chat.reply_reader import REASONS
from history.dialects.openai_common import encode_error, encode_usage
from history.dialects.replies import ReplyWriter
from history.dialects.sse import sse
from history.dialects.tools import input_of
from history.entries import JsonDict, ModelOutput, ToolRequest, Usage

# The first word of each reason.
FINISH_REASONS: dict[EndReason, str] = {reason: word for word, reason in reversed(REASONS.items())}
FINISH_REASONS |= {"refusal": "content_filter", "pause": "stop", "other": "stop"}
DONE = sse("[DONE]")


def _usage_to(usage: Usage | None) -> JsonDict:
    written = encode_usage(usage or Usage(), "prompt", "completion")
    if not written["prompt_tokens_details"]["cache_write_tokens"]:
        del written["prompt_tokens_details"]["cache_write_tokens"]
    return written


class ChatReplyWriter(ReplyWriter):
    """Pieces are written as they come: a message has one text and a list of calls, and no blocks."""

    encode_error = staticmethod(encode_error)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._has_role = False
        # The part of the latest text, and whether another part came after it.
        self._text_part, self._is_interrupted = "", False
        self._thinking_part = ""
        self._calls: dict[str, int] = {}
        self._without_arguments: set[int] = set()  # calls without arguments so far
        # Arguments of calls with plain text: the text is known only at the end.
        self._text_arguments: dict[int, list[str]] = {}

    def write_reply(self, output: ModelOutput, reason: EndReason) -> JsonDict:
        calls = [self._call(call) for call in output.tool_requests]
        extra = without_empty(reasoning_content=output.reasoning, tool_calls=calls)
        message: JsonDict = {"role": "assistant", "content": output.text or None, "refusal": None, **extra}
        return {
            "id": self.reply_id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH_REASONS[reason]}],
            "usage": _usage_to(self.usage),
        }

    def _call(self, call: ToolRequest) -> JsonDict:
        if call.name in self.text_tools:
            custom = {"name": call.name, "input": input_of(call.arguments)}
            return {"id": call.call_id, "type": "custom", "custom": custom}
        return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def write_without_block(self, piece: Piece) -> bytes:
        match piece:
            case TextPiece(text=""):
                return b""
            case TextPiece():
                # There is one text only: another one, or text after another part, is a new paragraph.
                is_new = self._text_part and (self._is_interrupted or self._text_part != piece.part)
                self._text_part, self._is_interrupted = piece.part, False
                return self._delta(content=f"\n\n{piece.text}" if is_new else piece.text)
        self._is_interrupted = True
        if isinstance(piece, ReasoningPiece) and piece.text:
            is_new = self._thinking_part and self._thinking_part != piece.part
            self._thinking_part = piece.part
            return self._delta(reasoning_content=f"\n\n{piece.text}" if is_new else piece.text)
        if isinstance(piece, ToolCallPiece) and (call := self._call_delta(piece)):
            return self._delta(tool_calls=[call])
        return b""

    def write_end(self, ended: AnswerEnded) -> bytes:
        # Clients parse the joined arguments, and an empty text is not JSON.
        empty = [{"index": index, "function": {"arguments": NO_ARGUMENTS}} for index in sorted(self._without_arguments)]
        inputs = {index: input_of("".join(pieces)) for index, pieces in self._text_arguments.items()}
        texts = [{"index": index, "custom": {"input": text}} for index, text in inputs.items()]
        written = b"".join(self._delta(tool_calls=calls) for calls in (empty, texts) if calls)
        written += self._delta(finish_reason=FINISH_REASONS[ended.reason])
        if self.with_usage:  # other clients cannot read this chunk
            written += self._chunk(choices=[], usage=_usage_to(self.usage))
        return written + DONE

    def _call_delta(self, piece: ToolCallPiece) -> JsonDict | None:
        is_new = piece.part not in self._calls
        index = self._calls.setdefault(piece.part, len(self._calls))
        if index in self._text_arguments or (is_new and piece.name in self.text_tools):
            self._text_arguments.setdefault(index, []).append(piece.arguments)
            custom = {"name": piece.name, "input": ""}
            return {"index": index, "id": piece.call_id, "type": "custom", "custom": custom} if is_new else None
        if piece.arguments:
            self._without_arguments.discard(index)
        elif is_new:
            self._without_arguments.add(index)
        if not is_new:
            return {"index": index, "function": {"arguments": piece.arguments}}
        function = {"name": piece.name, "arguments": piece.arguments}
        return {"index": index, "id": piece.call_id, "type": "function", "function": function}

    def _delta(self, *, finish_reason: str | None = None, **delta: object) -> bytes:
        if not self._has_role:
            self._has_role = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._chunk(choices=[choice], **({"usage": None} if self.with_usage else {}))

    def _chunk(self, **fields: object) -> bytes:
        head = {"id": self.reply_id, "object": "chat.completion.chunk", "created": self.created}
        return sse({**head, "model": self.model, **fields})
