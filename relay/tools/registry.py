"""Which tools there are: one for each module in `built_in`, and those of MCP servers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from history.entries import ToolDefinition
from relay.tools import built_in
from relay.tools.base import Tool


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one agent. `unknown`: names for which there is no tool, or none any more."""

    tools: tuple[Tool, ...] = ()
    unknown: tuple[str, ...] = ()

    def get(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        return tuple(tool.definition for tool in self.tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)


def toolbox(names: Sequence[str]) -> Toolbox:
    """The tools with these names, in this order, each once. Asks the database where one of them is none of ours."""
    there = {tool.name: tool for tool in all_tools()}
    wanted = list(dict.fromkeys(names))
    if foreign := [name for name in wanted if name not in there]:
        from relay.tools.mcp.servers import tools_named  # which makes tools of its own, and so imports us

        there |= {tool.name: tool for tool in tools_named(foreign)}
    return Toolbox(
        tools=tuple(there[name] for name in wanted if name in there),
        unknown=tuple(name for name in wanted if name not in there),
    )


@cache
def all_tools() -> Toolbox:
    """Those that come with Parley."""
    modules = [import_module(f"{built_in.__name__}.{found.name}") for found in iter_modules(built_in.__path__)]
    tools = [value for module in modules for value in vars(module).values() if isinstance(value, Tool)]
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two tools have the name {twice[0]}")
    return Toolbox(tuple(sorted(tools, key=lambda tool: tool.name)))
