"""Event streams of OpenAI Responses, both ways."""

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
)
from history.dialects.custom_tools import input_of
from history.dialects.encoder import stand_ins
from history.dialects.finality import Finality
from history.dialects.json_access import obj, objs, string
from history.dialects.openai_common import INPUT_CLOSES, INPUT_OPENS, piece_of_input
from history.dialects.openai_responses.replies import (
    CUSTOM,
    call_item,
    call_of,
    content_text,
    decode_error,
    decode_reply,
    encode_error,
    end_events,
    ending,
    item_events,
    message_item,
    output_text,
    reasoning_extra,
    reasoning_item,
    reasoning_text,
    response,
    usage_to,
)
from history.dialects.reply_encoder import Replying
from history.dialects.sse import sse
from history.dialects.streaming import (
    BlockSequence,
    Closed,
    Grew,
    JsonStreamDecoder,
    OpenBlock,
    Opened,
    PartNames,
    Step,
)
from history.dialects.types import StreamDecoder, StreamEncoder
from history.entries import ToolDefinition

Json = dict[str, Any]


def stream_decoder(provider: str = "") -> StreamDecoder:
    return JsonStreamDecoder(_Reader(provider).read, read_whole=decode_reply)


# The final events, and how a stream says that it failed.
FINAL_MARKS = (
    *(b'"response.completed"', b'"response.incomplete"', b'"response.failed"', b'"response.cancelled"'),
    *(b'"type":"error"', b'"type": "error"'),
)
_FINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"})


def finality(name: str, data: Mapping[str, Any]) -> Finality | None:
    return Finality.OVER if (data.get("type") or name) in _FINAL else None


class _Reader:
    """Deltas are taken as they come; the whole item that follows them is read only for what they did not bring."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._names = PartNames()
        # Output index → the part that deltas for it continue; and what was brought for it so far.
        self._parts: dict[int, str] = {}
        self._brought: set[tuple[int, str]] = set()
        self._paragraphs: dict[int, int] = {}
        self._done: set[int] = set()
        self._has_calls = self._is_refused = self._has_started = False

    def read(self, name: str, data: Mapping[str, Any]) -> Iterator[Event]:
        index = _index(data)
        match data.get("type") or name:
            case "response.created" | "response.in_progress" | "response.queued":
                yield from self._start(obj(data.get("response")))
            case "response.output_item.added":
                yield from self._open(index, obj(data.get("item")))
            case "response.output_text.delta" | "response.refusal.delta" as kind:
                self._is_refused = self._is_refused or kind == "response.refusal.delta"
                yield self._text(index, string(data.get("delta")))
            case "response.reasoning_summary_text.delta":
                yield from self._think(index, data.get("summary_index"), string(data.get("delta")))
            case "response.reasoning_text.delta":
                yield from self._think(index, data.get("content_index"), string(data.get("delta")))
            case "response.function_call_arguments.delta":
                self._brought.add((index, "arguments"))
                yield ToolCallPiece(part=self._part(index, "call"), arguments=string(data.get("delta")))
            case "response.custom_tool_call_input.delta":
                yield ToolCallPiece(part=self._part(index, "call"), arguments=self._input(index, data.get("delta")))
            case "response.output_item.done":
                yield from self._close(index, obj(data.get("item")))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" as kind:
                yield from self._end(obj(data.get("response")), kind.removeprefix("response."))
            case "error":
                yield decode_error(0, data if "error" in data else {"error": data})

    def _start(self, found: Mapping[str, Any]) -> Iterator[Event]:
        if not self._has_started and found:
            self._has_started = True
            model, request_id = string(found.get("model")), string(found.get("id"))
            yield Started(model=model, request_id=request_id, provider=self._provider)

    def _part(self, index: int, kind: str) -> str:
        if index not in self._parts:
            self._parts[index] = self._names.new(kind)
        return self._parts[index]

    def _open(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        if item.get("type") in ("function_call", CUSTOM):
            self._has_calls = True
            call_id, name, arguments = string(item.get("call_id")), string(item.get("name")), item.get("arguments")
            if arguments:
                self._brought.add((index, "arguments"))
            part = self._part(index, "call")
            yield ToolCallPiece(part=part, call_id=call_id, name=name, arguments=string(arguments))

    def _input(self, index: int, text: Any) -> str:
        """Plain text that a tool takes, as a piece of the object that its arguments are to us."""
        opening = "" if (index, "arguments") in self._brought else INPUT_OPENS
        self._brought.add((index, "arguments"))
        return opening + piece_of_input(string(text))

    def _text(self, index: int, text: str) -> TextPiece:
        self._brought.add((index, "text"))
        return TextPiece(part=self._part(index, "text"), text=text)

    def _think(self, index: int, paragraph: Any, text: str) -> Iterator[Event]:
        """Each piece of a summary is a paragraph."""
        number = paragraph if isinstance(paragraph, int) else 0
        is_new = self._paragraphs.get(index, number) != number
        self._paragraphs[index] = number
        self._brought.add((index, "reasoning"))
        yield ReasoningPiece(part=self._part(index, "reasoning"), text=f"\n\n{text}" if is_new else text)

    def _close(self, index: int, item: Mapping[str, Any]) -> Iterator[Event]:
        self._done.add(index)
        kind = item.get("type")
        if kind == "message" and (index, "text") in self._brought:
            found = [note for part in objs(item.get("content")) for note in objs(part.get("annotations"))]
            if found:
                yield TextPiece(part=self._part(index, "text"), text="", extra={"annotations": found})
        elif kind == "message":
            for part in objs(item.get("content")):
                self._is_refused = self._is_refused or part.get("type") == "refusal"
                yield self._text(index, content_text(part))
        elif kind == "reasoning":
            text = "" if (index, "reasoning") in self._brought else reasoning_text(item)
            part_name, signature = self._part(index, "reasoning"), string(item.get("encrypted_content"))
            yield ReasoningPiece(part=part_name, text=text, signature=signature, extra=reasoning_extra(item))
        elif call := call_of(item):
            self._has_calls = True
            call_id, name, arguments = call
            if (index, "arguments") in self._brought:
                arguments = INPUT_CLOSES if kind == CUSTOM else ""
            yield ToolCallPiece(part=self._part(index, "call"), call_id=call_id, name=name, arguments=arguments)
        elif item:
            yield from item_events(item, self._names)

    def _end(self, found: Mapping[str, Any], kind: str) -> Iterator[Event]:
        """Some servers tell the items only here."""
        yield from self._start(found)
        for index, item in enumerate(objs(found.get("output"))):
            if index not in self._done:
                yield from self._close(index, item)
        status = {"status": kind, **found} if string(found.get("status")) else {**found, "status": kind}
        yield from end_events(status, has_calls=self._has_calls, refused=self._is_refused)


def _index(data: Mapping[str, Any]) -> int:
    index = data.get("output_index")
    return index if isinstance(index, int) else -1


def stream_encoder(
    *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Sequence[ToolDefinition] = ()
) -> StreamEncoder:
    return _Encoder(model=model, reply_id=reply_id, created=created, tools=tools)


class _Encoder(Replying):
    def __init__(self, *, model: str, reply_id: str, created: int, tools: Sequence[ToolDefinition]) -> None:
        super().__init__(model=model, reply_id=reply_id)
        self._created, self._stand_ins = created, stand_ins(tools)
        self._row = BlockSequence()
        self._items: list[Json] = []
        self._has_begun = False
        self._number = -1
        self._summarised: set[str] = set()

    def write(self, piece: Piece) -> bytes:
        """Thinking that is shown to nobody has no place in an item."""
        if isinstance(piece, MediaPiece | OtherPiece):
            return b""
        if isinstance(piece, ReasoningPiece) and not (piece.text or piece.signature):
            return b""
        return self._begin() + self._written(self._row.feed(piece))

    def close(self, ended: Ended | None) -> bytes:
        begun = self._begin() if ended else b""
        closed = begun + self._written(self._row.finish())
        if ended is None:
            return closed
        found = {**self._response(), **ending(ended.reason), "usage": usage_to(self.usage)}
        return closed + self._event(f"response.{found['status']}", response=found)

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        created = self._event("response.created", response=self._response())
        return created + self._event("response.in_progress", response=self._response())

    def fail(self, failed: Failed) -> bytes:
        closed = self._begin() + self._written(self._row.finish())
        error = encode_error(failed)[1]["error"]
        told = {"code": error["code"] or error["type"], "message": error["message"]}
        found = {**self._response(), "status": "failed", "error": told}
        if self.usage:
            found["usage"] = usage_to(self.usage)
        return closed + self._event("response.failed", response=found)

    def _response(self) -> Json:
        items = list(self._items)
        return response(reply_id=self.reply_id, created=self._created, model=self.model, items=items)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        self._number += 1
        return sse({"type": name, "sequence_number": self._number, **fields}, name=name)

    def _written(self, steps: Iterable[Step]) -> bytes:
        return b"".join(self._step(step) for step in steps)

    def _step(self, step: Step) -> bytes:
        block = step.block
        kind = self._kind(block.started)
        place = {"output_index": block.index}
        within = {"item_id": f"{kind}_{self.reply_id}_{block.index}", **place}
        match step:
            case Opened():
                opened = self._event("response.output_item.added", **place, item=_empty(self._item(block)))
                return opened + (self._part("added", kind, within, "") if kind == "msg" else b"")
            case Grew(_, piece):
                return self._delta(piece, kind, within)
            case Closed():
                item = self._item(block)
                self._items.append(item)
                told = self._told(block, kind, within)
                return told + self._event("response.output_item.done", **place, item=item)

    def _kind(self, started: Piece) -> str:
        """The items' ids say what they are."""
        match started:
            case ToolCallPiece(name=name):
                return "ctc" if (own := self._stand_ins.get(name)) and own.takes_text else "fc"
            case ReasoningPiece():
                return "rs"
            case _:
                return "msg"

    def _item(self, block: OpenBlock) -> Json:
        """The item as far as it is written."""
        name = f"{self.reply_id}_{block.index}"
        match block.started:
            case ToolCallPiece(call_id=call_id, name=tool):
                own = self._stand_ins.get(tool)
                return call_item(name, call_id, tool, block.text("arguments") or "{}", of=own)
            case ReasoningPiece():
                return reasoning_item(name, block.text("text"), block.text("signature"))
            case _:
                return message_item(name, block.text("text"))

    def _part(self, word: str, kind: str, within: Json, text: str) -> bytes:
        """The part of a message or of a summary, before it has any text or when it has all."""
        if kind == "msg":
            return self._event(f"response.content_part.{word}", **within, content_index=0, part=output_text(text))
        part = {"type": "summary_text", "text": text}
        return self._event(f"response.reasoning_summary_part.{word}", **within, summary_index=0, part=part)

    def _delta(self, piece: Piece, kind: str, within: Json) -> bytes:
        match piece:
            case TextPiece(text=text) if text:
                place = {**within, "content_index": 0}
                return self._event("response.output_text.delta", **place, delta=text, logprobs=[])
            case ReasoningPiece(text=text) if text:
                opened = b"" if within["item_id"] in self._summarised else self._part("added", kind, within, "")
                self._summarised.add(within["item_id"])
                delta = {"summary_index": 0, "delta": text}
                return opened + self._event("response.reasoning_summary_text.delta", **within, **delta)
            case ToolCallPiece(arguments=arguments) if arguments and kind == "fc":
                return self._event("response.function_call_arguments.delta", **within, delta=arguments)
            case _:
                return b""

    def _told(self, block: OpenBlock, kind: str, within: Json) -> bytes:
        """The whole of what the deltas brought."""
        text = block.text("text")
        if kind == "ctc":  # only all of it tells the text
            given = input_of(block.text("arguments"))
            delta = self._event("response.custom_tool_call_input.delta", **within, delta=given)
            return delta + self._event("response.custom_tool_call_input.done", **within, input=given)
        if isinstance(block.started, ToolCallPiece):
            told = {"name": block.started.name, "arguments": block.text("arguments") or "{}"}
            return self._event("response.function_call_arguments.done", **within, **told)
        if kind == "msg":
            done = self._event("response.output_text.done", **within, content_index=0, text=text, logprobs=[])
        elif text:
            done = self._event("response.reasoning_summary_text.done", **within, summary_index=0, text=text)
        else:
            return b""
        return done + self._part("done", kind, within, text)


def _empty(item: Json) -> Json:
    """An item as it is before anything was written."""
    empty: Json = {"content": [], "summary": [], "encrypted_content": None, "status": "in_progress"}
    empty |= {"arguments": "", "input": ""}
    return {name: empty.get(name, value) for name, value in item.items()}
