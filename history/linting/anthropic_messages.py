"""Format checks of Anthropic Messages requests."""

import re
from collections.abc import Mapping

from history.dialects.anthropic_messages.request_encoder import IMAGES
from history.dialects.json_access import as_float, as_int, items, obj, objs, string
from history.entries import JsonObject
from history.linting.walker import LintWalk, shortened

ID = re.compile(r"[a-zA-Z0-9_-]+")
THINKING = ("thinking", "redacted_thinking")
# Tools that the vendor runs itself, and their outcomes: taken without a check.
HOSTED = ("server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload", "compaction", "search_result")
BLOCKS = {
    "user": ("text", "image", "document", "tool_result", *HOSTED),
    "assistant": ("text", "image", "document", "tool_use", *THINKING, *HOSTED),
    "system": ("text",),
}


class MessagesWalk(LintWalk):
    dialect = "anthropic-messages"
    needs_visible_text = True

    def walk(self, body: JsonObject) -> None:
        self.check_messages(body)
        self.needs((as_int(body.get("max_tokens")) or 0) > 0, "no-limit", "max_tokens")
        for place, message in self.each(body.get("messages"), "messages"):
            self.check_message(place, message)
        self.check_last_answer(objs(body.get("messages")))
        self.check_thinking(body)
        for index, tool in enumerate(items(body.get("tools"))):
            if "input_schema" in obj(tool):
                self.offer(obj(tool).get("name"), f"tools[{index}].name")

    def check_message(self, place: str, message: JsonObject) -> None:
        role = string(message.get("role"))
        if role == "system":
            self.find("system", f"{place}.role")
        else:
            self.needs(role in BLOCKS, "role", f"{place}.role", role=shortened(message.get("role")))
        if role and role == self.role:
            self.find("turns", place)
        self.begin_message(role)
        content, where = message.get("content"), f"{place}.content"
        if isinstance(content, str):
            self.text(content, where)
            return
        self.needs(bool(items(content)), "content", where)
        has_called = False
        for block_place, block in self.each(content, where):
            kind = string(block.get("type"))
            if kind == "text" and has_called:
                self.find("calls-last", block_place)
            has_called = has_called or kind == "tool_use"
            self.check_block(block_place, block, kind)

    def check_block(self, place: str, block: JsonObject, kind: str) -> None:
        allowed = BLOCKS.get(self.role, BLOCKS["user"])
        if kind not in allowed and not kind.endswith("_tool_result"):
            self.find("part-type", place, role=self.role or "?", type=shortened(kind or "?"))
            self.content(place, weight=0)
        elif kind == "text":
            self.text(block.get("text"), f"{place}.text")
        elif kind in THINKING:
            self.needs(bool(string(block.get("signature" if kind == "thinking" else "data"))), "unsigned", place)
            self.content(place, weight=0)
        elif kind == "tool_use":
            call_id, name = string(block.get("id")), string(block.get("name"))
            if self.needs(bool(call_id), "no-id", f"{place}.id"):
                self.needs(bool(ID.fullmatch(call_id)), "id-alphabet", f"{place}.id", id=shortened(call_id))
            self.needs(isinstance(block.get("input"), Mapping), "arguments", f"{place}.input", name=shortened(name))
            self.call(place, call_id=call_id, name=name)
        elif kind == "tool_result":
            call_id = string(block.get("tool_use_id"))
            self.needs(bool(call_id), "no-id", f"{place}.tool_use_id")
            for index, part in enumerate(objs(block.get("content"))):
                self.check_media(f"{place}.content[{index}]", part)
            self.result(place, call_id=call_id)
        else:
            self.check_media(place, block)
            self.content(place, weight=2 if kind in ("image", "document") else 0)

    def check_media(self, place: str, block: JsonObject) -> None:
        source = obj(block.get("source"))
        media_type = string(source.get("media_type"))
        if block.get("type") == "image" and source.get("type") == "base64":
            self.needs(media_type in IMAGES, "media-type", f"{place}.source", type=shortened(media_type or "?"))

    def check_last_answer(self, messages: list[JsonObject]) -> None:
        """A last message of the assistant is a prefill that the model continues."""
        blocks = blocks_of(messages[-1].get("content")) if messages else []
        if not blocks or messages[-1].get("role") != "assistant":
            return
        text = string(blocks[-1].get("text"))
        if text.strip() and text != text.rstrip():
            self.find("trailing-space", f"messages[{len(messages) - 1}].content")

    def check_thinking(self, body: JsonObject) -> None:
        thinking = obj(body.get("thinking"))
        if thinking.get("type") != "enabled":
            return
        budget, limit = as_int(thinking.get("budget_tokens")) or 0, as_int(body.get("max_tokens")) or 0
        self.needs(budget < limit, "thinking-budget", "thinking.budget_tokens")
        self.needs(as_float(body.get("temperature")) in (None, 1.0), "thinking-temperature", "temperature")
        messages = [blocks_of(obj(message).get("content")) for message in items(body.get("messages"))]
        if len(messages) < 2 or not any(block.get("type") == "tool_result" for block in messages[-1]):
            return
        if any(block.get("type") == "tool_use" for block in messages[-2]):
            place = f"messages[{len(messages) - 2}].content[0]"
            self.needs(messages[-2][0].get("type") in THINKING, "thinking-first", place)


def blocks_of(content: object) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else objs(content)
