"""Writer of replies and streams for clients of OpenAI Responses."""

from typing import Any

from history.answers.events import AnswerEnded, EndReason, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from history.dialects.json_access import without_empty
from history.dialects.openai_common import encode_error, encode_usage
from history.dialects.openai_responses.reply_reader import CUSTOM_CALL, INCOMPLETE
from history.dialects.replies import OpenBlock, ReplyWriter
from history.dialects.sse import sse
from history.dialects.tools import input_of
from history.entries import JsonDict, ModelOutput, Part, Reasoning, Text, ToolRequest, Usage

INCOMPLETE_REASONS = {reason: word for word, reason in INCOMPLETE.items()} | {"refusal": "content_filter"}
# Fields of an item before its content.
_BEFORE_CONTENT: JsonDict = {"content": [], "summary": [], "encrypted_content": None, "status": "in_progress"}
_BEFORE_CONTENT |= {"arguments": "", "input": ""}


def _output_text(text: str) -> JsonDict:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponsesReplyWriter(ReplyWriter):
    begins_with_error = True
    encode_error = staticmethod(encode_error)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._items: list[JsonDict] = []
        self._number = -1
        self._summaries: set[int] = set()  # indexes of reasoning blocks whose summary has begun

    def write_reply(self, output: ModelOutput, reason: EndReason) -> JsonDict:
        self._items = [item for index, part in enumerate(output.parts) if (item := self._item(part, index))]
        return self._finished(reason)

    def write_without_block(self, piece: Piece) -> bytes | None:
        """Redacted thinking has no place in an item."""
        if isinstance(piece, ReasoningPiece) and not (piece.text or piece.signature):
            return b""
        return super().write_without_block(piece)

    def write_start(self) -> bytes:
        created = self._event("response.created", response=self._response())
        return created + self._event("response.in_progress", response=self._response())

    def open_block(self, block: OpenBlock) -> bytes:
        item = self._item(block.part, block.index)
        before_content = {name: _BEFORE_CONTENT.get(name, value) for name, value in item.items()}
        opened = self._event("response.output_item.added", output_index=block.index, item=before_content)
        return opened + (self._part_event("added", block, "") if self._prefix(block.first) == "msg" else b"")

    def write_piece(self, block: OpenBlock, piece: Piece) -> bytes:
        match piece:
            case TextPiece(text=text) if text:
                fields = {"content_index": 0, "delta": text, "logprobs": []}
                return self._block_event("response.output_text.delta", block, **fields)
            case ReasoningPiece(text=text) if text:
                opened = b"" if block.index in self._summaries else self._part_event("added", block, "")
                self._summaries.add(block.index)
                fields = {"summary_index": 0, "delta": text}
                return opened + self._block_event("response.reasoning_summary_text.delta", block, **fields)
            case ToolCallPiece(arguments=arguments) if arguments and self._prefix(block.first) == "fc":
                return self._block_event("response.function_call_arguments.delta", block, delta=arguments)
        return b""

    def close_block(self, block: OpenBlock) -> bytes:
        item = self._item(block.part, block.index)
        self._items.append(item)
        done = self._done_events(block)
        return done + self._event("response.output_item.done", output_index=block.index, item=item)

    def write_error(self, body: JsonDict) -> bytes:
        error = body["error"]
        message = {"code": error["code"] or error["type"], "message": error["message"]}
        response = {**self._response(), "status": "failed", "error": message}
        if self.usage:
            response["usage"] = encode_usage(self.usage)
        return self._event("response.failed", response=response)

    def write_end(self, ended: AnswerEnded) -> bytes:
        response = self._finished(ended.reason)
        return self._event(f"response.{response['status']}", response=response)

    def _finished(self, reason: EndReason) -> JsonDict:
        word = INCOMPLETE_REASONS.get(reason)
        status = {"status": "incomplete", "incomplete_details": {"reason": word}} if word else {"status": "completed"}
        return {**self._response(), **status, "usage": encode_usage(self.usage or Usage())}

    def _response(self) -> JsonDict:
        return {
            "id": self.reply_id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self.model,
            "output": list(self._items),
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }

    def _event(self, name: str, /, **fields: object) -> bytes:
        self._number += 1
        return sse({"type": name, "sequence_number": self._number, **fields}, name=name)

    def _block_event(self, name: str, block: OpenBlock, /, **fields: object) -> bytes:
        item_id = f"{self._prefix(block.first)}_{self.reply_id}_{block.index}"
        return self._event(name, item_id=item_id, output_index=block.index, **fields)

    def _prefix(self, part: Part | Piece) -> str:
        """The prefix of the item's id, which names its type."""
        match part:
            case ToolCallPiece(name=name) | ToolRequest(name=name):
                return "ctc" if name in self.text_tools else "fc"
            case ReasoningPiece() | Reasoning():
                return "rs"
        return "msg"

    def _item(self, part: Part, index: int) -> JsonDict:
        """The item of a part, empty for a part that has no place in a response."""
        item = {"id": f"{self._prefix(part)}_{self.reply_id}_{index}"}
        match part:
            case Text(text=text):
                content = [_output_text(text)]
                return {**item, "type": "message", "role": "assistant", "status": "completed", "content": content}
            case Reasoning(text=text, signature=signature) if text or signature:
                summary = [{"type": "summary_text", "text": text}] if text else []
                return {**item, "type": "reasoning", "summary": summary, "encrypted_content": signature or None}
            case ToolRequest(call_id=call_id, name=name, arguments=arguments):
                # In the form of the client's tool: a function, one of a group, or a tool with plain text.
                if name in self.text_tools:
                    call = {**item, "type": CUSTOM_CALL, "input": input_of(arguments)}
                else:
                    call = {**item, "type": "function_call", "arguments": arguments}
                substitute = self.substitutes.get(name)
                namespace = without_empty(namespace=substitute and substitute.namespace)
                return {**call, "call_id": call_id, "name": name, **namespace, "status": "completed"}
        return {}

    def _part_event(self, word: str, block: OpenBlock, text: str) -> bytes:
        if self._prefix(block.first) == "msg":
            fields = {"content_index": 0, "part": _output_text(text)}
            return self._block_event(f"response.content_part.{word}", block, **fields)
        fields = {"summary_index": 0, "part": {"type": "summary_text", "text": text}}
        return self._block_event(f"response.reasoning_summary_part.{word}", block, **fields)

    def _done_events(self, block: OpenBlock) -> bytes:
        """Events that repeat the whole content of the deltas."""
        prefix, part = self._prefix(block.first), block.part
        if isinstance(part, ToolRequest) and prefix == "ctc":  # the text is known only at the end
            text = input_of(part.arguments)
            delta = self._block_event("response.custom_tool_call_input.delta", block, delta=text)
            return delta + self._block_event("response.custom_tool_call_input.done", block, input=text)
        if isinstance(part, ToolRequest):
            call = {"name": part.name, "arguments": part.arguments}
            return self._block_event("response.function_call_arguments.done", block, **call)
        if prefix == "msg":
            fields = {"content_index": 0, "text": part.text, "logprobs": []}
            done = self._block_event("response.output_text.done", block, **fields)
        elif part.text:
            done = self._block_event("response.reasoning_summary_text.done", block, summary_index=0, text=part.text)
        else:
            return b""
        return done + self._part_event("done", block, part.text)
