"""Agents as TOML files, and as a section of JSONL exports.

A file holds one agent with everything except whether it is the default. Empty values are left out, and missing values
are empty, so a file that was written and read again gives the same agent. A bad file is refused with all reasons at
once. Unknown names are only reported, because the file may come from a newer version or another installation.
"""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tomli_w
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext as _

from history.db.transactions import writing
from history.entries import JsonObject
from history.formats.jsonl import ExtraSection
from history.text.lazy import LazyText, gettext_noop
from relay.models import Agent
from relay.tools.registry import toolbox

MOST_BYTES = 1_000_000

# Table of the file → name there → field of the agent.
LAYOUT: dict[str, dict[str, str]] = {
    "": {name: name for name in ("name", "label", "instruction", "tools", "agents")},
    "models": {
        "planner": "planner_model",
        "executor": "model",
        "reviewer": "reviewer_model",
        "temperature": "temperature",
        "reasoning_effort": "reasoning_effort",
    },
    "limits": {name: name for name in ("max_steps", "max_turns", "max_answer_tokens", "max_turn_tokens")},
    "surroundings": {name: name for name in ("environment", "folders", "live_screen")},
    "compression": {name: name for name in ("compress_at", "keep_turns")},
}
PLACES = {field: f"{table}.{name}".lstrip(".") for table, names in LAYOUT.items() for name, field in names.items()}


class InvalidAgentFile(ValueError):
    """`reasons` say what is wrong with it, each in a line."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAgent:
    """The agent of a file, not stored; `remarks` name what is not known here."""

    agent: Agent
    remarks: tuple[str, ...] = ()


def agent_to_toml(agent: Agent) -> str:
    """The agent as a file."""
    tables = {
        table: {name: value for name, field in names.items() if not _is_empty(value := getattr(agent, field))}
        for table, names in LAYOUT.items()
    }
    document = tables.pop("") | {name: table for name, table in tables.items() if table}
    # A long string may not hold the line ends of Windows: they would be read as plain ones.
    return tomli_w.dumps(document, multiline_strings="\r" not in agent.instruction)


def parse_agent(content: bytes) -> ParsedAgent:
    """The agent that a file describes; raises InvalidAgentFile."""
    fields, remarks, wrong = _fields(_parsed(content))
    if wrong:
        raise InvalidAgentFile(*wrong)
    agent = Agent(**fields)
    if refused := list(_refused(agent)):
        raise InvalidAgentFile(*refused)
    return ParsedAgent(agent=agent, remarks=(*remarks, *_not_here(agent)))


def save_agent(found: ParsedAgent, *, replacing: bool) -> Agent:
    """Keep it; raises InvalidAgentFile if there is one of this name and it is not to be replaced."""
    agent = found.agent
    with writing():
        there = Agent.objects.filter(name=agent.name).first()
        if there is not None and not replacing:
            raise InvalidAgentFile(_("Agent %(name)s already exists.") % {"name": agent.name})
        if there is not None:
            agent.pk, agent.is_default = there.pk, there.is_default
        agent.save()
    return agent


def _is_empty(value: object) -> bool:
    """0 is a value."""
    return value is None or value is False or value in ("", [])


def _parsed(content: bytes) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise InvalidAgentFile(_("The file is too large for an agent."))
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise InvalidAgentFile(_("This is not a UTF-8 text file.")) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidAgentFile(_("This is not valid TOML: %(why)s") % {"why": str(error)[:300]}) from None


def _fields(document: JsonObject) -> tuple[dict[str, Any], list[str], list[str]]:
    """Fields of the agent, remarks on unknown names, and errors of type."""
    fields: dict[str, Any] = {}
    remarks: list[str] = []
    wrong: list[str] = []
    for table, name, value in _values(document):
        place, field = f"{table}.{name}".lstrip("."), LAYOUT[table].get(name)
        if field is None and name in LAYOUT:
            wrong.append(place + ": " + _("expected a table."))
        elif field is None:
            remarks.append(_("%(name)s is unknown and was left out.") % {"name": place[:100]})
        elif problem := _kind_problem(field, value):
            wrong.append(f"{place}: {problem}")
        else:
            fields[field] = value
    return fields, remarks, wrong


def _values(document: JsonObject) -> Iterator[tuple[str, str, Any]]:
    for name, value in document.items():
        if name in LAYOUT and isinstance(value, dict):
            yield from ((name, inner, item) for inner, item in value.items())
        else:
            yield "", name, value


def _kind_problem(field: str, value: object) -> str:
    """Why a value cannot stand in a field, if it cannot: TOML says what is a number and what is a text."""
    kind = Agent._meta.get_field(field)
    if isinstance(kind, models.JSONField):
        is_list = isinstance(value, list) and all(_is_text(item) for item in value)
        return "" if is_list else _("expected a list of texts.")
    if isinstance(kind, models.BooleanField):
        return "" if isinstance(value, bool) else _("expected true or false.")
    if isinstance(kind, models.FloatField):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return "" if is_number else _("expected a number.")
    if isinstance(kind, models.IntegerField):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return "" if is_whole else _("expected a whole number.")
    return "" if _is_text(value) else _("expected a text.")


def _is_text(value: object) -> bool:
    """One that every database takes."""
    return isinstance(value, str) and "\0" not in value


def _refused(agent: Agent) -> Iterator[str]:
    """What the fields themselves say: lengths, ranges, how a name is written."""
    try:
        agent.clean_fields()
    except ValidationError as error:
        for field, words in error.message_dict.items():
            yield from (f"{PLACES.get(field, field)}: {word}" for word in words)


def _not_here(agent: Agent) -> Iterator[str]:
    for name in toolbox(agent.tools).unknown:
        yield _("There is no tool %(name)s. The agent works without it.") % {"name": name[:100]}
    known = {agent.name, *Agent.objects.filter(name__in=agent.agents).values_list("name", flat=True)}
    for name in agent.agents:
        if name not in known:
            yield _("There is no agent %(name)s yet.") % {"name": name[:100]}


# The section of exports: a record knows agents only by name.


FIELDS = tuple(field.name for field in Agent._meta.concrete_fields if not field.primary_key)


def export_agents() -> Iterator[dict[str, Any]]:
    for agent in Agent.objects.order_by("name"):
        yield {name: getattr(agent, name) for name in FIELDS}


def import_agent(value: JsonObject) -> str:
    """Make the agent again; one that is here already is left as it is."""
    fields = {name: item for name, item in value.items() if name in FIELDS}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        return gettext_noop("an agent without a name")
    if Agent.objects.filter(name=name).exists():
        return LazyText(gettext_noop("agent %(name)s already exists"), name=name)
    if fields.get("is_default") and Agent.objects.filter(is_default=True).exists():
        fields["is_default"] = False
    Agent.objects.create(**fields)
    return ""


SECTION = ExtraSection("agent", export_agents, import_agent)
