"""Conversations as vendors' requests: OpenAI messages, one per line (the form for fine-tuning), in one list or alone,
and what Anthropic, Gemini and OpenAI Responses are sent.

There are no ids and no times in them: ids are made from what is said, so that the same line again is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from history.dialects import DIALECTS, DecodedRequest
from history.dialects.json_access import compact, items, obj, objs, string
from history.entries import Entry, ModelInput, ModelOutput, SystemInstructionSet, ToolsOffered
from history.formats.base import Conversation, Notes, UnreadableConversation, chain_id, gettext_noop
from history.formats.many import read_each
from history.formats.sources import Sample, Source
from history.formats.times import Clock
from history.formats.trees import add_ids, chain_nodes
from history.formats.wire import CHANNEL

NAME = "requests"
CLIENT = "OpenAI"
CLIENTS = {
    "openai-chat": "OpenAI",
    "openai-responses": "OpenAI",
    "anthropic-messages": "Anthropic",
    "gemini-generate": "Gemini",
}
ANTHROPIC = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
SAID = ("messages", "contents", "input")
IDS = ("id", "conversation_id", "session_id", "uuid", "custom_id")
TIMES = ("timestamp", "created_at", "created", "create_time")
NO_TIMES = gettext_noop("The conversation has no times: its entries have that of the import.")


def recognises(sample: Sample) -> bool:
    if sample.shape == "array" and sample.items and all(_is_message(item) for item in sample.items):
        return True
    return any(_dialect_of(item) for item in sample.items)


def _is_message(value: Any) -> bool:
    return string(obj(value).get("role")) in ROLES and ("content" in value or "tool_calls" in value)


def _dialect_of(item: Mapping[str, Any]) -> str:
    """In whose language it is written; '': in none that we know."""
    messages, contents, given = (items(item.get(name)) for name in ("messages", "contents", "input"))
    if messages and _is_message(messages[0]):
        return "anthropic-messages" if _is_anthropic(item) else "openai-chat"
    if contents and isinstance(obj(contents[0]).get("parts"), list):
        return "gemini-generate"
    return "openai-responses" if given and ("role" in obj(given[0]) or "type" in obj(given[0])) else ""


def _is_anthropic(item: Mapping[str, Any]) -> bool:
    if "system" in item or "anthropic_version" in item:
        return True
    blocks = (block for message in objs(item.get("messages")) for block in objs(message.get("content")))
    return any(string(block.get("type")) in ANTHROPIC for block in blocks)


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    if source.sample.shape == "array" and all(_is_message(item) for item in source.sample.items):
        yield next(_conversation({"messages": source.document()}))
        return
    yield from read_each(source, _conversation)


def _conversation(item: Mapping[str, Any]) -> Iterator[Conversation]:
    notes = Notes()
    weights = sum("weight" in message for message in objs(item.get("messages")))
    notes("lost", gettext_noop("The weight of a message for training is not kept."), count=weights)
    dialect = _dialect_of(item) or "openai-chat"
    yield conversation(item, client=CLIENTS[dialect], notes=notes, dialect=dialect)


def conversation(item: Mapping[str, Any], *, client: str, notes: Notes, dialect: str = "openai-chat") -> Conversation:
    """One conversation from a body as the vendor takes it."""
    clock = Clock(next((item[name] for name in TIMES if item.get(name)), None))
    if clock.first is None:
        notes("lost", NO_TIMES)
    request = DIALECTS[dialect].decode_request(item, at=clock.last)
    return Conversation(
        source_id=_id_of(item),
        client=client,
        nodes=chain_nodes(add_ids(_entries(request, clock))),
        title=string(item.get("title")),
        created_at=clock.first,
        model=request.model,
        blobs=request.blobs,
        notes=notes.as_tuple(),
    )


def _id_of(item: Mapping[str, Any]) -> str:
    """Its own id, with how it begins, because ids are not always unique; without an id, a hash of the content."""
    given = next((str(item[name]) for name in IDS if isinstance(item.get(name), str | int) and item[name]), "")
    if given:
        return f"{given[:100]}/{chain_id('', compact([items(item.get(name))[:1] for name in SAID]))[:12]}"
    return chain_id("", compact({name: item[name] for name in (*SAID, "tools", "functions") if name in item}))


def _entries(request: DecodedRequest, clock: Clock) -> Iterator[Entry]:
    if request.system:
        yield SystemInstructionSet(at=clock.last, instruction=request.system)
    if request.tools:
        yield ToolsOffered(at=clock.last, tools=request.tools)
    for entry in request.entries:
        if isinstance(entry, ModelInput) and entry.channel != "system":
            yield replace(entry, channel=CHANNEL)
        elif isinstance(entry, ModelOutput) and request.model:
            yield replace(entry, model=request.model)
        else:
            yield entry
