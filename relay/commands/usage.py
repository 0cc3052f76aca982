"""What a command is, and how it is written: made of a tool's schema, or by hand for the commands of the house."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_stubs_ext import StrOrPromise

from history.entries import EMPTY, ToolRequest, thaw
from relay.tools.base import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What was asked for. `is_tool`: the name is a tool's, and the arguments fit its schema."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    is_tool: bool = False

    def as_request(self, call_id: str) -> ToolRequest:
        """The same as a model would have asked for it."""
        arguments = json.dumps(thaw(self.arguments), ensure_ascii=False)
        return ToolRequest(call_id=call_id, name=self.name, arguments=arguments)


class BadCommand(ValueError):
    """It begins like a command and is none; the text says why, for people, and `usage` how it is written."""

    def __init__(self, problem: str, *, usage: str = "") -> None:
        super().__init__(problem + " " + _("Write: %(usage)s") % {"usage": usage} if usage else problem)
        self.problem, self.usage = problem, usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One line of the help, and one of what the composer offers while somebody types."""

    name: str
    usage: str
    description: str


HOUSE: dict[str, tuple[StrOrPromise, StrOrPromise]] = {
    "help": ("", gettext_lazy("Shows these commands")),
    "history": ("[20]", gettext_lazy("Shows the newest messages")),
    "rollback": ("[1|#12]", gettext_lazy("Goes back so many turns, or to an entry; nothing is lost")),
    "fork": ("[#12]", gettext_lazy("Goes on in a new session, from here or from an entry")),
    "context": (gettext_lazy("add folder"), gettext_lazy("Tells the agent what is in a folder")),
    "compress": (gettext_lazy("[model]"), gettext_lazy("Summarises older messages for the model; nothing is lost")),
    "title": (gettext_lazy("words…"), gettext_lazy("Gives this session a title")),
}


def suggestions(tools: Iterable[Tool]) -> list[Suggestion]:
    """All commands, those of the house first."""
    house = [
        Suggestion(name=name, usage=house_usage(name), description=str(description))
        for name, (_usage, description) in HOUSE.items()
    ]
    return house + [
        Suggestion(name=tool.name, usage=tool_usage(tool), description=str(tool.summary))
        for tool in usable(tools).values()
    ]


def usable(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools that a person can use: to finish a task, to ask the person or to call an agent is for agents alone."""
    meant = (tool for tool in tools if not tool.directive and not tool.is_for_agents)
    return {tool.name: tool for tool in meant if tool.name not in HOUSE}


def house_usage(name: str) -> str:
    return f"/{name} {HOUSE[name][0]}".strip()


def tool_usage(tool: Tool) -> str:
    return " ".join([f"/{tool.name}", *_parameters(tool)])


def _parameters(tool: Tool) -> Iterator[str]:
    free = free_text(tool)
    required = tool.parameters.get("required", ())
    for name, schema in tool.parameters.get("properties", {}).items():
        if name == free:
            shown = f"{name}…"
        elif free:
            shown = f"{name}={_values(schema) or schema.get('default') or '…'}"
        else:
            shown = _values(schema) or name
        yield shown if name in required else f"[{shown}]"


def _values(schema: Mapping[str, Any]) -> str:
    if schema.get("type") == "boolean":
        return "yes|no"
    return "|".join(map(str, schema.get("enum", ())))


def free_text(tool: Tool) -> str:
    """The parameter that takes all words without a name: the first, if it takes any text and no other is required."""
    properties = tool.parameters.get("properties", {})
    first = next(iter(properties), "")
    is_free = first and properties[first].get("type") == "string" and "enum" not in properties[first]
    return first if is_free and set(tool.parameters.get("required", ())) <= {first} else ""
