"""Parser for pasted conversations: requests, bare message lists or JSON lines."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from history.dialects import DIALECTS
from history.dialects.json_access import items, obj, objs, parse_json, string
from history.entries import JsonObject
from history.text.lazy import LazyTextError, gettext_noop as _

MODEL = "name-of-the-model"
FIELDS = {name: dialect.HTTP_API.conversation_field for name, dialect in DIALECTS.items()}
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document")  # blocks that only Anthropic has


class NotAConversation(LazyTextError):
    """The input is not a conversation; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintInput:
    body: JsonObject
    language: str

    @property
    def count(self) -> int:
        return len(items(self.body.get(FIELDS[self.language])))


def parse_text(text: str, *, language: str = "") -> list[LintInput]:
    """One JSON document, or one in each line."""
    values: Iterable[object]
    try:
        values = [parse_json(text.lstrip("\ufeff"))]
    except ValueError as error:
        values = _parse_lines(text, error)
    return [parse_conversation(value, language=language) for value in values]


def _parse_lines(text: str, error: ValueError) -> Iterator[object]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not lines[0].lstrip("\ufeff").startswith(("{", "[")):
        raise NotAConversation(_("not valid JSON: %(error)s"), error=str(error)) from None
    for number, line in enumerate(lines, 1):
        try:
            yield parse_json(line.lstrip("\ufeff"))
        except ValueError as wrong:
            words = _("line %(number)s is not valid JSON: %(error)s")
            raise NotAConversation(words, number=number, error=str(wrong)) from None


def parse_conversation(value: object, *, language: str = "") -> LintInput:
    if isinstance(value, list):
        language = language or _language_of_messages(value)
        limit = {"max_tokens": 4096} if language == "anthropic-messages" else {}
        return LintInput(body={"model": MODEL, FIELDS[language]: value, **limit}, language=language)
    if not isinstance(value, Mapping):
        raise NotAConversation(_("a conversation must be a JSON object or a list of messages"))
    language = language or _language_of(value)
    if not language:
        raise NotAConversation(_("a request needs messages, input or contents"))
    return LintInput(body=value, language=language)


def _language_of(body: JsonObject) -> str:
    if "contents" in body:
        return "gemini-generate"
    if "messages" in body:
        return "anthropic-messages" if _is_anthropic(body) else "openai-chat"
    is_responses = any(name in body for name in ("input", "previous_response_id", "prompt", "conversation"))
    return "openai-responses" if is_responses else ""


def _is_anthropic(body: JsonObject) -> bool:
    messages = objs(body.get("messages"))
    has_fields = any(name in body for name in ("system", "stop_sequences", "thinking", "anthropic_version", "top_k"))
    if has_fields or any("input_schema" in tool for tool in objs(body.get("tools"))):
        return True
    if any(message.get("role") == "tool" or "tool_calls" in message for message in messages):
        return False
    return string(body.get("model")).startswith("claude") or _has_blocks(messages)


def _has_blocks(messages: list[JsonObject]) -> bool:
    blocks = [block for message in messages for block in objs(message.get("content"))]
    return any(block.get("type") in _BLOCKS or obj(block.get("source")) for block in blocks)


def _language_of_messages(messages: list[object]) -> str:
    found = objs(messages)
    if not found:
        raise NotAConversation(_("a list of messages must contain objects"))
    if any("parts" in message for message in found):
        return "gemini-generate"
    parts = (part for message in found for part in objs(message.get("content")))
    is_responses = any(part.get("type") in ("input_text", "output_text") for part in parts)
    if is_responses or any(string(message.get("type")) for message in found):
        return "openai-responses"
    return "anthropic-messages" if _has_blocks(found) else "openai-chat"
