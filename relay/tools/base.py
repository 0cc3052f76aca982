"""Tools: name, description, function and context of a call, the schema of the arguments, and which tools there are.

A typed signature becomes a JSON schema, and a model's arguments are held against it. Every vendor knows another part of
the standard, so there is no `null`, no `anyOf` and no reference: a parameter that may be left out is not required, and
a `null` for it means just that. Other keywords of foreign schemas are ignored.
"""

import inspect
import json
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django_stubs_ext import StrOrPromise

from history.entries import Entry, JsonObject, Media, ToolDefinition, ToolResults
from history.models import ApiKey
from history.search.queries import parse_time
from relay.models import User
from relay.tools import built_in

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
    how_to_open: str = "first open its page and give a reason"
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


def zone_of(user: User) -> ZoneInfo:
    person = user.owner if isinstance(user, ApiKey) else user
    return ZoneInfo(getattr(person, "time_zone", "") or settings.TIME_ZONE)


def find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ToolError(f"There is no time zone {name[:60]}. Write a name such as Europe/Berlin.") from None


def read_time(text: str, *, zone: ZoneInfo, is_end: bool = False) -> datetime:
    """Parse a day or time, in the user's zone unless it names one. Raises ToolError."""
    try:
        return parse_time(text.strip(), zone=zone, is_end=is_end)
    except ValueError:
        raise ToolError(f"{text[:60]} is not a valid time. Write 2026-11-01 or 2026-11-01T14:00.") from None


_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_WORDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPES = {"string": str, "integer": int, "number": int, "array": list, "object": Mapping, "null": types.NoneType}
SHOWN_CHARS = 80


class BadArguments(ValueError):
    """The text says to the caller what is wrong."""


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The schema of all parameters but the first, which is the context that every tool gets."""
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    properties = {one.name: _property(hints.get(one.name, str), one.default) for one in parameters}
    required = [one.name for one in parameters if one.default is one.empty]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _property(hint: Any, default: Any) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if get_origin(hint) is Annotated:
        hint, description, *_ = get_args(hint)
        described["description"] = description
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not types.NoneType]
        hint = kinds[0] if len(kinds) == 1 else hint
    schema = _schema(hint) | described
    return schema if default is inspect.Parameter.empty or default is None else schema | {"default": default}


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _NAMES:
        return {"type": _NAMES[hint]}
    if get_origin(hint) is Literal:
        values = get_args(hint)
        return {"type": _NAMES[type(values[0])], "enum": list(values)}
    if get_origin(hint) is list:
        return {"type": "array", "items": _schema(get_args(hint)[0])}
    raise TypeError(f"no schema can be made of {hint}: write str, int, float, bool, Literal or a list of them")


def check_arguments(schema: JsonObject, arguments: object) -> dict[str, Any]:
    """The arguments as the function takes them; raises BadArguments with everything that is wrong with them."""
    if not isinstance(arguments, Mapping):
        raise BadArguments(f"the arguments must be an object, not {_shown(arguments)}")
    required = schema.get("required", ())
    present = {name: value for name, value in arguments.items() if value is not None or name in required}
    if problems := list(_problems(schema, present, "")):
        raise BadArguments("; ".join(problems))
    properties = schema.get("properties", {})
    return {name: _converted(properties.get(name, {}), value) for name, value in present.items()}


def _problems(schema: JsonObject, value: object, place: str) -> Iterator[str]:
    kinds = _kinds(schema)
    if kinds and not any(_is(kind, value) for kind in kinds):
        yield f"{place or 'the value'} must be {' or '.join(_WORDS[kind] for kind in kinds)}, not {_shown(value)}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place or 'the value'} must be one of {', '.join(map(str, schema['enum']))}, not {_shown(value)}"
    elif isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield from _problems(schema.get("items", {}), item, f"item {number} of {place or 'the list'}")
    elif isinstance(value, Mapping):
        yield from _problems_of_object(schema, value, f"{place}." if place else "")


def _problems_of_object(schema: JsonObject, value: Mapping[str, Any], before: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{before}{name} is missing"
    for name, item in value.items():
        if name in properties:
            yield from _problems(properties[name], item, f"{before}{name}")
        elif schema.get("additionalProperties", True) is False:
            yield f"there is no parameter {before}{name[:SHOWN_CHARS]}; there are: {', '.join(properties) or 'none'}"


def _kinds(schema: JsonObject) -> list[str]:
    kinds = schema.get("type", ())
    return [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind in _WORDS]


def _is(kind: str, value: object) -> bool:
    """JSON knows one kind of number, so 3.0 is a whole one; and in Python True is a number."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    return isinstance(value, _TYPES.get(kind, ()))


def _converted(schema: JsonObject, value: object) -> Any:
    return int(value) if isinstance(value, float) and _kinds(schema) == ["integer"] else value


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'the text "{value if len(value) <= SHOWN_CHARS else value[:SHOWN_CHARS] + "…"}"'
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)[:SHOWN_CHARS]


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
