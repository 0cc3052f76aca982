"""Replies, errors and usage of Anthropic Messages, both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from history.answers.assembly import end_reason
from history.answers.events import (
    Ended,
    EndReason,
    ErrorKind,
    Event,
    Failed,
    OtherPiece,
    Piece,
    ReasoningPiece,
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects.encoder import INVALID_JSON, arguments_of
from history.dialects.failures import KIND_OF_STATUS, STATUS_OF_KIND, no_reason, read_body, refined
from history.dialects.json_access import count, obj, objs, string
from history.dialects.request_decoder import arguments_text, as_other
from history.dialects.streaming import PartNames
from history.entries import ModelOutput, Part, Reasoning, Text, ToolDefinition, ToolRequest, Usage

DIALECT = "anthropic-messages"
PROVIDER = "anthropic"

Json = dict[str, Any]

REASONS: dict[str, EndReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "pause_turn": "pause",
    "refusal": "refusal",
}
WORDS: dict[EndReason, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
    "other": "end_turn",
}
ERRORS: dict[ErrorKind, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "billing": "billing_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "conflict": "conflict_error",
    "too_large": "request_too_large",
    "context_length": "invalid_request_error",
    "rate_limit": "rate_limit_error",
    "server": "api_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}
KINDS: dict[str, ErrorKind] = {word: kind for kind, word in ERRORS.items()}
KINDS["invalid_request_error"] = "invalid_request"
OVERLOADED = 529


def ended(word: str) -> Ended:
    return Ended(reason=REASONS.get(word, "other"), raw_reason=word)


# Usage: Anthropic's input_tokens leave out what came from the cache or went into it; ours have it in.


def usage_from(raw: Mapping[str, Any]) -> Usage:
    read, written = count(raw.get("cache_read_input_tokens")), count(raw.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=count(raw.get("input_tokens")) + read + written,
        output_tokens=count(raw.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(obj(raw.get("output_tokens_details")).get("thinking_tokens")),
        raw=raw,
    )


def usage_to(usage: Usage | None) -> Json:
    usage = usage or Usage()
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    written: Json = {
        "input_tokens": max(usage.input_tokens - cached, 0),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return written


# Replies.


def decode_reply(body: bytes | Mapping[str, Any]) -> list[Event]:
    reply = read_body(body)
    if reply.get("type") == "error" or "error" in reply:
        return [decode_error(0, reply)]
    events: list[Event] = [Started(model=string(reply.get("model")), request_id=string(reply.get("id")))]
    names = PartNames()
    for block in objs(reply.get("content")):
        events.extend(block_events(block, names))
    if usage := obj(reply.get("usage")):
        events.append(UsageReported(usage=usage_from(usage)))
    if word := string(reply.get("stop_reason")):
        events.append(ended(word))
    return events


def block_events(block: Mapping[str, Any], names: PartNames) -> Iterator[Piece]:
    """The pieces of a block that is there, or of the beginning of one that is to come."""
    match block.get("type"):
        case "text":
            extra = {"citations": citations} if (citations := objs(block.get("citations"))) else {}
            yield TextPiece(part=names.same("text"), text=string(block.get("text")), extra=extra)
        case "thinking":
            text, signature = string(block.get("thinking")), string(block.get("signature"))
            yield ReasoningPiece(part=names.new("thinking"), text=text, signature=signature)
        case "redacted_thinking":
            yield ReasoningPiece(part=names.new("thinking"), redacted=string(block.get("data")))
        case "tool_use":
            arguments = arguments_text(given) if (given := block.get("input")) else ""
            call_id, name = string(block.get("id")), string(block.get("name"))
            yield ToolCallPiece(part=names.new("call"), call_id=call_id, name=name, arguments=arguments)
        case _:
            yield OtherPiece(part=names.new("other"), data=as_other(block))


def encode_reply(output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()) -> Json:
    reason = end_reason(output.end_reason or ("tool_use" if output.tool_requests else "stop"))
    return {
        "id": reply_id,
        "type": "message",
        "role": "assistant",
        "model": output.model,
        "content": [block for part in output.parts for block in _block(part)],
        "stop_reason": WORDS[reason],
        "stop_sequence": None,
        "usage": usage_to(output.usage),
    }


def _block(part: Part) -> Iterator[Json]:
    match part:
        case Text():
            yield {"type": "text", "text": part.text}
        case Reasoning(redacted=redacted) if redacted:
            yield {"type": "redacted_thinking", "data": redacted}
        case Reasoning():
            yield {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case ToolRequest():
            given = arguments_of(part.arguments)
            arguments = {INVALID_JSON: part.arguments} if given is None else given
            yield {"type": "tool_use", "id": part.call_id, "name": part.name, "input": arguments}
        case _:
            return


# Errors.


def decode_error(status: int, body: bytes | Mapping[str, Any]) -> Failed:
    found = read_body(body)
    error = obj(found.get("error"))
    code = string(error.get("type"))
    message = string(error.get("message")) or string(found.get("message")) or no_reason(status)
    kind = refined(KINDS.get(code) or KIND_OF_STATUS.get(status, "server"), message)
    return Failed(message=message, code=code, kind=kind, status=status, raw=found)


def encode_error(error: Failed) -> tuple[int, Json]:
    status = OVERLOADED if error.kind == "overloaded" else STATUS_OF_KIND[error.kind]
    return status, {"type": "error", "error": {"type": ERRORS[error.kind], "message": error.message}}
