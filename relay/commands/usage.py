"""Slash commands and their usage: of tools from their schemas, of our own commands from a table."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_stubs_ext import StrOrPromise

from history.entries import EMPTY, JsonObject, ToolRequest, thaw
from relay.tools.base import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A parsed command. `is_tool`: the name is a tool's, and the arguments fit its schema."""

    name: str
    arguments: JsonObject = field(default_factory=lambda: EMPTY)
    is_tool: bool = False

    def as_request(self, call_id: str) -> ToolRequest:
        """As a model would request it."""
        arguments = json.dumps(thaw(self.arguments), ensure_ascii=False)
        return ToolRequest(call_id=call_id, name=self.name, arguments=arguments)


class BadCommand(ValueError):
    """It begins like a command but is not valid. The text says why, and `usage` how to write it."""

    def __init__(self, problem: str, *, usage: str = "") -> None:
        super().__init__(problem + " " + _("Usage: %(usage)s") % {"usage": usage} if usage else problem)
        self.problem, self.usage = problem, usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One line of the help, and of the completions of the composer."""

    name: str
    usage: str
    description: str


OWN: dict[str, tuple[StrOrPromise, StrOrPromise]] = {
    "help": ("", gettext_lazy("Shows these commands")),
    "history": ("[20]", gettext_lazy("Shows the newest messages")),
    "rollback": ("[1|#12]", gettext_lazy("Goes back a number of turns, or to an entry; nothing is lost")),
    "fork": ("[#12]", gettext_lazy("Continues in a new session, from here or from an entry")),
    "context": (gettext_lazy("add folder"), gettext_lazy("Shows the agent what is in a folder")),
    "compress": (gettext_lazy("[model]"), gettext_lazy("Summarises older messages for the model; nothing is lost")),
    "title": (gettext_lazy("words…"), gettext_lazy("Gives this session a title")),
}


def suggestions(tools: Iterable[Tool]) -> list[Suggestion]:
    """All commands, our own first."""
    own = [(name, own_usage(name), description) for name, (_usage, description) in OWN.items()]
    others = [(tool.name, tool_usage(tool), tool.summary) for tool in usable(tools).values()]
    return [Suggestion(name=name, usage=usage, description=str(about)) for name, usage, about in own + others]


def usable(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools that a person can use: to finish a task, to ask the person or to call an agent is for agents alone."""
    meant = (tool for tool in tools if not tool.directive and not tool.is_for_agents)
    return {tool.name: tool for tool in meant if tool.name not in OWN}


def own_usage(name: str) -> str:
    return f"/{name} {OWN[name][0]}".strip()


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


def _values(schema: JsonObject) -> str:
    if schema.get("type") == "boolean":
        return "yes|no"
    return "|".join(map(str, schema.get("enum", ())))


def free_text(tool: Tool) -> str:
    """The parameter that takes all words without a name: the first, if it takes any text and no other is required."""
    properties = tool.parameters.get("properties", {})
    first = next(iter(properties), "")
    is_free = first and properties[first].get("type") == "string" and "enum" not in properties[first]
    return first if is_free and set(tool.parameters.get("required", ())) <= {first} else ""
