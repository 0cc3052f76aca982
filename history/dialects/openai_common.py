"""Encoding and decoding that OpenAI's two dialects share: roles, tools, instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from history.context import Context
from history.context.entries import ContextEntry, Role
from history.dialects.encoder import HOSTED, HOSTED_BY, Json, Writing, kind_of, schema_of
from history.dialects.json_access import compact, items, obj, string, truth, without_empty
from history.dialects.request_decoder import RequestDecoder, extra_of
from history.dialects.types import AnswerForm, LossCode, ToolChoice
from history.entries import Part, Text, ToolDefinition, text_of

# What a tool that takes plain text is called with is an object to us, also while it comes in pieces.
INPUT_OPENS, INPUT_CLOSES = '{"input":"', '"}'
# OpenAI wants a name for the form of an answer.
UNNAMED = "answer"

CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required"}


class OpenAIWriting(Writing):
    """Each language says how a message and a function look in it, and writes answers and results its own way."""

    def message(self, role: str, blocks: list[Json]) -> Json:
        raise NotImplementedError

    def function(self, fields: Json) -> Json:
        raise NotImplementedError

    def answer(self, entry: ContextEntry) -> Iterator[Json]:
        raise NotImplementedError

    def results(self, entry: ContextEntry) -> Iterator[Json]:
        raise NotImplementedError

    def written(self, entry: ContextEntry) -> Iterator[Json]:
        if entry.role is Role.MODEL_OUTPUT:
            yield from self.answer(entry)
        elif entry.role is Role.TOOL_RESULT:
            yield from self.results(entry)
        elif entry.role is Role.SYSTEM and text_of(entry.parts):
            yield self.instruction(entry)
        elif entry.role is not Role.SYSTEM and (blocks := self.input_blocks(entry)):
            yield self.message("user", blocks)
        else:
            self.lose(LossCode.MESSAGE_LEFT_OUT)

    def instruction(self, entry: ContextEntry) -> Json:
        role = self.switches.system_role
        if role == "remove":
            return self.message("user", [self.text(self.instruction_as_text(entry))])
        return self.message(role, [self.text(text_of(entry.parts))])

    def tools(self, context: Context) -> Json:
        offered = list(self.offered(context.tools))
        if not offered:
            return {}
        name, choice = self.forced(tool for tool, _ in offered), self.options.tool_choice
        said = without_empty(tool_choice=self.function({"name": name}) if name else choice)
        tools = [hosted or self.tool(tool) for tool, hosted in offered]
        return {"tools": tools, **said, **without_empty(parallel_tool_calls=self.options.parallel_tools)}

    def form(self) -> Json | None:
        """What form the answer is to have, without the word for its kind: empty for any object, None for any text.

        OpenAI refuses a schema of anything but an object.
        """
        form = self.options.form
        if form is None or form.schema is None:
            return None if form is None else {}
        if form.schema.get("type") != "object":
            self.lose(LossCode.OPTION_NOT_CARRIED, name="response_format")
            return None
        return {"name": form.name or UNNAMED, "schema": form.schema, **without_empty(strict=form.strict)}

    def tool(self, tool: ToolDefinition) -> Json:
        described = without_empty(description=tool.description)
        return self.function({"name": tool.name, **described, "parameters": schema_of(tool)})


class OpenAIReading(RequestDecoder):
    def __init__(self, *, provider: str, at: datetime | None) -> None:
        super().__init__(provider=provider, at=at)
        self.instructions: list[str] = []

    def part(self, part: Any) -> Part:
        raise NotImplementedError

    def parts(self, content: Any) -> list[Part]:
        if isinstance(content, str):
            return [Text(text=content)] if content else []
        return [self.part(part) for part in items(content)]

    def instruction(self, parts: list[Part]) -> None:
        """What stands before anything is said is the instruction; what stands later is one in mid-conversation."""
        if self.entries:
            self.instruct(parts)
            return
        self.instructions.append(text_of(tuple(parts)))
        for part in parts:
            if not isinstance(part, Text):
                self.lose(LossCode.PART_NOT_CARRIED, type=kind_of(part))


def read_tool(tool: Mapping[str, Any], *, dialect: str) -> ToolDefinition:
    """A function in any of its three shapes: wrapped, flat, or of the older kind."""
    function = obj(tool.get("function")) or tool
    if tool.get("type") not in (None, "function") or not string(function.get("name")):
        name = string(tool.get("name")) or string(obj(tool.get("custom")).get("name")) or string(tool.get("type"))
        return ToolDefinition(name=name, extra={HOSTED: tool, HOSTED_BY: dialect})
    return ToolDefinition(
        name=string(function.get("name")),
        description=string(function.get("description")),
        parameters=obj(function.get("parameters")),
        extra=extra_of(function, "name", "description", "parameters"),
    )


def piece_of_input(text: str) -> str:
    """A piece of that object, between its opening and its close."""
    return compact(text)[1:-1]


def read_form(given: Any) -> AnswerForm | None:
    """The form of an answer, wrapped or flat; None where it may be any text."""
    kind, said = obj(given).get("type"), obj(obj(given).get("json_schema")) or obj(given)
    if kind not in ("json_object", "json_schema"):
        return None
    return AnswerForm(
        schema=obj(said.get("schema")) or None, name=string(said.get("name")), strict=truth(said.get("strict"))
    )


def session_hints(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    """What a request says about the conversation it belongs to, in its body or in its metadata."""
    places = (body, obj(body.get("metadata")), obj(body.get("client_metadata")))
    return {name: string(place.get(name)) for place in reversed(places) for name in names if string(place.get(name))}
