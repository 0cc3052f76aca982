"""Checks of the request format of Anthropic Messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from history.dialects.anthropic_messages.encoding import IMAGES
from history.dialects.json_access import items, number, obj, objs, string, whole
from history.linting.walker import A_LIST, A_TEXT, LintWalk, shortened, weight_of

ID = re.compile(r"[a-zA-Z0-9_-]+")
THINKING = ("thinking", "redacted_thinking")
# What the vendor runs itself, and its outcomes: of no concern here, but taken.
HOSTED = ("server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload", "compaction", "search_result")
BLOCKS = {
    "user": ("text", "image", "document", "tool_result", *HOSTED),
    "assistant": ("text", "image", "document", "tool_use", *THINKING, *HOSTED),
    "system": ("text",),
}


def walk(body: Mapping[str, Any]) -> LintWalk:
    walk = _Walk("anthropic-messages")
    walk.needs(bool(string(body.get("model"))), "no-model", "model")
    walk.needs((whole(body.get("max_tokens")) or 0) > 0, "no-limit", "max_tokens")
    if walk.needs(isinstance(body.get("messages"), list), "malformed", "messages", what="messages", wanted=A_LIST):
        walk.needs(bool(body["messages"]), "no-messages", "messages")
    for place, message in walk.each(body.get("messages"), "messages"):
        walk.look(place, message)
    _look_at_the_end(walk, objs(body.get("messages")))
    _look_at_thinking(walk, body)
    for number_, tool in enumerate(items(body.get("tools"))):
        if "input_schema" in obj(tool):
            walk.offer(obj(tool).get("name"), f"tools[{number_}].name")
    return walk


def blocks_of(content: Any) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else objs(content)


class _Walk(LintWalk):
    role = ""

    def look(self, place: str, message: Mapping[str, Any]) -> None:
        role = string(message.get("role"))
        if role == "system":
            self.find("system", f"{place}.role")
        else:
            self.needs(role in BLOCKS, "role", f"{place}.role", role=shortened(message.get("role")))
        if role and role == self.role:
            self.find("turns", place)
        self.role = role
        self.message += 1
        self.speaker = "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"
        content, where = message.get("content"), f"{place}.content"
        if isinstance(content, str):
            self.text(content, where)
        elif self.needs(bool(items(content)), "content", where):
            self.blocks(where, content)

    def blocks(self, place: str, content: Any) -> None:
        has_called = False
        for block_place, block in self.each(content, place):
            kind = string(block.get("type"))
            if kind == "text" and has_called:
                self.find("calls-last", block_place)
            has_called = has_called or kind == "tool_use"
            self.block(block_place, block, kind)

    def block(self, place: str, block: Mapping[str, Any], kind: str) -> None:
        allowed = BLOCKS.get(self.role, BLOCKS["user"])
        if kind not in allowed and not kind.endswith("_tool_result"):
            self.find("part-type", place, role=self.role or "?", type=shortened(kind or "?"))
            self.say(place, weight=0)
        elif kind == "text":
            self.text(block.get("text"), f"{place}.text")
        elif kind in THINKING:
            self.needs(bool(string(block.get("signature" if kind == "thinking" else "data"))), "unsigned", place)
            self.say(place, weight=0)
        elif kind == "tool_use":
            self.tool_use(place, block)
        elif kind == "tool_result":
            self.tool_result(place, block)
        else:
            self.media(place, block)
            self.say(place, weight=2 if kind in ("image", "document") else 0)

    def text(self, text: Any, place: str) -> None:
        if self.needs(isinstance(text, str), "malformed", place, what="text", wanted=A_TEXT):
            self.needs(bool(text.strip()), "empty-text", place)
            self.say(place, weight=weight_of(text))

    def media(self, place: str, block: Mapping[str, Any]) -> None:
        source = obj(block.get("source"))
        media_type = string(source.get("media_type"))
        if block.get("type") == "image" and source.get("type") == "base64":
            self.needs(media_type in IMAGES, "media-type", f"{place}.source", type=shortened(media_type or "?"))

    def tool_use(self, place: str, block: Mapping[str, Any]) -> None:
        call_id, name = string(block.get("id")), string(block.get("name"))
        if self.needs(bool(call_id), "no-id", f"{place}.id"):
            self.needs(bool(ID.fullmatch(call_id)), "id-alphabet", f"{place}.id", id=shortened(call_id))
        self.needs(isinstance(block.get("input"), Mapping), "arguments", f"{place}.input", name=shortened(name))
        self.call(place, call_id=call_id, name=name)

    def tool_result(self, place: str, block: Mapping[str, Any]) -> None:
        call_id, content = string(block.get("tool_use_id")), block.get("content")
        self.needs(bool(call_id), "no-id", f"{place}.tool_use_id")
        for number_, part in enumerate(objs(content)):
            self.media(f"{place}.content[{number_}]", part)
        self.result(place, call_id=call_id)


def _look_at_the_end(walk: LintWalk, messages: list[Mapping[str, Any]]) -> None:
    """An answer that the model is to go on with."""
    blocks = blocks_of(messages[-1].get("content")) if messages else []
    if not blocks or messages[-1].get("role") != "assistant":
        return
    text = string(blocks[-1].get("text"))
    if text.strip() and text != text.rstrip():
        walk.find("trailing-space", f"messages[{len(messages) - 1}].content")


def _look_at_thinking(walk: LintWalk, body: Mapping[str, Any]) -> None:
    thinking = obj(body.get("thinking"))
    if thinking.get("type") != "enabled":
        return
    budget, limit = whole(thinking.get("budget_tokens")) or 0, whole(body.get("max_tokens")) or 0
    walk.needs(budget < limit, "thinking-budget", "thinking.budget_tokens")
    walk.needs(number(body.get("temperature")) in (None, 1.0), "thinking-temperature", "temperature")
    answers = [(place, blocks_of(obj(m).get("content"))) for place, m in enumerate(items(body.get("messages")))]
    if len(answers) < 2 or not any(block.get("type") == "tool_result" for block in answers[-1][1]):
        return
    place, blocks = answers[-2]
    if blocks and any(block.get("type") == "tool_use" for block in blocks):
        walk.needs(blocks[0].get("type") in THINKING, "thinking-first", f"messages[{place}].content[0]")
