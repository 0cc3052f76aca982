"""Functions in the place of tools that only OpenAI has words for and the caller runs itself: all vendors take these.

A tool that takes plain text (``custom``) becomes a function with one text; those of a group (``namespace``) become
functions beside the others. Calls of them go back to the caller in the form in which it knows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from history.dialects.json_access import obj, objs, parsed, string
from history.dialects.types import joined
from history.entries import ToolDefinition

# What a tool that takes plain text is called with is an object to us.
INPUT = "input"
TEXT = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The function, and how the caller knows what it stands for. `grammar`: the vendor would have kept to one."""

    function: ToolDefinition
    namespace: str = ""
    takes_text: bool = False
    grammar: bool = False

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.function.name}" if self.namespace else self.function.name


def stand_ins_for(tool: Mapping[str, Any], *, namespace: str = "", about: str = "") -> Iterator[StandIn]:
    """Nothing for a tool that its vendor runs."""
    match tool.get("type"):
        case "namespace" if not namespace:
            group = string(tool.get("name"))
            for inner in objs(tool.get("tools")):
                yield from stand_ins_for(inner, namespace=group, about=f"{group}: {string(tool.get('description'))}")
        case "custom":
            told = obj(tool.get("custom")) or tool
            form = obj(told.get("format"))
            form = obj(form.get("grammar")) or form
            definition = string(form.get("definition"))
            grammar = (
                f"The input follows this grammar ({string(form.get('syntax'))}):\n{definition}" if definition else ""
            )
            described = joined([string(told.get("description")), grammar, about])
            function = ToolDefinition(name=string(told.get("name")), description=described, parameters=TEXT)
            yield StandIn(function=function, namespace=namespace, takes_text=True, grammar=bool(grammar))
        case "function" if namespace:
            described = joined([string(tool.get("description")), about])
            parameters = obj(tool.get("parameters"))
            function = ToolDefinition(name=string(tool.get("name")), description=described, parameters=parameters)
            yield StandIn(function=function, namespace=namespace)


def input_of(arguments: str) -> str:
    """The plain text that a tool is called with; where a model has written anything else, that.

    An empty object is a call with nothing.
    """
    try:
        found = parsed(arguments)
    except ValueError:
        return arguments
    if found == {}:
        return ""
    given = obj(found)
    texts = [text for text in given.values() if isinstance(text, str)]
    return string(given.get(INPUT)) or (texts[0] if len(given) == len(texts) == 1 else arguments)
