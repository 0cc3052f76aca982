"""Agents in an export of everything: the record knows them by name alone, so they are a section of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from history.formats.jsonl import ExtraSection
from history.text.lazy import LazyText, gettext_noop
from relay.models import Agent

FIELDS = tuple(field.name for field in Agent._meta.concrete_fields if not field.primary_key)


def export_agents() -> Iterator[dict[str, Any]]:
    for agent in Agent.objects.order_by("name"):
        yield {name: getattr(agent, name) for name in FIELDS}


def import_agent(value: Mapping[str, Any]) -> str:
    """Make the agent again; one that is here already is left as it is."""
    fields = {name: item for name, item in value.items() if name in FIELDS}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        return gettext_noop("an agent without a name")
    if Agent.objects.filter(name=name).exists():
        return LazyText(gettext_noop("an agent called %(name)s is here already"), name=name)
    if fields.get("is_default") and Agent.objects.filter(is_default=True).exists():
        fields["is_default"] = False
    Agent.objects.create(**fields)
    return ""


SECTION = ExtraSection("agent", export_agents, import_agent)
