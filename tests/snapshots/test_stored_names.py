"""Names in stored data and in other interfaces: entry fields, choices, permissions, scopes, tools, rules, metrics."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from history.access import keys
from history.entries import KINDS
from history.linting import RULES
from relay.commands import suggestions
from relay.mcp_server.tools import TOOLS
from relay.tools.base import all_tools
from tests.snapshots.conftest import Snapshot

pytestmark = pytest.mark.any_database

OUR_LABELS = ("accounts", "history", "project", "relay")


def test_entry_kinds_and_their_fields_are_as_recorded(snapshot: Snapshot) -> None:
    snapshot("entry_kinds.json", {kind: [field.name for field in dataclasses.fields(KINDS[kind])] for kind in KINDS})


def test_choices_and_permissions_of_models_are_as_recorded(snapshot: Snapshot) -> None:
    models = [model for label in OUR_LABELS for model in apps.get_app_config(label).get_models()]
    choices = {
        f"{model._meta.label}.{field.name}": [value for value, _ in field.flatchoices]
        for model in models
        for field in model._meta.fields
        if field.flatchoices
    }
    permissions = [name for model in models for name, _ in model._meta.permissions]
    told = {"choices": choices, "permissions": sorted(permissions), "key scopes": sorted(keys.SCOPES)}
    snapshot("model_choices.json", {**told, "scopes of a new key": sorted(keys.DEFAULT_SCOPES)})


def test_tools_and_slash_commands_are_as_recorded(snapshot: Snapshot) -> None:
    snapshot(
        "tools.json",
        {
            "agents": {tool.name: _without_descriptions(tool.parameters) for tool in all_tools().values()},
            "mcp": {tool.name: _without_descriptions(tool.parameters) for tool in TOOLS},
            "slash commands": sorted(one.name for one in suggestions(all_tools())),
        },
    )


def test_rules_of_the_linter_are_as_recorded(snapshot: Snapshot) -> None:
    snapshot("lint_rules.json", {name: str(rule.severity) for name, rule in RULES.items()})


@pytest.mark.django_db
def test_metrics_are_as_recorded(client: Client, settings: Any, snapshot: Snapshot) -> None:
    settings.PARLEY_METRICS = "open"
    page = client.get("/metrics").content.decode()
    snapshot("metrics.txt", "\n".join(sorted(re.findall(r"^# TYPE (.*)$", page, re.MULTILINE))) + "\n")


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_descriptions(item) for name, item in value.items() if name != "description"}
    return [_without_descriptions(item) for item in value] if isinstance(value, list | tuple) else value
