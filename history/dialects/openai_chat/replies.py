"""Replies, errors and usage of OpenAI Chat Completions, both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from history.answers.assembly import end_reason
from history.answers.events import (
    Beside,
    Ended,
    EndReason,
    ErrorKind,
    Event,
    Failed,
    Piece,
    ReasoningPiece,
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects.custom_tools import input_of
from history.dialects.encoder import arguments_of, taking_text
from history.dialects.failures import KIND_OF_STATUS, STATUS_OF_KIND, no_reason, read_body, refined
from history.dialects.json_access import compact, count, items, obj, objs, string, without_empty
from history.dialects.openai_common import INPUT_CLOSES, INPUT_OPENS, piece_of_input
from history.entries import ModelOutput, ToolDefinition, ToolRequest, Usage

DIALECT = "openai-chat"
PROVIDER = "openai"

Json = dict[str, Any]

REASONS: dict[str, EndReason] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "content_filter",
}
WORDS: dict[EndReason, str] = {
    "stop": "stop",
    "tool_use": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "pause": "stop",
    "other": "stop",
}
# OpenAI's types of errors, and what its codes say more exactly.
ERRORS: dict[ErrorKind, tuple[str, str | None]] = {
    "invalid_request": ("invalid_request_error", None),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "permission": ("invalid_request_error", "permission_denied"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "conflict": ("invalid_request_error", "conflict"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "context_length": ("invalid_request_error", "context_length_exceeded"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
    "server": ("server_error", None),
    "overloaded": ("server_error", "overloaded"),
    "timeout": ("server_error", "timeout"),
}
KINDS: dict[str, ErrorKind] = {code: kind for kind, (_, code) in ERRORS.items() if code}
KINDS |= {
    "rate_limit_error": "rate_limit",
    "tokens": "rate_limit",
    "requests": "rate_limit",
    "server_error": "server",
    "authentication_error": "authentication",
    "overloaded_error": "overloaded",
    "invalid_request_error": "invalid_request",
}


def ended(word: str, *, has_calls: bool) -> Ended:
    """Some servers say ``stop`` although they ask for tools."""
    reason = REASONS.get(word, "other")
    return Ended(reason="tool_use" if has_calls and reason == "stop" else reason, raw_reason=word)


# Usage: OpenAI's prompt_tokens have the cached ones in.


def usage_from(raw: Mapping[str, Any]) -> Usage:
    asked, answered = obj(raw.get("prompt_tokens_details")), obj(raw.get("completion_tokens_details"))
    return Usage(
        input_tokens=count(raw.get("prompt_tokens")),
        output_tokens=count(raw.get("completion_tokens")),
        cache_read_tokens=count(asked.get("cached_tokens")) or count(raw.get("prompt_cache_hit_tokens")),
        cache_write_tokens=count(asked.get("cache_write_tokens")),
        reasoning_tokens=count(answered.get("reasoning_tokens")),
        raw=raw,
    )


def usage_to(usage: Usage | None) -> Json:
    usage = usage or Usage()
    details: Json = {"cached_tokens": usage.cache_read_tokens}
    if usage.cache_write_tokens:
        details["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


# Replies.


@dataclass(slots=True)
class _Call:
    """One call while it comes."""

    number: int
    given_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    takes_text: bool = False

    @property
    def part(self) -> str:
        return f"call-{self.number}"

    def is_over(self, *, given_id: str, name: str, arguments: str) -> bool:
        """Whether this begins another one: by its id, and where there is none, by its name, or after a whole call."""
        if given_id:
            return self.given_id not in ("", given_id)
        if not name or not self.name:
            return False
        return name != self.name or bool(arguments and arguments_of("".join(self.arguments)) is not None)

    def of_text(self, text: str) -> str:
        """A piece of the plain text that some tools (``custom``) take."""
        opening, self.takes_text = "" if self.takes_text else INPUT_OPENS, True
        return opening + piece_of_input(text)

    def take(self, *, given_id: str, name: str, arguments: str) -> ToolCallPiece | None:
        is_beginning = bool(name and not self.name)
        self.given_id, self.name = self.given_id or given_id, self.name or name
        self.arguments.append(arguments)
        if is_beginning:
            call_id, arguments = self.given_id or f"call_{self.number}", "".join(self.arguments)
            return ToolCallPiece(part=self.part, call_id=call_id, name=name, arguments=arguments)
        return ToolCallPiece(part=self.part, call_id=given_id, name=name, arguments=arguments) if self.name else None


class Calls:
    """The calls of one answer. Some servers give every call the index 0, or repeat id and name in every piece.

    A call begins with its name: what comes before it waits, since no client takes a call whose name comes later.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}
        self.count = 0

    def pieces(self, call: Mapping[str, Any], *, place: int) -> Iterator[ToolCallPiece]:
        index = call.get("index")
        index = index if isinstance(index, int) else place
        plain = obj(call.get("custom"))
        function = plain or obj(call.get("function"))
        arguments = string(function.get("arguments"))
        if asked := obj(function.get("arguments")):  # some local servers send an object where a text should be
            arguments = compact(asked)
        said = {"given_id": string(call.get("id")), "name": string(function.get("name")), "arguments": arguments}
        found = self._open.get(index)
        if found is None or found.is_over(**said):
            found = self._open[index] = _Call(self.count)
            self.count += 1
        if plain:
            said["arguments"] = found.of_text(string(plain.get("input")))
        if piece := found.take(**said):
            yield piece

    def rest(self) -> Iterator[ToolCallPiece]:
        """What waited for a name that never came, told all the same as it is, and the ends of plain texts."""
        for call in self._open.values():
            if call.takes_text:
                yield ToolCallPiece(part=call.part, arguments=INPUT_CLOSES)
            elif not call.name:
                yield ToolCallPiece(part=call.part, call_id=call.given_id, arguments="".join(call.arguments))


def message_events(message: Mapping[str, Any], calls: Calls) -> Iterator[Piece]:
    """The pieces of a message, or of a delta of one: both have the same fields."""
    if thinking := string(message.get("reasoning_content")) or string(message.get("reasoning")):
        yield ReasoningPiece(part="reasoning", text=thinking)
    for text in _texts(message.get("content")):
        if text:
            yield TextPiece(part="text", text=text)
    if refusal := string(message.get("refusal")):
        yield TextPiece(part="text", text=refusal)
    for place, call in enumerate(objs(message.get("tool_calls"))):
        yield from calls.pieces(call, place=place)
    if legacy := obj(message.get("function_call")):
        yield from calls.pieces({"index": 0, "function": legacy}, place=0)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in objs(items(content)):
        yield string(part.get("text"))


def decode_reply(body: bytes | Mapping[str, Any]) -> list[Event]:
    reply = read_body(body)
    if reply.get("error"):
        return [decode_error(0, reply)]
    events: list[Event] = [Started(model=string(reply.get("model")), request_id=string(reply.get("id")))]
    first, *others = objs(reply.get("choices")) or [{}]
    pieces, end = _answer(first)
    events.extend(pieces)
    if usage := obj(reply.get("usage")):
        events.append(UsageReported(usage=usage_from(usage)))
    events.extend(end)
    for number, choice in enumerate(others, 1):
        pieces, end = _answer(choice)
        events.extend(Beside(answer=number, event=event) for event in (*pieces, *end))
    return events


def _answer(choice: Mapping[str, Any]) -> tuple[list[Piece], list[Ended]]:
    calls, message = Calls(), obj(choice.get("message"))
    pieces: list[Piece] = [*message_events(message, calls), *calls.rest()]
    word = string(choice.get("finish_reason"))
    if not word:
        return pieces, []
    is_refused = bool(string(message.get("refusal")))
    return pieces, [Ended(reason="refusal", raw_reason=word) if is_refused else ended(word, has_calls=calls.count > 0)]


def encode_reply(output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()) -> Json:
    reason = end_reason(output.end_reason or ("tool_use" if output.tool_requests else "stop"))
    of_text = taking_text(tools)
    calls = [_call(call, takes_text=call.name in of_text) for call in output.tool_requests]
    extra = without_empty(reasoning_content=output.reasoning, tool_calls=calls)
    message: Json = {"role": "assistant", "content": output.text or None, "refusal": None, **extra}
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": output.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": WORDS[reason]}],
        "usage": usage_to(output.usage),
    }


def _call(call: ToolRequest, *, takes_text: bool) -> Json:
    if takes_text:
        return {"id": call.call_id, "type": "custom", "custom": {"name": call.name, "input": input_of(call.arguments)}}
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


# Errors.


def decode_error(status: int, body: bytes | Mapping[str, Any]) -> Failed:
    found = read_body(body)
    error = obj(found.get("error"))
    code, kind_word = string(error.get("code")), string(error.get("type"))
    message = string(error.get("message")) or string(found.get("error")) or string(found.get("message"))
    kind = KINDS.get(code) or KIND_OF_STATUS.get(status) or KINDS.get(kind_word, "server")
    kind = refined(kind, f"{kind_word} {message}")
    return Failed(message=message or no_reason(status), code=code or kind_word, kind=kind, status=status, raw=found)


def encode_error(error: Failed) -> tuple[int, Json]:
    kind, code = ERRORS[error.kind]
    body = {"message": error.message, "type": kind, "param": None, "code": code}
    return STATUS_OF_KIND[error.kind], {"error": body}
