"""ShareGPT: `{"conversations": [{"from": "human", "value": "…"}, …]}`, one per line, in one list, or one alone.

Speaker names differ from file to file. Tool calls are JSON inside a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from history.dialects.json_access import compact, items, obj, objs, parsed, string
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, gettext_noop
from history.formats.many import read_each
from history.formats.readers.requests import conversation
from history.formats.sources import Sample, Source

NAME = "sharegpt"
CLIENT = "ShareGPT"
SPEAKERS = {
    **dict.fromkeys(("human", "user", "usr", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot", "ai", "claude"), "assistant"),
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("function_call", "tool_call", "function-call"), "call"),
    **dict.fromkeys(("observation", "tool", "function", "function_response", "tool_response", "ipython"), "tool"),
}
OPENS, CLOSES = "<tool_call>", "</tool_call>"


def recognises(sample: Sample) -> bool:
    return any(_is_turn(turn) for item in sample.items for turn in items(item.get("conversations"))[:1])


def _is_turn(turn: Any) -> bool:
    found = obj(turn)
    return ("from" in found and "value" in found) or ("role" in found and "content" in found)


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    yield from read_each(source, _conversation)


def _conversation(item: Mapping[str, Any]) -> Iterator[Conversation]:
    turns = objs(item.get("conversations"))
    if not turns:
        raise FormatError(gettext_noop("it has no conversations"))
    notes = Notes()
    system = string(item.get("system"))
    messages = [{"role": "system", "content": system}] if system else []
    messages += _messages(turns, notes)
    body = {name: value for name, value in item.items() if name not in ("conversations", "system", "tools")}
    yield conversation(
        {**body, "messages": messages, "tools": _tools(item.get("tools"), notes)}, client=CLIENT, notes=notes
    )


def _messages(turns: list[Mapping[str, Any]], notes: Notes) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    waiting: list[str] = []
    for place, turn in enumerate(turns, 1):
        speaker = string(turn.get("from") or turn.get("role"))
        value = turn.get("value", turn.get("content"))
        text = value if isinstance(value, str) else compact(value)
        match SPEAKERS.get(speaker.lower()):
            case "call":
                calls = _calls(text, place)
                waiting += [call["id"] for call in calls]
                messages.append(_asked(calls) if calls else {"role": "assistant", "content": text})
                notes("repaired", gettext_noop("A call that is not valid JSON was read as text."), count=not calls)
            case "tool":
                messages.append({"role": "tool", "tool_call_id": waiting.pop(0) if waiting else "", "content": text})
            case None:
                notes("repaired", gettext_noop("Messages of an unknown role were read as the user's."), where=speaker)
                messages.append({"role": "user", "content": text})
            case role:
                waiting.clear()
                messages.append({"role": role, "content": text})
    return messages


def _asked(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _calls(text: str, place: int) -> list[dict[str, Any]]:
    text = text.strip()
    if text.startswith(OPENS) and text.endswith(CLOSES):
        text = text[len(OPENS) : -len(CLOSES)].strip()
    try:
        value = parsed(text)
    except ValueError:
        return []
    given = [call for call in (value if isinstance(value, list) else [value]) if string(obj(call).get("name"))]
    return [
        {"id": f"call_{place}_{number}", "type": "function", "function": _function(call)}
        for number, call in enumerate(given, 1)
    ]


def _function(call: Mapping[str, Any]) -> dict[str, str]:
    arguments = call.get("arguments", call.get("parameters", {}))
    return {"name": call["name"], "arguments": arguments if isinstance(arguments, str) else compact(arguments)}


def _tools(given: Any, notes: Notes) -> list[Any]:
    """A list, or a list written as a text."""
    if isinstance(given, str) and given.strip():
        try:
            given = parsed(given)
        except ValueError:
            notes("lost", gettext_noop("The list of tools could not be read."))
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in objs(given)]
