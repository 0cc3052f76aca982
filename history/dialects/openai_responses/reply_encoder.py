"""Encoder of replies and streams for clients of OpenAI Responses."""

from collections.abc import Iterator, Sequence

from history.answers.assembly import end_reason
from history.answers.events import Ended, EndReason, Failed, Piece, ReasoningPiece, TextPiece, ToolCallPiece
from history.dialects.json_access import without_empty
from history.dialects.openai_common import encode_error
from history.dialects.openai_responses.reply_decoder import CUSTOM_CALL
from history.dialects.reply_encoder import OpenBlock, ReplyStreamEncoder
from history.dialects.sse import sse
from history.dialects.tools import ToolSubstitute, input_of, substitutes_by_name
from history.entries import JsonDict, ModelOutput, Part, Reasoning, Text, ToolDefinition, ToolRequest, Usage

# Reasons of incomplete responses.
INCOMPLETE_REASONS: dict[EndReason, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


def encode_reply(
    output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()
) -> JsonDict:
    reason, substitutes = end_reason(output.end_reason or "stop"), substitutes_by_name(tools)
    items = [
        item
        for place, part in enumerate(output.parts)
        for item in _items_of(part, f"{reply_id}_{place}", substitutes.get(getattr(part, "name", "")))
    ]
    return {**_response(reply_id, created, output.model, items), **_ending(reason), "usage": _usage_to(output.usage)}


def _response(reply_id: str, created: int, model: str, items: list[JsonDict]) -> JsonDict:
    """An unfinished response."""
    return {
        "id": reply_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": items,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _ending(reason: EndReason) -> JsonDict:
    if word := INCOMPLETE_REASONS.get(reason):
        return {"status": "incomplete", "incomplete_details": {"reason": word}}
    return {"status": "completed"}


def _usage_to(usage: Usage | None) -> JsonDict:
    usage = usage or Usage()
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": details,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _items_of(part: Part, name: str, substitute: ToolSubstitute | None) -> Iterator[JsonDict]:
    match part:
        case Text():
            yield _message_item(name, part.text)
        case Reasoning() if part.text or part.signature:
            yield _reasoning_item(name, part.text, part.signature)
        case ToolRequest():
            yield _call_item(name, part.call_id, part.name, part.arguments, substitute)


def _message_item(name: str, text: str) -> JsonDict:
    content = [_output_text(text)]
    return {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": content}


def _output_text(text: str) -> JsonDict:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _reasoning_item(name: str, text: str, signature: str) -> JsonDict:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": f"rs_{name}", "type": "reasoning", "summary": summary, "encrypted_content": signature or None}


def _call_item(name: str, call_id: str, tool: str, arguments: str, substitute: ToolSubstitute | None) -> JsonDict:
    """A call in the form of the client's tool: a function, one of a group, or a tool with plain text."""
    if substitute and substitute.takes_text:
        kind: JsonDict = {"id": f"ctc_{name}", "type": CUSTOM_CALL, "input": input_of(arguments)}
    else:
        kind = {"id": f"fc_{name}", "type": "function_call", "arguments": arguments}
    namespace = without_empty(namespace=substitute and substitute.namespace)
    return {**kind, "call_id": call_id, "name": tool, **namespace, "status": "completed"}


class _StreamEncoder(ReplyStreamEncoder):
    def prepare(self) -> None:
        self._items: list[JsonDict] = []
        self._number = -1
        # Indexes of reasoning blocks whose summary has begun.
        self._summaries: set[int] = set()

    def write(self, piece: Piece) -> bytes:
        """Redacted thinking has no place in an item."""
        if isinstance(piece, ReasoningPiece) and not (piece.text or piece.signature):
            return b""
        return super().write(piece)

    def write_start(self) -> bytes:
        created = self._event("response.created", response=self._response())
        return created + self._event("response.in_progress", response=self._response())

    def open_block(self, block: OpenBlock) -> bytes:
        opened = self._event("response.output_item.added", output_index=block.index, item=_emptied(self._item(block)))
        return opened + (self._part_event("added", block, "") if self._prefix(block) == "msg" else b"")

    def write_piece(self, block: OpenBlock, piece: Piece) -> bytes:
        match piece:
            case TextPiece(text=text) if text:
                fields = {"content_index": 0, "delta": text, "logprobs": []}
                return self._block_event("response.output_text.delta", block, **fields)
            case ReasoningPiece(text=text) if text:
                opened = b"" if block.index in self._summaries else self._part_event("added", block, "")
                self._summaries.add(block.index)
                return opened + self._block_event(
                    "response.reasoning_summary_text.delta", block, summary_index=0, delta=text
                )
            case ToolCallPiece(arguments=arguments) if arguments and self._prefix(block) == "fc":
                return self._block_event("response.function_call_arguments.delta", block, delta=arguments)
        return b""

    def close_block(self, block: OpenBlock) -> bytes:
        item = self._item(block)
        self._items.append(item)
        done = self._done_events(block)
        return done + self._event("response.output_item.done", output_index=block.index, item=item)

    def write_error(self, failed: Failed) -> bytes:
        begun = self.begin()
        error = encode_error(failed)[1]["error"]
        message = {"code": error["code"] or error["type"], "message": error["message"]}
        response = {**self._response(), "status": "failed", "error": message}
        if self.usage:
            response["usage"] = _usage_to(self.usage)
        return begun + self._event("response.failed", response=response)

    def write_end(self, ended: Ended) -> bytes:
        response = {**self._response(), **_ending(ended.reason), "usage": _usage_to(self.usage)}
        return self._event(f"response.{response['status']}", response=response)

    def _response(self) -> JsonDict:
        return _response(self.reply_id, self.created, self.model, list(self._items))

    def _event(self, name: str, /, **fields: object) -> bytes:
        self._number += 1
        return sse({"type": name, "sequence_number": self._number, **fields}, name=name)

    def _block_event(self, name: str, block: OpenBlock, /, **fields: object) -> bytes:
        item_id = f"{self._prefix(block)}_{self.reply_id}_{block.index}"
        return self._event(name, item_id=item_id, output_index=block.index, **fields)

    def _prefix(self, block: OpenBlock) -> str:
        """The prefix of the item's id, which names its type."""
        match block.first:
            case ToolCallPiece(name=name):
                return "ctc" if self.takes_text(name) else "fc"
            case ReasoningPiece():
                return "rs"
        return "msg"

    def _item(self, block: OpenBlock) -> JsonDict:
        """The item with its content so far."""
        name = f"{self.reply_id}_{block.index}"
        match block.first:
            case ToolCallPiece(call_id=call_id, name=tool):
                arguments = block.text("arguments") or "{}"
                return _call_item(name, call_id, tool, arguments, self.substitutes.get(tool))
            case ReasoningPiece():
                return _reasoning_item(name, block.text("text"), block.text("signature"))
        return _message_item(name, block.text("text"))

    def _part_event(self, word: str, block: OpenBlock, text: str) -> bytes:
        """The start or the end of the content of a message, or of a summary."""
        if self._prefix(block) == "msg":
            fields = {"content_index": 0, "part": _output_text(text)}
            return self._block_event(f"response.content_part.{word}", block, **fields)
        fields = {"summary_index": 0, "part": {"type": "summary_text", "text": text}}
        return self._block_event(f"response.reasoning_summary_part.{word}", block, **fields)

    def _done_events(self, block: OpenBlock) -> bytes:
        """Events that repeat the whole content of the deltas."""
        text, arguments, prefix = block.text("text"), block.text("arguments"), self._prefix(block)
        if prefix == "ctc":  # the text is known only at the end
            text = input_of(arguments)
            delta = self._block_event("response.custom_tool_call_input.delta", block, delta=text)
            return delta + self._block_event("response.custom_tool_call_input.done", block, input=text)
        if isinstance(block.first, ToolCallPiece):
            call = {"name": block.first.name, "arguments": arguments or "{}"}
            return self._block_event("response.function_call_arguments.done", block, **call)
        if prefix == "msg":
            fields = {"content_index": 0, "text": text, "logprobs": []}
            done = self._block_event("response.output_text.done", block, **fields)
        elif text:
            done = self._block_event("response.reasoning_summary_text.done", block, summary_index=0, text=text)
        else:
            return b""
        return done + self._part_event("done", block, text)


def _emptied(item: JsonDict) -> JsonDict:
    """The item before its content."""
    empty: JsonDict = {"content": [], "summary": [], "encrypted_content": None, "status": "in_progress"}
    empty |= {"arguments": "", "input": ""}
    return {name: empty.get(name, value) for name, value in item.items()}


stream_encoder = _StreamEncoder
