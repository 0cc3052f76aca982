"""What a tool is: a name, what it is good for, the schema of its arguments, and a function that does it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from django_stubs_ext import StrOrPromise

from history.entries import Entry, Media, ToolDefinition, ToolResults
from relay.tools.schemas import schema_of

Directive = Literal["", "finish_task", "ask_user", "compress"]
Run = Callable[..., "str | Output | Awaitable[str | Output]"]
Panel = Callable[["ToolContext"], str]

SECONDS = 30.0
OUTPUT_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool found, where that is more than a text: pictures, whose bytes are stored already."""

    text: str
    media: tuple[Media, ...] = ()


class ToolError(Exception):
    """The tool could not do what was asked, and its text tells the model why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """On whose behalf: a tool sees only what this person, or this key of theirs, may see.

    `call_id` is the call that it answers.
    `ask_agent` lets another agent do something; None: nobody is in the middle of a turn here.
    """

    user: Any
    session_id: UUID
    agent: str = ""
    # The person typed the call; no agent asked for it.
    by_hand: bool = False
    # What has to be done before somebody else's session can be read.
    how_to_open: str = "the person has to open its page and say why first"
    call_id: str = ""
    ask_agent: Callable[..., Awaitable[str]] | None = None
    kept: list[tuple[str, Entry]] = field(default_factory=list)

    def keep(self, entry: Entry) -> None:
        """Store this behind the results of the answer that calls us, if our call succeeds."""
        self.kept.append((self.call_id, entry))

    def kept_by(self, results: ToolResults) -> list[Entry]:
        """What is to be stored behind these results, in the order of the calls."""
        done = dict.fromkeys(result.call_id for result in results.results if result.status == "success")
        return [entry for call_id in done for asked_by, entry in self.kept if asked_by == call_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """`run` is called with the context and the arguments by name: in a thread, or in the loop if it is async.

    `timeout` in seconds. A `directive` tells the agent's loop what a successful call means besides its result.
    `description` is for models, `summary` for people and in their language. `panel` shows, at once, how things are now:
    an agent that has a live screen is told it with every call. `is_for_agents`: no slash command.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Run
    timeout: float = SECONDS
    output_chars: int = OUTPUT_CHARS
    directive: Directive = ""
    summary: StrOrPromise = ""
    panel: Panel | None = None
    is_for_agents: bool = False

    @property
    def definition(self) -> ToolDefinition:
        """As a model is told of it."""
        return ToolDefinition(name=self.name, description=self.description, parameters=self.parameters)


def tool(
    *,
    name: str = "",
    timeout: float = SECONDS,
    output_chars: int = OUTPUT_CHARS,
    directive: Directive = "",
    summary: StrOrPromise = "",
    panel: Panel | None = None,
    is_for_agents: bool = False,
) -> Callable[[Run], Tool]:
    """Make a tool of a function: its name, its docstring and its signature say what a model has to know."""

    def made(function: Run) -> Tool:
        description = inspect.cleandoc(function.__doc__ or "")
        return Tool(
            name=name or function.__name__,
            description=description,
            parameters=schema_of(function),
            run=function,
            timeout=timeout,
            output_chars=output_chars,
            directive=directive,
            summary=summary or description.partition("\n")[0],
            panel=panel,
            is_for_agents=is_for_agents,
        )

    return made
