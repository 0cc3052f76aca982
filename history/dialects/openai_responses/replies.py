"""Replies of OpenAI Responses, both ways: a list of items and a status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from history.answers.assembly import end_reason
from history.answers.events import (
    Ended,
    EndReason,
    Event,
    OtherPiece,
    Piece,
    ReasoningPiece,
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects.custom_tools import StandIn, input_of
from history.dialects.encoder import stand_ins
from history.dialects.failures import read_body
from history.dialects.json_access import compact, count, obj, objs, string, without_empty
from history.dialects.openai_chat.replies import decode_error as decode_error
from history.dialects.openai_chat.replies import encode_error as encode_error
from history.dialects.request_decoder import as_other
from history.dialects.streaming import PartNames
from history.entries import ModelOutput, Part, Reasoning, Text, ToolDefinition, ToolRequest, Usage

DIALECT = "openai-responses"
PROVIDER = "openai"

Json = dict[str, Any]

# How a call of a tool that takes plain text is called.
CUSTOM = "custom_tool_call"

# Why a response is incomplete; every other one is completed.
INCOMPLETE: dict[str, EndReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
WORDS: dict[EndReason, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


# Usage: OpenAI's input_tokens have the cached ones in.


def usage_from(raw: Mapping[str, Any]) -> Usage:
    details = obj(raw.get("input_tokens_details"))
    return Usage(
        input_tokens=count(raw.get("input_tokens")),
        output_tokens=count(raw.get("output_tokens")),
        cache_read_tokens=count(details.get("cached_tokens")),
        cache_write_tokens=count(details.get("cache_write_tokens")),
        reasoning_tokens=count(obj(raw.get("output_tokens_details")).get("reasoning_tokens")),
        raw=raw,
    )


def usage_to(usage: Usage | None) -> Json:
    usage = usage or Usage()
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": details,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


# Items.


def call_of(item: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The id, name and arguments of a call, if this item is one that is answered under its id.

    Besides functions there are tools that take plain text (``custom_tool_call``) and others that are named by their
    type; what they are called with becomes an object.
    """
    kind, call_id = string(item.get("type")), string(item.get("call_id"))
    if kind == "function_call":
        return call_id, string(item.get("name")), string(item.get("arguments"))
    if not kind.endswith("_call") or not call_id:
        return None
    if kind == CUSTOM:
        return call_id, string(item.get("name")), compact({"input": item.get("input")})
    given = {name: value for name, value in item.items() if name not in ("type", "id", "call_id", "status")}
    return call_id, string(item.get("name")) or kind, compact(given)


def reasoning_text(item: Mapping[str, Any]) -> str:
    """The summary, or the thinking itself where a model shows that."""
    parts = objs(item.get("summary")) or objs(item.get("content"))
    return "\n\n".join(string(part.get("text")) for part in parts if string(part.get("text")))


def reasoning_extra(item: Mapping[str, Any]) -> Json:
    """What must go back with the reasoning: its id, and its summary where that is more than one text."""
    extra = {"id": item_id} if (item_id := string(item.get("id"))) else {}
    summary = objs(item.get("summary"))
    return {**extra, "summary": summary} if len(summary) > 1 else extra


def content_text(part: Mapping[str, Any]) -> str:
    return string(part.get("text")) or string(part.get("refusal"))


def item_events(item: Mapping[str, Any], names: PartNames) -> Iterator[Piece]:
    """The pieces of a whole item."""
    if item.get("type") == "message":
        name = names.new("text")
        for part in objs(item.get("content")):
            extra = {"annotations": found} if (found := objs(part.get("annotations"))) else {}
            yield TextPiece(part=name, text=content_text(part), extra=extra)
    elif item.get("type") == "reasoning":
        text, signature = reasoning_text(item), string(item.get("encrypted_content"))
        part_name = names.new("reasoning")
        yield ReasoningPiece(part=part_name, text=text, signature=signature, extra=reasoning_extra(item))
    elif call := call_of(item):
        call_id, name, arguments = call
        yield ToolCallPiece(part=names.new("call"), call_id=call_id, name=name, arguments=arguments)
    else:
        yield OtherPiece(part=names.new("other"), data=as_other(item))


# Replies.


def is_refused(response: Mapping[str, Any]) -> bool:
    parts = (part for item in objs(response.get("output")) for part in objs(item.get("content")))
    return any(part.get("type") == "refusal" for part in parts)


def end_events(response: Mapping[str, Any], *, has_calls: bool, refused: bool) -> Iterator[Event]:
    """What the last word about a response says: the counts, and how it ended."""
    if usage := obj(response.get("usage")):
        yield UsageReported(usage=usage_from(usage))
    match response.get("status"):
        case "completed":
            reason: EndReason = "tool_use" if has_calls else "refusal" if refused else "stop"
            yield Ended(reason=reason, raw_reason="completed")
        case "incomplete":
            word = string(obj(response.get("incomplete_details")).get("reason"))
            yield Ended(reason=INCOMPLETE.get(word, "other"), raw_reason=word or "incomplete")
        case "queued" | "in_progress" as word:  # asked for in the background: the answer is fetched later
            yield Ended(reason="pause", raw_reason=word)
        case "failed" | "cancelled":
            yield decode_error(0, response)


def decode_reply(body: bytes | Mapping[str, Any]) -> list[Event]:
    reply = read_body(body)
    if reply.get("error") and "output" not in reply:
        return [decode_error(0, reply)]
    events: list[Event] = [Started(model=string(reply.get("model")), request_id=string(reply.get("id")))]
    names = PartNames()
    for item in objs(reply.get("output")):
        events.extend(item_events(item, names))
    has_calls = any(isinstance(event, ToolCallPiece) for event in events)
    events.extend(end_events(reply, has_calls=has_calls, refused=is_refused(reply)))
    return events


def encode_reply(output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()) -> Json:
    reason, own = end_reason(output.end_reason or "stop"), stand_ins(tools)
    items = [item for place, part in enumerate(output.parts) for item in _item(part, f"{reply_id}_{place}", own)]
    reply = response(reply_id=reply_id, created=created, model=output.model, items=items)
    return {**reply, **ending(reason), "usage": usage_to(output.usage)}


def response(*, reply_id: str, created: int, model: str, items: list[Json]) -> Json:
    """A response as it stands while it is written."""
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


def ending(reason: EndReason) -> Json:
    if word := WORDS.get(reason):
        return {"status": "incomplete", "incomplete_details": {"reason": word}}
    return {"status": "completed"}


def _item(part: Part, name: str, own: Mapping[str, StandIn]) -> Iterator[Json]:
    match part:
        case Text():
            yield message_item(name, part.text)
        case Reasoning() if part.text or part.signature:
            yield reasoning_item(name, part.text, part.signature)
        case ToolRequest():
            yield call_item(name, part.call_id, part.name, part.arguments, of=own.get(part.name))
        case _:
            return


def message_item(name: str, text: str) -> Json:
    content = [output_text(text)]
    return {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": content}


def output_text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(name: str, text: str, signature: str) -> Json:
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": f"rs_{name}", "type": "reasoning", "summary": summary, "encrypted_content": signature or None}


def call_item(name: str, call_id: str, tool: str, arguments: str, *, of: StandIn | None) -> Json:
    """As the caller knows the tool: a function, of a group or by itself, or one that takes plain text."""
    if of and of.takes_text:
        kind: Json = {"id": f"ctc_{name}", "type": CUSTOM, "input": input_of(arguments)}
    else:
        kind = {"id": f"fc_{name}", "type": "function_call", "arguments": arguments}
    named = {"call_id": call_id, "name": tool, **without_empty(namespace=of and of.namespace)}
    return {**kind, **named, "status": "completed"}
