"""Agents as TOML files, and as a section of JSONL exports.

A file holds one agent with everything except whether it is the default. Empty values are left out, and missing values
are empty, so a file that was written and read again gives the same agent. A bad file is refused with all reasons at
once. Unknown names are only reported, because the file may come from a newer version or another installation.
"""

import math
import tomllib
from collections.abc import Iterator
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
from relay.tools.base import toolbox

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


def agent_to_toml(agent: Agent) -> str:
    tables = {
        table: {name: value for name, field in names.items() if not _is_empty(value := getattr(agent, field))}
        for table, names in LAYOUT.items()
    }
    document = tables.pop("") | {name: table for name, table in tables.items() if table}
    # A long string may not hold the line ends of Windows: they would be read as plain ones.
    return tomli_w.dumps(document, multiline_strings="\r" not in agent.instruction)


def parse_agent(content: bytes) -> tuple[Agent, list[str]]:
    """The agent that a file describes, not stored, and remarks on what is unknown here. Raises InvalidAgentFile."""
    fields, remarks, errors = _parse_fields(_parse_toml(content))
    if errors:
        raise InvalidAgentFile(*errors)
    agent = Agent(**fields)
    try:
        agent.clean_fields()
    except ValidationError as error:
        found = error.message_dict.items()
        raise InvalidAgentFile(
            *(f"{PLACES.get(name, name)}: {text}" for name, texts in found for text in texts)
        ) from None
    return agent, [*remarks, *_unknown_names(agent)]


def save_agent(agent: Agent, *, replacing: bool) -> None:
    """Store it. Raises InvalidAgentFile if there is one of this name and it is not to be replaced."""
    with writing():
        if stored := Agent.objects.filter(name=agent.name).first():
            if not replacing:
                raise InvalidAgentFile(_("Agent %(name)s already exists.") % {"name": agent.name})
            agent.pk, agent.is_default = stored.pk, stored.is_default
        agent.save()


def _is_empty(value: object) -> bool:
    """0 is a value."""
    return value is None or value is False or value in ("", [])


def _parse_toml(content: bytes) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise InvalidAgentFile(_("The file is too large. Choose a file from “Export as TOML”."))
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise InvalidAgentFile(_("This is not a UTF-8 text file.")) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidAgentFile(_("This is not valid TOML: %(why)s") % {"why": str(error)[:300]}) from None


def _parse_fields(document: JsonObject) -> tuple[dict[str, Any], list[str], list[str]]:
    """Fields of the agent, remarks on unknown names, and errors of type."""
    fields: dict[str, Any] = {}
    remarks: list[str] = []
    errors: list[str] = []
    for table, name, value in _values(document):
        place, field = f"{table}.{name}".lstrip("."), LAYOUT[table].get(name)
        if field is None and name in LAYOUT:
            errors.append(place + ": " + _("expected a table."))
        elif field is None:
            remarks.append(_("%(name)s is unknown and was left out.") % {"name": place[:100]})
        elif problem := _type_error(field, value):
            errors.append(f"{place}: {problem}")
        else:
            fields[field] = value
    return fields, remarks, errors


def _values(document: JsonObject) -> Iterator[tuple[str, str, Any]]:
    for name, value in document.items():
        if name in LAYOUT and isinstance(value, dict):
            yield from ((name, inner, item) for inner, item in value.items())
        else:
            yield "", name, value


def _type_error(field: str, value: object) -> str:
    """Why a value does not fit a field, if so: TOML says what is a number and what is a text."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    match Agent._meta.get_field(field):
        case models.JSONField():
            fits, problem = isinstance(value, list) and all(map(_is_text, value)), _("expected a list of strings.")
        case models.BooleanField():
            fits, problem = isinstance(value, bool), _("expected true or false.")
        case models.FloatField():
            fits, problem = is_int or (isinstance(value, float) and math.isfinite(value)), _("expected a number.")
        case models.IntegerField():
            fits, problem = is_int, _("expected a whole number.")
        case _field:
            fits, problem = _is_text(value), _("expected a string.")
    return "" if fits else problem


def _is_text(value: object) -> bool:
    """Whether it is a text that every database takes."""
    return isinstance(value, str) and "\0" not in value


def _unknown_names(agent: Agent) -> Iterator[str]:
    there = toolbox(agent.tools)
    for name in dict.fromkeys(agent.tools):
        if name not in there:
            yield _("There is no tool %(name)s. The agent works without it.") % {"name": name[:100]}
    known = {agent.name, *Agent.objects.filter(name__in=agent.agents).values_list("name", flat=True)}
    for name in agent.agents:
        if name not in known:
            yield _("There is no agent %(name)s yet.") % {"name": name[:100]}


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
