"""Reader of replies and streams of OpenAI Responses: a list of items and a status."""

from collections.abc import Iterator

from history.answers import events
from history.dialects.json_access import compact, index_of, obj, objs, string
from history.dialects.openai_common import INPUT_END, INPUT_START, decode_error, input_piece, usage_from_responses
from history.dialects.replies import ReplyReader
from history.dialects.request_decoder import as_other
from history.dialects.sse import Finality
from history.entries import JsonDict, JsonObject

DIALECT = "openai-responses"

CUSTOM_CALL = "custom_tool_call"  # the type of a call of a tool with plain text
INCOMPLETE: dict[str, events.EndReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}

_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def call_of(item: JsonObject) -> tuple[str, str, str] | None:
    """The id, name and arguments of a call that has a result with its id.

    The input of a tool with plain text, or of a tool that is named by the type of the item, becomes an object.
    """
    kind, call_id = string(item.get("type")), string(item.get("call_id"))
    if kind == "function_call":
        return call_id, string(item.get("name")), string(item.get("arguments"))
    if not kind.endswith("_call") or not call_id:
        return None
    if kind == CUSTOM_CALL:
        return call_id, string(item.get("name")), compact({"input": item.get("input")})
    fields = {name: value for name, value in item.items() if name not in ("type", "id", "call_id", "status")}
    return call_id, string(item.get("name")) or kind, compact(fields)


def reasoning_text(item: JsonObject) -> str:
    """The summary, or the thinking itself if a model shows it."""
    parts = objs(item.get("summary")) or objs(item.get("content"))
    return "\n\n".join(string(part.get("text")) for part in parts if string(part.get("text")))


def reasoning_extra(item: JsonObject) -> JsonDict:
    """Fields that must go back with the reasoning: its id, and a summary of several texts."""
    extra = {"id": item_id} if (item_id := string(item.get("id"))) else {}
    summary = objs(item.get("summary"))
    return {**extra, "summary": summary} if len(summary) > 1 else extra


class ResponsesReplyReader(ReplyReader):
    """Reads deltas. The whole item after them is read only for content without deltas."""

    final_marks = (*(f'"{name}"'.encode() for name in _FINAL_EVENTS), b'"type":"error"', b'"type": "error"')
    decode_error = staticmethod(decode_error)

    def __init__(self, provider: str = "") -> None:
        super().__init__(provider)
        # Output index → the part of its deltas; and the kinds of content that have come in deltas.
        self._parts: dict[int, str] = {}
        self._received: set[tuple[int, str]] = set()
        self._paragraphs: dict[int, int] = {}
        self._done: set[int] = set()
        self._has_calls = self._is_refused = False

    @staticmethod
    def finality(name: str, event: JsonObject) -> Finality | None:
        return Finality.OVER if (event.get("type") or name) in (*_FINAL_EVENTS, "error") else None

    def read_reply(self, reply: JsonObject) -> Iterator[events.Event]:
        if reply.get("error") and "output" not in reply:
            return iter([decode_error(0, reply)])
        return self._end(reply)

    def read(self, name: str, event: JsonObject) -> Iterator[events.Event]:
        index = index_of(event, -1, "output_index")
        delta = string(event.get("delta"))
        match event.get("type") or name:
            case "response.created" | "response.in_progress" | "response.queued":
                if response := obj(event.get("response")):
                    yield from self.start(response)
            case "response.output_item.added":
                yield from self._open(index, obj(event.get("item")))
            case "response.output_text.delta" | "response.refusal.delta" as kind:
                self._is_refused = self._is_refused or kind == "response.refusal.delta"
                self._received.add((index, "text"))
                yield events.TextPiece(part=self._part(index, "text"), text=delta)
            case "response.reasoning_summary_text.delta":
                yield self._reasoning(index, event.get("summary_index"), delta)
            case "response.reasoning_text.delta":
                yield self._reasoning(index, event.get("content_index"), delta)
            case "response.function_call_arguments.delta":
                self._received.add((index, "arguments"))
                yield events.ToolCallPiece(part=self._part(index, "call"), arguments=delta)
            case "response.custom_tool_call_input.delta":
                # Plain text becomes an object with one field.
                start = "" if (index, "arguments") in self._received else INPUT_START
                self._received.add((index, "arguments"))
                yield events.ToolCallPiece(part=self._part(index, "call"), arguments=start + input_piece(delta))
            case "response.output_item.done":
                yield from self._close(index, obj(event.get("item")))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" as kind:
                response = obj(event.get("response"))
                status = string(response.get("status")) or kind.removeprefix("response.")
                yield from self._end({**response, "status": status})
            case "error":
                yield decode_error(0, event if "error" in event else {"error": event})

    def _part(self, index: int, kind: str) -> str:
        if index not in self._parts:
            self._parts[index] = self.new_part(kind)
        return self._parts[index]

    def _open(self, index: int, item: JsonObject) -> Iterator[events.Event]:
        if item.get("type") in ("function_call", CUSTOM_CALL):
            self._has_calls = True
            call_id, name, arguments = string(item.get("call_id")), string(item.get("name")), item.get("arguments")
            if arguments:
                self._received.add((index, "arguments"))
            part = self._part(index, "call")
            yield events.ToolCallPiece(part=part, call_id=call_id, name=name, arguments=string(arguments))

    def _reasoning(self, index: int, paragraph: object, text: str) -> events.ReasoningPiece:
        """Each part of a summary is a paragraph."""
        number = paragraph if isinstance(paragraph, int) else 0
        is_new = self._paragraphs.get(index, number) != number
        self._paragraphs[index] = number
        self._received.add((index, "reasoning"))
        return events.ReasoningPiece(part=self._part(index, "reasoning"), text=f"\n\n{text}" if is_new else text)

    def _close(self, index: int, item: JsonObject) -> Iterator[events.Event]:
        self._done.add(index)
        kind = item.get("type")
        if kind == "message":
            is_received = (index, "text") in self._received
            for part in objs(item.get("content")):
                text = "" if is_received else string(part.get("text")) or string(part.get("refusal"))
                extra = {"annotations": notes} if (notes := objs(part.get("annotations"))) else {}
                self._is_refused = self._is_refused or part.get("type") == "refusal"
                if extra or not is_received:
                    self._received.add((index, "text"))
                    yield events.TextPiece(part=self._part(index, "text"), text=text, extra=extra)
        elif kind == "reasoning":
            text = "" if (index, "reasoning") in self._received else reasoning_text(item)
            part_name, signature = self._part(index, "reasoning"), string(item.get("encrypted_content"))
            yield events.ReasoningPiece(part=part_name, text=text, signature=signature, extra=reasoning_extra(item))
        elif call := call_of(item):
            self._has_calls = True
            call_id, name, arguments = call
            if (index, "arguments") in self._received:
                arguments = INPUT_END if kind == CUSTOM_CALL else ""
            yield events.ToolCallPiece(part=self._part(index, "call"), call_id=call_id, name=name, arguments=arguments)
        elif item:
            yield events.OtherPiece(part=self.new_part("other"), data=as_other(item))

    def _end(self, response: JsonObject) -> Iterator[events.Event]:
        """The end of a stream, or a whole reply: some servers send the items only here."""
        yield from self.start(response)
        for index, item in enumerate(objs(response.get("output"))):
            if index not in self._done:
                yield from self._close(index, item)
        if usage := obj(response.get("usage")):
            yield events.UsageReported(usage=usage_from_responses(usage))
        match response.get("status"):
            case "completed":
                reason: events.EndReason = "tool_use" if self._has_calls else "refusal" if self._is_refused else "stop"
                yield events.AnswerEnded(reason=reason)
            case "incomplete":
                word = string(obj(response.get("incomplete_details")).get("reason"))
                yield events.AnswerEnded(reason=INCOMPLETE.get(word, "other"))
            case "queued" | "in_progress":  # a background response: the client fetches the answer later
                yield events.AnswerEnded(reason="pause")
            case "failed" | "cancelled":
                yield decode_error(0, response)
