"""Tools: name, description, schema of the arguments, function and context of a call."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django_stubs_ext import StrOrPromise

from history.entries import Entry, JsonObject, Media, ToolDefinition, ToolResults
from history.models import ApiKey
from history.search.session_query import parse_time
from relay.models import User
from relay.tools.schemas import schema_of

Directive = Literal["", "finish_task", "ask_user", "compress"]
Run = Callable[..., "str | Output | Awaitable[str | Output]"]
Panel = Callable[["ToolContext"], str]

SECONDS = 30.0
OUTPUT_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class Output:
    """Output with more than a text: pictures, whose bytes are stored already."""

    text: str
    media: tuple[Media, ...] = ()


class ToolError(Exception):
    """The tool failed; the text says to the model why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The user or API key of a call: a tool sees only what they may see.

    `call_id` is the call that it answers; `by_hand`: the user typed it. `how_to_open`: what has to be done before a
    session of another user can be read. `ask_agent` calls another agent. None: the call is not part of a turn.
    """

    user: User
    session_id: UUID
    agent: str = ""
    by_hand: bool = False
    how_to_open: str = "the person has to open its page and say why first"
    call_id: str = ""
    ask_agent: Callable[..., Awaitable[str]] | None = None
    entries: list[tuple[str, Entry]] = field(default_factory=list)

    def keep(self, entry: Entry) -> None:
        """Store this behind the results of the answer that calls us, if our call succeeds."""
        self.entries.append((self.call_id, entry))

    def kept_by(self, results: ToolResults) -> list[Entry]:
        """What is to be stored behind these results, in the order of the calls."""
        done = dict.fromkeys(result.call_id for result in results.results if result.status == "success")
        return [entry for call_id in done for origin, entry in self.entries if origin == call_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """`run` gets the context and the arguments by name: in a thread, or in the loop if it is async.

    A `directive` tells the agent's loop what a successful call means. `description` is for models, `summary` for
    people in their language. A live screen has the `panel` of each tool. `is_for_agents`: no slash command.
    """

    name: str
    description: str
    parameters: JsonObject
    run: Run
    timeout: float = SECONDS
    output_chars: int = OUTPUT_CHARS
    directive: Directive = ""
    summary: StrOrPromise = ""
    panel: Panel | None = None
    is_for_agents: bool = False

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(name=self.name, description=self.description, parameters=self.parameters)


def tool(*, name: str = "", summary: StrOrPromise = "", **options: Any) -> Callable[[Run], Tool]:
    """Make a tool of a function: its name, docstring and signature are for models; `options`: other fields."""

    def made(function: Run) -> Tool:
        description = inspect.cleandoc(function.__doc__ or "")
        return Tool(
            name=name or function.__name__,
            description=description,
            parameters=schema_of(function),
            run=function,
            summary=summary or description.partition("\n")[0],
            **options,
        )

    return made


# Times in the zone of the user.


def zone_of(user: User) -> ZoneInfo:
    """The zone that the person chose, or the owner of the key, or that of the server."""
    person = user.owner if isinstance(user, ApiKey) else user
    return ZoneInfo(getattr(person, "time_zone", "") or settings.TIME_ZONE)


def find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ToolError(f"There is no time zone called {name[:60]}: write a name such as Europe/Berlin.") from None


def read_time(text: str, *, zone: ZoneInfo, is_end: bool = False) -> datetime:
    """Parse a day or time, in the user's zone unless it names one. Raises ToolError."""
    try:
        return parse_time(text.strip(), zone=zone, is_end=is_end)
    except ValueError:
        raise ToolError(f"{text[:60]} is not a valid time. Write 2026-11-01 or 2026-11-01T14:00.") from None
