"""Encoder of requests to Anthropic. docs/internals/dialects.md has the rules of the order of blocks."""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby

from history.context.values import Context, ContextEntry, Role
from history.dialects.anthropic_messages.reply_reader import DIALECT
from history.dialects.anthropic_messages.reply_writer import blocks_of
from history.dialects.json_access import items, obj, string, without_empty
from history.dialects.request_encoder import EncodedEntry, LoadedMedia, RequestEncoder, base64_of, missing_error
from history.dialects.types import LossCode, join_texts
from history.entries import JsonDict, JsonObject, Media, Part, Reasoning, Text, ToolRequest, ToolResult, text_of

MAX_TOKENS = 4_096  # Anthropic requires a limit; this is the maximum of its smallest models
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# Thinking tokens of older models by effort.
BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_000}
EFFORTS = {"minimal": "low"}


class AnthropicRequestEncoder(RequestEncoder):
    dialect = DIALECT
    id_limit = 128
    schema_field = "input_schema"
    rejects_blank_text = True
    invalid_in_ids = re.compile(r"[^a-zA-Z0-9_-]")

    def adapted(self, context: Context) -> Context:
        return self.with_any_input(context)

    def request(self, context: Context, encoded: list[EncodedEntry]) -> tuple[str, JsonDict]:
        options = self.options
        body = {
            "model": options.model,
            "max_tokens": options.max_tokens or MAX_TOKENS,
            **without_empty(system=context.system),
            "messages": self.messages(encoded),
            **self.tools(context),
            **without_empty(stop_sequences=list(options.stop), temperature=options.temperature, top_p=options.top_p),
            **({"stream": True} if options.stream else {}),
        }
        self.add_thinking(body)
        self.add_form(body)
        if body["max_tokens"] != options.max_tokens:
            self.supplied["max_tokens"] = body["max_tokens"]
        return "/v1/messages", body

    def messages(self, encoded: list[EncodedEntry]) -> list[JsonDict]:
        """Consecutive messages of one role are one, also if an empty message was between them."""
        messages: list[JsonDict] = [
            {"role": role, "content": [block for _, blocks in group for block in blocks]}
            for role, group in groupby((one for one in encoded if one[1]), key=lambda one: self.role(one[0]))
        ]
        if messages and messages[-1]["role"] == "assistant" and messages[-1]["content"][-1]["type"] == "text":
            # A last answer that the model continues must not end in white space.
            last = messages[-1]["content"].pop()
            messages[-1]["content"].append({**last, "text": last["text"].rstrip()})
        return messages

    def role(self, entry: ContextEntry) -> str:
        if entry.role is Role.SYSTEM and self.switches.inline_system:
            return "system"
        return "assistant" if entry.role is Role.MODEL_OUTPUT else "user"

    def instruction(self, entry: ContextEntry) -> list[JsonDict]:
        if self.switches.inline_system:
            return self.blocks([Text(text=text_of(entry.parts))])
        return [self.text(self.system_as_text(entry))]

    def input(self, entry: ContextEntry) -> list[JsonDict]:
        return self.blocks(self.input_parts(entry))

    def answer(self, entry: ContextEntry) -> list[JsonDict]:
        """Calls come last: Anthropic expects their results directly after them."""
        blocks = [block for part in entry.parts for block in self.answer_blocks(part)]
        ordered = sorted(blocks, key=lambda block: block["type"] == "tool_use")
        if ordered != blocks:
            self.lose(LossCode.PARTS_REORDERED)
        return ordered

    def answer_blocks(self, part: Part) -> list[JsonDict]:
        match part:
            case Text():
                return self.blocks([part])
            case Reasoning():
                return blocks_of(part) if self.may_return(part) else []
            case ToolRequest():
                call_id = self.call_id(part.call_id)
                return [{"type": "tool_use", "id": call_id, "name": part.name, "input": self.arguments_object(part)}]
            case _:
                self.leave_out([part])
                return []

    def results(self, entry: ContextEntry) -> list[JsonDict]:
        """The live screen is part of the last result, so that the message has results only."""
        blocks = [self.result(result) for result in entry.results]
        if blocks and (screen := self.live_screen(entry)):
            blocks[-1]["content"] = [*blocks[-1].get("content", []), self.text(screen)]
        return blocks

    def result(self, result: ToolResult) -> JsonDict:
        call_id, content = self.call_id(result.call_id), []
        for part in (*result.parts, Text(text=missing_error(result))):
            if isinstance(part, Media) and not self.switches.media_in_results:
                content.append(self.note(part))
            else:
                content += self.blocks([part])
        is_error = {} if result.status == "success" else {"is_error": True}
        return {"type": "tool_result", "tool_use_id": call_id, **without_empty(content=content), **is_error}

    def blocks(self, parts: Iterable[Part]) -> list[JsonDict]:
        return [self.media(*part) if isinstance(part, LoadedMedia) else part for part in self.sendable(parts)]

    def media(self, media: Media, content: bytes | None) -> JsonDict:
        if media.media_type in IMAGES or (media.media_type.startswith("image/") and content is None):
            return {"type": "image", "source": _source(media, content)}
        if media.media_type == "application/pdf":
            return {"type": "document", "source": _source(media, content), **without_empty(title=media.name)}
        if media.media_type.startswith("text/") and content is not None:
            source = {"type": "text", "media_type": "text/plain", "data": content.decode("utf-8", "replace")}
            return {"type": "document", "source": source, **without_empty(title=media.name)}
        return self.note(media)

    def tools(self, context: Context) -> JsonDict:
        offered = self.offered_tools(context.tools)
        if not offered:
            return {}
        tools = [hosted or self.function(tool) for tool, hosted in offered]
        return {"tools": tools, **without_empty(tool_choice=self.tool_choice(self.forced_tool(offered)))}

    def tool_choice(self, forced: str) -> JsonDict | None:
        """Parallel calls are part of the choice, except for the choice of none."""
        is_single = self.options.parallel_tools is False and self.options.tool_choice != "none"
        single = {"disable_parallel_tool_use": True} if is_single else {}
        if forced:
            return {"type": "tool", "name": forced, **single}
        kinds = {"": "auto", "auto": "auto", "none": "none", "required": "any"}
        choice = self.options.tool_choice
        return {"type": kinds[choice], **single} if choice or single else None

    def add_thinking(self, body: JsonDict) -> None:
        """Thinking excludes a temperature and a required tool."""
        effort = self.options.reasoning_effort
        if not effort or effort == "none":
            return
        if self.cannot_think(body):
            self.lose(LossCode.OPTION_NOT_CARRIED, name="reasoning_effort")
            return
        if self.switches.thinking_budget:
            budget = BUDGETS.get(effort, BUDGETS["medium"])
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
            body["max_tokens"] = max(body["max_tokens"], budget + MAX_TOKENS)
        else:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": EFFORTS.get(effort, effort)}
        for name in ("temperature", "top_p"):
            if body.pop(name, None) is not None:
                self.lose(LossCode.OPTION_NOT_CARRIED, name=name)

    def add_form(self, body: JsonDict) -> None:
        form = self.options.form
        if form is not None and form.schema is None:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="response_format")
        elif form is not None and form.schema is not None:
            output_format = {"type": "json_schema", "schema": schema_of_answer(form.schema)}
            body["output_config"] = {**body.get("output_config", {}), "format": output_format}

    def cannot_think(self, body: JsonDict) -> bool:
        """With a budget, thinking in the middle of a turn is allowed only if its last answer began with thinking."""
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            return True
        contents = [message["content"] for message in body["messages"]]
        if not self.switches.thinking_budget or len(contents) < 2 or contents[-1][0]["type"] != "tool_result":
            return False
        return contents[-2][0]["type"] not in ("thinking", "redacted_thinking")


def _source(media: Media, content: bytes | None) -> JsonDict:
    if content is None:
        return {"type": "url", "url": media.url}
    return {"type": "base64", "media_type": media.media_type, "data": base64_of(content)}


# JSON schemas of answers in the subset that Anthropic accepts. As in Anthropic's own SDK, the description names the
# rest.

ACCEPTED = frozenset({"type", "title", "description", "enum", "const", "required", "$ref"})
ACCEPTED_VALUES = {
    "format": ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
    "minItems": (0, 1),
}
SCHEMA_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions"})
IGNORED = frozenset({"additionalProperties", "$schema", "$id"})


def schema_of_answer(schema: JsonObject) -> JsonDict:
    written: JsonDict = {}
    described: list[str] = []
    for name, value in schema.items():
        if name in SCHEMA_LISTS:
            written[SCHEMA_LISTS[name]] = [_inner_schema(one) for one in items(value)]
        elif name in SCHEMA_MAPS:
            written[name] = {inner: _inner_schema(one) for inner, one in obj(value).items()}
        elif name == "items":
            written[name] = _inner_schema(value)
        elif name in ACCEPTED or value in ACCEPTED_VALUES.get(name, ()):
            written[name] = value
        elif name not in IGNORED:
            described.append(f"{name}: {value}")
    if described:
        written["description"] = join_texts([string(schema.get("description")), f"{{{', '.join(described)}}}"])
    return {**written, "additionalProperties": False} if schema.get("type") == "object" else written


def _inner_schema(schema: object) -> object:
    return schema_of_answer(schema) if isinstance(schema, Mapping) else schema
