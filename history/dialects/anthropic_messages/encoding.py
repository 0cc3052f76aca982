"""Request encoder for Anthropic Messages.

The rules that matter: all results of one answer stand first in one user message; tool_use comes last in an assistant
message; ids have a narrow alphabet; empty texts are refused; thinking goes back as it was signed, or not at all.
"""

from __future__ import annotations

import re
from itertools import groupby

from history.context import Context
from history.context.entries import ContextEntry, Role
from history.dialects.anthropic_messages.replies import DIALECT, PROVIDER
from history.dialects.anthropic_messages.schemas import schema_of_answer
from history.dialects.encoder import Json, Writing, base64_of, schema_of, untold_error
from history.dialects.json_access import without_empty
from history.dialects.types import CallOptions, Encoded, LossCode
from history.entries import Media, Part, Reasoning, Text, ToolRequest, ToolResult, text_of

PATH = "/v1/messages"
# Anthropic insists on a limit; this one is what its smallest models can write.
MAX_TOKENS = 4_096
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# How many tokens an older model may think with, and what is left to it for the answer itself.
BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_000}
EFFORTS = {"minimal": "low"}
REFUSED_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
ID_LIMIT = 128


def encode(context: Context, options: CallOptions) -> Encoded:
    writer = _Writer(options, dialect=DIALECT, vendor=PROVIDER)
    context = writer.with_something_said(context)
    body = {
        "model": options.model,
        "max_tokens": options.max_tokens or MAX_TOKENS,
        **without_empty(system=context.system),
        "messages": writer.messages(context),
        **writer.tools(context),
        **without_empty(stop_sequences=list(options.stop), temperature=options.temperature, top_p=options.top_p),
        **({"stream": True} if options.stream else {}),
    }
    writer.think(body)
    writer.form(body)
    if body["max_tokens"] != options.max_tokens:
        writer.supplied["max_tokens"] = body["max_tokens"]
    return writer.encoded(context, body, path=PATH)


class _Writer(Writing):
    def messages(self, context: Context) -> list[Json]:
        written = [self.message(entry) for entry in self.entries(context)]
        merged = []
        for role, group in groupby(written, key=lambda message: message[0]):
            content = [block for _, blocks in group for block in blocks]
            if content:
                merged.append({"role": role, "content": content})
        return _without_trailing_space(_merged_again(merged))

    def message(self, entry: ContextEntry) -> tuple[str, list[Json]]:
        if entry.role is Role.MODEL_OUTPUT:
            role, blocks = "assistant", self.answer(entry)
        elif entry.role is Role.TOOL_RESULT:
            role, blocks = "user", self.results(entry)
        elif entry.role is Role.SYSTEM:
            role, blocks = self.instruction(entry)
        else:
            role, blocks = "user", self.input_blocks(entry)
        if not blocks:
            self.lose(LossCode.MESSAGE_LEFT_OUT)
        return role, blocks

    def instruction(self, entry: ContextEntry) -> tuple[str, list[Json]]:
        if self.switches.inline_system:
            return "system", self.blocks([Text(text=text_of(entry.parts))])
        return "user", [self.text(self.instruction_as_text(entry))]

    def answer(self, entry: ContextEntry) -> list[Json]:
        """Calls come last: what stands behind a call is taken for a missing result."""
        blocks = [block for part in entry.parts if (block := self.said(part))]
        ordered = sorted(blocks, key=lambda block: block["type"] == "tool_use")
        if ordered != blocks:
            self.lose(LossCode.PARTS_REORDERED)
        return ordered

    def said(self, part: Part) -> Json | None:
        match part:
            case Text():
                return self.block(part)
            case Reasoning():
                return _thinking(part) if self.may_return(part) else None
            case ToolRequest():
                call_id = self.call_id(part.call_id, limit=ID_LIMIT, refused=REFUSED_IN_IDS)
                return {"type": "tool_use", "id": call_id, "name": part.name, "input": self.arguments_object(part)}
            case _:
                self.leave_out(part)
                return None

    def results(self, entry: ContextEntry) -> list[Json]:
        """The live screen is part of the last result, so that nothing but results stands in the message."""
        blocks = [self.result(result) for result in entry.results]
        if blocks and (screen := self.live_screen(entry)):
            blocks[-1]["content"] = [*blocks[-1].get("content", []), self.text(screen)]
        return blocks

    def result(self, result: ToolResult) -> Json:
        call_id = self.call_id(result.call_id, limit=ID_LIMIT, refused=REFUSED_IN_IDS)
        told = [*result.parts, Text(text=untold_error(result))]
        content = [block for part in told if (block := self.block_in_result(part))]
        written: Json = {"type": "tool_result", "tool_use_id": call_id, **without_empty(content=content)}
        return written if result.status == "success" else {**written, "is_error": True}

    def block_in_result(self, part: Part) -> Json | None:
        if isinstance(part, Media) and not self.switches.media_in_results:
            return self.text(self.note(part, LossCode.MEDIA_NOT_CARRIED))
        return self.block(part)

    def text(self, text: str) -> Json:
        return {"type": "text", "text": text}

    def is_nothing(self, text: str) -> bool:
        """Anthropic refuses a text with nothing to see in it."""
        return not text.strip()

    def media(self, media: Media) -> Json:
        content = self.bytes_of(media)
        self.without_detail(media)
        if content is None and not media.url:
            return self.text(self.note(media, LossCode.MEDIA_UNAVAILABLE))
        if media.media_type in IMAGES or (media.media_type.startswith("image/") and content is None):
            return {"type": "image", "source": _source(media, content)}
        if media.media_type == "application/pdf":
            return {"type": "document", "source": _source(media, content), **without_empty(title=media.name)}
        if media.media_type.startswith("text/") and content is not None:
            source = {"type": "text", "media_type": "text/plain", "data": content.decode("utf-8", "replace")}
            return {"type": "document", "source": source, **without_empty(title=media.name)}
        return self.text(self.note(media, LossCode.MEDIA_NOT_CARRIED))

    def tools(self, context: Context) -> Json:
        offered = list(self.offered(context.tools))
        if not offered:
            return {}
        tools = [
            hosted
            or {"name": tool.name, **without_empty(description=tool.description), "input_schema": schema_of(tool)}
            for tool, hosted in offered
        ]
        return {"tools": tools, **without_empty(tool_choice=self.tool_choice(self.forced(tool for tool, _ in offered)))}

    def tool_choice(self, forced: str) -> Json | None:
        """Whether several may be called at once is a part of it; who may call none is not asked."""
        is_single = self.options.parallel_tools is False and self.options.tool_choice != "none"
        single = {"disable_parallel_tool_use": True} if is_single else {}
        if forced:
            return {"type": "tool", "name": forced, **single}
        kinds = {"": "auto", "auto": "auto", "none": "none", "required": "any"}
        choice = self.options.tool_choice
        return {"type": kinds[choice], **single} if choice or single else None

    def think(self, body: Json) -> None:
        """Thinking and a temperature exclude each other; so do thinking and a tool that must be used."""
        effort = self.options.reasoning_effort
        if not effort or effort == "none":
            return
        if self.must_not_think(body):
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

    def form(self, body: Json) -> None:
        form = self.options.form
        if form is not None and form.schema is None:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="response_format")
        elif form is not None and form.schema is not None:
            told = {"type": "json_schema", "schema": schema_of_answer(form.schema)}
            body["output_config"] = {**body.get("output_config", {}), "format": told}

    def must_not_think(self, body: Json) -> bool:
        """With a budget, an answer that waits for its results must have begun with thinking, or none is allowed."""
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            return True
        contents = [message["content"] for message in body["messages"]]
        if not self.switches.thinking_budget or len(contents) < 2 or contents[-1][0]["type"] != "tool_result":
            return False
        return contents[-2][0]["type"] not in ("thinking", "redacted_thinking")


def _thinking(part: Reasoning) -> Json:
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.redacted}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _source(media: Media, content: bytes | None) -> Json:
    if content is None:
        return {"type": "url", "url": media.url}
    return {"type": "base64", "media_type": media.media_type, "data": base64_of(content)}


def _merged_again(messages: list[Json]) -> list[Json]:
    """Where a message between two of the same role was left out, they have become neighbours."""
    merged: list[Json] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += message["content"]
        else:
            merged.append(message)
    return merged


def _without_trailing_space(messages: list[Json]) -> list[Json]:
    """An answer that the model is to go on with must not end in white space."""
    if messages and messages[-1]["role"] == "assistant" and messages[-1]["content"][-1]["type"] == "text":
        last = messages[-1]["content"][-1]
        messages[-1]["content"][-1] = {**last, "text": last["text"].rstrip()}
    return messages
