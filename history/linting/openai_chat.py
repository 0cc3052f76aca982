"""Checks of the request format of OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from history.dialects.encoder import arguments_of
from history.dialects.json_access import items, obj, objs, string
from history.linting.walker import A_LIST, A_TEXT, LintWalk, shortened, weight_of

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
PARTS = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
}
ID_LIMIT = 40


def walk(body: Mapping[str, Any]) -> LintWalk:
    walk = _Walk("openai-chat")
    walk.needs(bool(string(body.get("model"))), "no-model", "model")
    if walk.needs(isinstance(body.get("messages"), list), "malformed", "messages", what="messages", wanted=A_LIST):
        walk.needs(bool(body["messages"]), "no-messages", "messages")
    walk.needs("stream_options" not in body or body.get("stream") is True, "stream-options", "stream_options")
    for place, message in walk.each(body.get("messages"), "messages"):
        walk.look(place, message)
    for number, tool in enumerate(items(body.get("tools"))):
        if obj(tool).get("type", "function") == "function":
            walk.offer(obj(obj(tool).get("function")).get("name"), f"tools[{number}].function.name")
    return walk


class _Walk(LintWalk):
    role = ""

    def look(self, place: str, message: Mapping[str, Any]) -> None:
        role, before = string(message.get("role")), self.role
        self.needs(role in ROLES, "role", f"{place}.role", role=shortened(message.get("role")))
        if role == before and role in ("user", "assistant"):
            self.find("turns", place)
        if role in ("system", "developer") and before not in ("", "system", "developer"):
            self.find("late-system", place)
        self.role = role
        self.message += 1
        self.speaker = "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"
        if role in ("tool", "function"):
            self.tool_message(place, message)
        else:
            self.content(place, message)
            self.calls(place, message)

    def content(self, place: str, message: Mapping[str, Any]) -> None:
        content, where = message.get("content"), f"{place}.content"
        if isinstance(content, str):
            self.text(content, where)
        elif isinstance(content, list) and content:
            for part_place, part in self.each(content, where):
                self.part(part_place, part)
        else:
            self.needs(bool(message.get("tool_calls") or message.get("function_call")), "content", where)
        if message.get("reasoning_content") or message.get("reasoning"):
            self.find("reasoning", place)
            self.say(place, weight=0)

    def text(self, text: Any, place: str) -> None:
        if self.needs(isinstance(text, str), "malformed", place, what="text", wanted=A_TEXT):
            self.needs(bool(text), "empty-text", place)
            self.say(place, weight=weight_of(text))

    def part(self, place: str, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        allowed = PARTS.get(self.role, ("text",))
        if not self.needs(kind in allowed, "part-type", place, role=self.role, type=shortened(kind)):
            self.say(place, weight=0)
        elif kind in ("text", "refusal"):
            self.text(part.get(kind), f"{place}.{kind}")
        else:
            self.say(place)

    def calls(self, place: str, message: Mapping[str, Any]) -> None:
        given = message.get("tool_calls")
        if given is not None and self.role != "assistant":
            self.find("calls-of-others", f"{place}.tool_calls")
        elif self.needs(given is None or isinstance(given, list), "malformed", place, what="tool_calls", wanted=A_LIST):
            for call_place, call in self.each(given, f"{place}.tool_calls"):
                self.one_call(call_place, call)

    def one_call(self, place: str, call: Mapping[str, Any]) -> None:
        function = obj(call.get("function")) or obj(call.get("custom"))
        name, call_id = string(function.get("name")), string(call.get("id"))
        self.needs(bool(call_id), "no-id", f"{place}.id")
        self.needs(len(call_id) <= ID_LIMIT, "long-id", f"{place}.id", id=shortened(call_id))
        if "custom" not in call:
            check_arguments(self, function.get("arguments"), name, f"{place}.function.arguments")
        self.call(place, call_id=call_id, name=name)

    def tool_message(self, place: str, message: Mapping[str, Any]) -> None:
        content, call_id = message.get("content"), string(message.get("tool_call_id"))
        self.needs(bool(call_id) or self.role == "function", "no-id", f"{place}.tool_call_id")
        self.needs(isinstance(content, str) or bool(objs(content)), "content", f"{place}.content")
        for number, part in enumerate(objs(content)):
            self.needs(part.get("type") == "text", "media-in-result", f"{place}.content[{number}]")
        self.result(place, call_id=call_id, name=string(message.get("name")))


def check_arguments(walk: LintWalk, arguments: Any, name: str, place: str) -> None:
    """OpenAI wants a text. What stands in it is for the tool to understand."""
    if walk.needs(isinstance(arguments, str), "arguments", place, name=shortened(name)):
        walk.needs(arguments_of(arguments or "{}") is not None, "arguments-json", place, name=shortened(name))
