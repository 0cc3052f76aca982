"""A question to a provider and what came back, for tests."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field

from history.answers.assembly import Assembler
from history.answers.events import Event
from history.context.values import Context, ContextEntry, Role
from history.dialects import CallOptions
from history.entries import ModelOutput, Part, Text, ToolDefinition, ToolRequest, ToolResult
from relay.errors import ProviderError
from relay.providers.base import CallNotes
from relay.providers.http import HttpProvider

CPU = ToolDefinition(name="cpu", description="Load", parameters={"type": "object", "properties": {}})
DISK = ToolDefinition(name="disk", description="Space", parameters={"type": "object", "properties": {}})


def user_message(text: str) -> ContextEntry:
    return ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=text),), origin=(1,))


def model_answer(*parts: Part) -> ContextEntry:
    return ContextEntry(role=Role.MODEL_OUTPUT, parts=parts, origin=(2,))


def results(*calls: ToolRequest) -> ContextEntry:
    given = tuple(ToolResult(call_id=call.call_id, name=call.name, parts=(Text(text="42"),)) for call in calls)
    return ContextEntry(role=Role.TOOL_RESULT, results=given, origin=(3,))


def context(*entries: ContextEntry, tools: tuple[ToolDefinition, ...] = ()) -> Context:
    return Context(entries=entries or (user_message("Hello?"),), system="Be brief.", tools=tools)


@dataclass
class ProviderCall:
    """What one call gave: its events, its error if there was one, what was noted."""

    events: list[Event] = field(default_factory=list)
    error: ProviderError | None = None
    notes: CallNotes = field(default_factory=CallNotes)

    @property
    def output(self) -> ModelOutput:
        return Assembler().feed_all(self.events).output()

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.output.parts if isinstance(part, Text))


async def call_provider(provider: HttpProvider, sent_context: Context | None = None, **options: object) -> ProviderCall:
    result = ProviderCall()
    wanted = CallOptions(**{"model": "model", "max_tokens": 100, **options})  # type: ignore[arg-type]
    try:
        async with aclosing(provider.call(sent_context or context(), wanted, notes=result.notes)) as events:
            async for event in events:
                result.events.append(event)
    except ProviderError as error:
        result.error = error
    return result
