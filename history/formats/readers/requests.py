"""Conversations as vendors' requests and as ShareGPT: one per line (the form for fine-tuning), in one list or alone.

Checkpoints of Gemini CLI are contents of its requests. None of these has an id: it is made from what is said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from history.dialects import DIALECTS, DecodedRequest
from history.dialects.json_access import compact, items, obj, objs, parse_json, string
from history.entries.kinds import Entry, ModelInput, ModelOutput, SystemInstructionSet, ToolsOffered
from history.entries.values import JsonDict, JsonObject, now
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, chain_id
from history.formats.conversations import CHANNEL, ConversationReader, read_each
from history.formats.sources import Reader, Sample, Source
from history.text.lazy import gettext_noop as _

CLIENTS = {"anthropic-messages": "Anthropic", "gemini-generate": "Gemini"}  # others are OpenAI's
ANTHROPIC = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"})
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
CONVERSATION_FIELDS = ("messages", "contents", "input")
IDS = ("id", "conversation_id", "session_id", "uuid", "custom_id")
TIMES = ("timestamp", "created_at", "created", "create_time")
# Of a checkpoint: how the environment begins; the environment, its acknowledgement, the first question and its answer.
ENVIRONMENT = ("This is the Gemini CLI", "<session_context>")
OPENING_CONTENTS = 4
SPEAKERS = {
    **dict.fromkeys(("human", "user", "usr", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot", "ai", "claude"), "assistant"),
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("function_call", "tool_call", "function-call"), "call"),
    **dict.fromkeys(("observation", "tool", "function", "function_response", "tool_response", "ipython"), "tool"),
}
OPENS, CLOSES = "<tool_call>", "</tool_call>"


def recognises(sample: Sample) -> bool:
    if sample.shape == "array" and sample.items and all(_is_message(item) for item in sample.items):
        return True
    return any(_dialect_of(item) for item in sample.items)


def _is_message(value: object) -> bool:
    message = obj(value)
    return string(message.get("role")) in ROLES and ("content" in message or "tool_calls" in message)


def _dialect_of(item: JsonObject) -> str:
    """The dialect of a body; '' means unknown."""
    messages, contents, value = (items(item.get(name)) for name in ("messages", "contents", "input"))
    if messages and _is_message(messages[0]):
        blocks = [block for message in objs(messages) for block in objs(message.get("content"))]
        has_blocks = any(string(block.get("type")) in ANTHROPIC for block in blocks)
        is_anthropic = has_blocks or "system" in item or "anthropic_version" in item
        return "anthropic-messages" if is_anthropic else "openai-chat"
    if contents and isinstance(obj(contents[0]).get("parts"), list):
        return "gemini-generate"
    return "openai-responses" if value and ("role" in obj(value[0]) or "type" in obj(value[0])) else ""


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    if source.sample.shape == "array" and all(_is_message(item) for item in source.sample.items):
        yield _conversation({"messages": source.document()})
    else:
        yield from read_each(source, _conversation)


def _conversation(item: JsonObject) -> Conversation:
    notes = Notes()
    weights = sum("weight" in message for message in objs(item.get("messages")))
    notes("lost", _("Training weights of messages are not kept."), count=weights)
    dialect = _dialect_of(item) or "openai-chat"
    return _convert(item, client=CLIENTS.get(dialect, "OpenAI"), notes=notes, dialect=dialect)


def _convert(item: JsonObject, *, client: str, notes: Notes, dialect: str = "openai-chat") -> Conversation:
    start = next((item[name] for name in TIMES if item.get(name)), None)
    reader = ConversationReader(client, start=start, notes=notes)
    if reader.started_at is None:
        notes("lost", _("The conversation has no times. Its entries get the time of the import."))
    request = DIALECTS[dialect].decode_request(item, at=reader.last_at)
    reader.blobs.update(request.blobs)
    reader.tree.add_chain(_entries(request, reader.last_at))
    # Its own id, with how it begins, because ids are not always unique; without an id, a hash of the content.
    source_id = next((str(item[name]) for name in IDS if isinstance(item.get(name), str | int) and item[name]), "")
    if source_id:
        opening = chain_id("", compact([items(item.get(name))[:1] for name in CONVERSATION_FIELDS]))
        source_id = f"{source_id[:100]}/{opening[:12]}"
    else:
        source_id = chain_id(
            "", compact({name: item[name] for name in (*CONVERSATION_FIELDS, "tools", "functions") if name in item})
        )
    return reader.conversation(source_id, title=string(item.get("title")), model=request.model)


def _entries(request: DecodedRequest, at: datetime) -> Iterator[Entry]:
    if request.system:
        yield SystemInstructionSet(at=at, instruction=request.system)
    if request.tools:
        yield ToolsOffered(at=at, tools=request.tools)
    for entry in request.entries:
        if isinstance(entry, ModelInput) and entry.channel != "system":
            yield replace(entry, channel=CHANNEL)
        elif isinstance(entry, ModelOutput) and request.model:
            yield replace(entry, model=request.model)
        else:
            yield entry


def recognises_sharegpt(sample: Sample) -> bool:
    turns = (obj(turn) for item in sample.items for turn in items(item.get("conversations"))[:1])
    return any({"from", "value"} <= turn.keys() or {"role", "content"} <= turn.keys() for turn in turns)


def _sharegpt_conversation(item: JsonObject) -> Conversation:
    turns = objs(item.get("conversations"))
    if not turns:
        raise FormatError(_("it has no conversations"))
    notes = Notes()
    system = string(item.get("system"))
    messages = [{"role": "system", "content": system}] if system else []
    messages += _messages(turns, notes)
    body = {name: value for name, value in item.items() if name not in ("conversations", "system", "tools")}
    body |= {"messages": messages, "tools": _tools(item.get("tools"), notes)}
    return _convert(body, client="ShareGPT", notes=notes)


def _messages(turns: list[JsonObject], notes: Notes) -> list[JsonDict]:
    messages: list[JsonDict] = []
    waiting: list[str] = []
    for place, turn in enumerate(turns, 1):
        speaker = string(turn.get("from") or turn.get("role"))
        value = turn.get("value", turn.get("content"))
        text = value if isinstance(value, str) else compact(value)
        match SPEAKERS.get(speaker.lower()):
            case "call":
                calls = _calls(text, place)
                waiting += [call["id"] for call in calls]
                message = {"content": None, "tool_calls": calls} if calls else {"content": text}
                messages.append({"role": "assistant", **message})
                notes("repaired", _("A call is not valid JSON. It was read as text."), count=not calls)
            case "tool":
                messages.append({"role": "tool", "tool_call_id": waiting.pop(0) if waiting else "", "content": text})
            case None:
                notes("repaired", _("Messages with an unknown role were imported as the user’s."), where=speaker)
                messages.append({"role": "user", "content": text})
            case role:
                waiting.clear()
                messages.append({"role": role, "content": text})
    return messages


def _calls(text: str, place: int) -> list[JsonDict]:
    text = text.strip()
    if text.startswith(OPENS) and text.endswith(CLOSES):
        text = text[len(OPENS) : -len(CLOSES)].strip()
    try:
        value = parse_json(text)
    except ValueError:
        return []
    value = [call for call in (value if isinstance(value, list) else [value]) if string(obj(call).get("name"))]
    calls: list[JsonDict] = []
    for number, call in enumerate(value, 1):
        arguments = call.get("arguments", call.get("parameters", {}))
        text = arguments if isinstance(arguments, str) else compact(arguments)
        function = {"name": call["name"], "arguments": text}
        calls.append({"id": f"call_{place}_{number}", "type": "function", "function": function})
    return calls


def _tools(value: object, notes: Notes) -> list[object]:
    """A list, or a list written as a text."""
    if isinstance(value, str) and value.strip():
        try:
            value = parse_json(value)
        except ValueError:
            notes("lost", _("The list of tools could not be read."))
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in objs(value)]


def recognises_checkpoint(sample: Sample) -> bool:
    if sample.shape == "object":
        history = items(sample.first.get("history"))
        return bool(history) and all(_is_content(content) for content in history[:3])
    return sample.shape == "array" and bool(sample.items) and all(_is_content(item) for item in sample.items)


def _is_content(value: object) -> bool:
    return obj(value).get("role") in ("user", "model") and isinstance(obj(value).get("parts"), list)


def read_checkpoint(source: Source) -> Iterator[Conversation]:
    """A checkpoint has no ids or times. One that is saved again under the same tag begins like the one before.

    So its id is made from its beginning: then new entries are appended, and where the two part a branch begins.
    """
    document = source.document()
    contents = items(document.get("history") if isinstance(document, Mapping) else document)
    if not contents:
        raise FormatError(_("the checkpoint is empty"))
    reader = ConversationReader("Gemini CLI", "gemini-generate")
    reader.notes("lost", _("The checkpoint has no times. Its entries get the time of the import."))
    contents = [obj(content) for content in contents]
    entries: list[Entry] = []
    for entry in reader.decode(contents, at=now()):
        if isinstance(entry, ModelInput) and entry.text.lstrip().startswith(ENVIRONMENT):
            entry = replace(entry, is_internal=True)
        entries.append(entry)
    reader.tree.add_chain(entries)
    yield reader.conversation(chain_id("", compact(contents[:OPENING_CONTENTS])))


READER = Reader("requests", recognises, read)
SHAREGPT_READER = Reader("sharegpt", recognises_sharegpt, lambda source: read_each(source, _sharegpt_conversation))
CHECKPOINT_READER = Reader("gemini-checkpoint", recognises_checkpoint, read_checkpoint)
