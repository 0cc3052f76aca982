"""Which tools there are: one for each module in `built_in`, and those of MCP servers."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from relay.tools import built_in
from relay.tools.base import Tool

Toolbox = Mapping[str, Tool]  # tools by name


def toolbox(names: Sequence[str]) -> Toolbox:
    """The tools with these names, in this order. Asks the database where one of them is none of ours."""
    there = all_tools()
    if foreign := [name for name in names if name not in there]:
        from relay.tools.mcp.servers import tools_named  # which makes tools of its own, and so imports us

        there = {**there, **{tool.name: tool for tool in tools_named(foreign)}}
    return {name: there[name] for name in names if name in there}


@cache
def all_tools() -> Toolbox:
    """Those that come with Parley."""
    modules = [import_module(f"{built_in.__name__}.{found.name}") for found in iter_modules(built_in.__path__)]
    tools = [value for module in modules for value in vars(module).values() if isinstance(value, Tool)]
    names = sorted(tool.name for tool in tools)
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two tools have the name {twice[0]}")
    return {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
