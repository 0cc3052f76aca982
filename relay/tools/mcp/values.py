"""An MCP server as a plain value, and what can go wrong with one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """`command` starts a program here and speaks with it by its stdin and stdout; else it is reached at `url`.

    `environment` and `headers` hold secrets: they are shown nowhere, not even in an error.
    """

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = 30.0


class McpFailure(Exception):
    """The server could not be used; the text says why to staff and to models, without its secrets."""


class McpGone(McpFailure):
    """It did not answer, or ended in the middle: whoever comes next begins with a new connection."""
