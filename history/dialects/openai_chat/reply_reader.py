"""Reader of replies and streams of OpenAI Chat Completions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from history.answers import events
from history.dialects.json_access import compact, index_of, items, obj, objs, string
from history.dialects.openai_common import INPUT_END, INPUT_START, decode_error, input_piece, usage_from_chat
from history.dialects.replies import ReplyReader
from history.dialects.sse import Finality
from history.dialects.tools import parse_arguments
from history.entries import JsonObject

DIALECT = "openai-chat"

REASONS: dict[str, events.EndReason] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass(slots=True)
class _Call:
    number: int
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    takes_text: bool = False

    @property
    def part(self) -> str:
        return f"call-{self.number}"

    def is_over(self, *, call_id: str, name: str, arguments: str) -> bool:
        """Whether this starts another call: by its id, and without one by its name or after a whole call."""
        if call_id:
            return self.call_id not in ("", call_id)
        if not name or not self.name:
            return False
        return name != self.name or bool(arguments and parse_arguments("".join(self.arguments)) is not None)

    def add_text(self, text: str) -> str:
        """A piece of plain text as a piece of arguments."""
        start, self.takes_text = "" if self.takes_text else INPUT_START, True
        return start + input_piece(text)

    def add(self, *, call_id: str, name: str, arguments: str) -> events.ToolCallPiece | None:
        is_start = bool(name and not self.name)
        self.call_id, self.name = self.call_id or call_id, self.name or name
        self.arguments.append(arguments)
        if is_start:
            call_id, arguments = self.call_id or f"call_{self.number}", "".join(self.arguments)
        fields = {"call_id": call_id, "name": name, "arguments": arguments}
        return events.ToolCallPiece(part=self.part, **fields) if self.name else None


class _Answer:
    """One choice. Most replies have only one.

    Some servers give every call the index 0, or repeat id and name in every piece. A call starts with its name: pieces
    before it wait, since clients reject a call whose name comes later.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}
        self._calls = 0
        self.is_refused = self.has_ended = False

    def read(self, choice: JsonObject) -> Iterator[events.Piece | events.AnswerEnded]:
        yield from self._pieces(obj(choice.get("delta")))
        if word := string(choice.get("finish_reason")):
            self.has_ended = True
            yield from self.rest()
            yield self._end(word)

    def _pieces(self, message: JsonObject) -> Iterator[events.Piece]:
        if thinking := string(message.get("reasoning_content")) or string(message.get("reasoning")):
            yield events.ReasoningPiece(part="reasoning", text=thinking)
        content = message.get("content")
        texts = [content] if isinstance(content, str) else [string(part.get("text")) for part in objs(items(content))]
        refusal = string(message.get("refusal"))
        self.is_refused = self.is_refused or bool(refusal)
        for text in (*texts, refusal):
            if text:
                yield events.TextPiece(part="text", text=text)
        for place, call in enumerate(objs(message.get("tool_calls"))):
            yield from self._read_call(call, place=place)
        if legacy := obj(message.get("function_call")):
            yield from self._read_call({"index": 0, "function": legacy}, place=0)

    def _end(self, word: str) -> events.AnswerEnded:
        """Some servers send ``stop`` although there are tool calls."""
        reason = REASONS.get(word, "other")
        if self.is_refused:
            reason = "refusal"
        elif self._calls and reason == "stop":
            reason = "tool_use"
        return events.AnswerEnded(reason=reason)

    def _read_call(self, call: JsonObject, *, place: int) -> Iterator[events.ToolCallPiece]:
        index = index_of(call, place)
        custom = obj(call.get("custom"))
        function = custom or obj(call.get("function"))
        arguments = string(function.get("arguments"))
        if value := obj(function.get("arguments")):  # some local servers send an object instead of a text
            arguments = compact(value)
        fields = {"call_id": string(call.get("id")), "name": string(function.get("name")), "arguments": arguments}
        current = self._open.get(index)
        if current is None or current.is_over(**fields):
            current = self._open[index] = _Call(self._calls)
            self._calls += 1
        if custom:
            fields["arguments"] = current.add_text(string(custom.get("input")))
        if piece := current.add(**fields):
            yield piece

    def rest(self) -> Iterator[events.ToolCallPiece]:
        """The ends of plain texts, and calls that never got a name."""
        for call in self._open.values():
            if call.takes_text:
                yield events.ToolCallPiece(part=call.part, arguments=INPUT_END)
            elif not call.name:
                yield events.ToolCallPiece(part=call.part, call_id=call.call_id, arguments="".join(call.arguments))


class ChatReplyReader(ReplyReader):
    """The first choice is the answer; further choices are answers beside it."""

    final_marks = (b"[DONE]", b'"finish_reason":"', b'"finish_reason": "', b'"error":{', b'"error": {')
    decode_error = staticmethod(decode_error)

    def __init__(self, provider: str = "") -> None:
        super().__init__(provider)
        self._answers: dict[int, _Answer] = {}
        self._has_failed = False

    @staticmethod
    def finality(name: str, event: JsonObject) -> Finality | None:
        """The finish reason ends the answer; usage, `[DONE]` and further answers may follow."""
        if event.get("error"):
            return Finality.OVER
        choices = objs(event.get("choices"))
        if any(string(choice.get("finish_reason")) for choice in choices):
            return Finality.COMPLETE
        return Finality.OPEN if choices else None

    def read(self, name: str, event: JsonObject) -> Iterator[events.Event]:
        if event.get("error"):
            self._has_failed = True
            yield decode_error(0, event)
            return
        if event.get("id") or event.get("model"):
            yield from self.start(event)
        for place, choice in enumerate(objs(event.get("choices"))):
            yield from self._read_choice(index_of(choice, place), choice)
        if usage := obj(event.get("usage")):
            yield events.UsageReported(usage=usage_from_chat(usage))

    def read_reply(self, reply: JsonObject) -> Iterator[events.Event]:
        """A whole reply is one event, with a message in place of a delta."""
        if reply.get("error"):
            yield decode_error(0, reply)
            return
        choices = [
            {"index": place, "delta": choice.get("message"), "finish_reason": choice.get("finish_reason")}
            for place, choice in enumerate(objs(reply.get("choices")))
        ]
        yield from self.read("", {**reply, "choices": choices})
        for index, answer in self._answers.items():
            if not answer.has_ended:
                yield from self._numbered(index, answer.rest())

    def done(self) -> Iterator[events.Event]:
        """``[DONE]`` ends answers without a finish reason."""
        for index, answer in (self._answers or {0: _Answer()}).items():
            if not (answer.has_ended or self._has_failed):
                answer.is_refused = False
                yield from self._read_choice(index, {"finish_reason": "stop"})

    def _read_choice(self, index: int, choice: JsonObject) -> Iterator[events.Event]:
        answer = self._answers.get(index) or self._answers.setdefault(index, _Answer())
        return self._numbered(index, answer.read(choice))

    def _numbered(self, index: int, parts: Iterable[events.Piece | events.AnswerEnded]) -> Iterator[events.Event]:
        is_first = index == next(iter(self._answers))
        return (event if is_first else events.FurtherAnswerEvent(answer=index, event=event) for event in parts)
