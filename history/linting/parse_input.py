"""Parser for pasted conversations: requests, bare message lists or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from history.dialects.json_access import items, obj, objs, parsed, string
from history.text.lazy import SaidError
from history.text.lazy import gettext_noop as _

MODEL = "name-of-the-model"


class NotAConversation(SaidError):
    """The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintInput:
    """A request and its language. ``is_bare``: only messages were given, so a missing model is not reported."""

    body: Mapping[str, Any]
    language: str
    is_bare: bool = False

    @property
    def count(self) -> int:
        """How many messages it has."""
        return len(items(self.body.get(FIELDS[self.language])))


def read_text(text: str, *, language: str = "") -> list[LintInput]:
    """One JSON document, or one in each line."""
    try:
        return [given(parsed(text.lstrip("\ufeff")), language=language)]
    except NotAConversation:
        raise
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not lines[0].lstrip("\ufeff").startswith(("{", "[")):
            raise NotAConversation(_("this is not JSON: %(error)s"), error=str(error)) from None
        return [given(_line(number, line), language=language) for number, line in enumerate(lines, 1)]


def _line(number: int, line: str) -> Any:
    try:
        return parsed(line.lstrip("\ufeff"))
    except ValueError as error:
        raise NotAConversation(_("line %(number)s is not JSON: %(error)s"), number=number, error=str(error)) from None


def given(value: Any, *, language: str = "") -> LintInput:
    if isinstance(value, list):
        return _bare(value, language)
    if not isinstance(value, Mapping):
        raise NotAConversation(_("a conversation is a JSON object, or a list of messages"))
    found = language or _language_of(value)
    if not found:
        raise NotAConversation(_("a request has messages, input or contents; this one has none of them"))
    return LintInput(body=value, language=found)


FIELDS = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic-messages": "messages",
    "gemini-generate": "contents",
}


def _bare(messages: list[Any], language: str) -> LintInput:
    found = language or _language_of_messages(messages)
    body = {"model": MODEL, "max_tokens": 4096, FIELDS[found]: messages}
    if found != "anthropic-messages":
        del body["max_tokens"]
    return LintInput(body=body, language=found, is_bare=True)


def _language_of(body: Mapping[str, Any]) -> str:
    if "contents" in body:
        return "gemini-generate"
    if "messages" in body:
        return "anthropic-messages" if _is_anthropic(body) else "openai-chat"
    is_responses = any(name in body for name in ("input", "previous_response_id", "prompt", "conversation"))
    return "openai-responses" if is_responses else ""


def _is_anthropic(body: Mapping[str, Any]) -> bool:
    messages = objs(body.get("messages"))
    if any(name in body for name in ("system", "stop_sequences", "thinking", "anthropic_version", "top_k")):
        return True
    if any("input_schema" in tool for tool in objs(body.get("tools"))):
        return True
    if any(message.get("role") == "tool" or "tool_calls" in message for message in messages):
        return False
    return string(body.get("model")).startswith("claude") or _has_blocks(messages)


_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document")


def _has_blocks(messages: list[Mapping[str, Any]]) -> bool:
    """Whether there is anything in them that only Anthropic has."""
    blocks = [block for message in messages for block in objs(message.get("content"))]
    return any(block.get("type") in _BLOCKS or obj(block.get("source")) for block in blocks)


def _language_of_messages(messages: list[Any]) -> str:
    found = objs(messages)
    if not found:
        raise NotAConversation(_("a list of messages holds objects; this one holds none"))
    if any("parts" in message for message in found):
        return "gemini-generate"
    if any(_is_item(message) for message in found):
        return "openai-responses"
    return "anthropic-messages" if _has_blocks(found) else "openai-chat"


def _is_item(message: Mapping[str, Any]) -> bool:
    kind = string(message.get("type"))
    inner = [string(obj(part).get("type")) for part in items(message.get("content"))]
    return bool(kind) or any(part in ("input_text", "output_text") for part in inner)
