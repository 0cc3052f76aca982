"""Management commands with their subcommands and arguments, and the targets of the Makefile."""

from __future__ import annotations

import argparse
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import BaseCommand, call_command, get_commands, load_command_class

from history.access import keys
from project.accounts.models import User
from relay.models import Agent
from tests.snapshots.conftest import Snapshot
from tests.snapshots.samples import sample
from tests.snapshots.shapes import merge_shape

pytestmark = pytest.mark.any_database

OUR_APPS = ("project", "project.accounts", "history", "relay")
# Arguments that every command of Django has.
COMMON = {action.dest for action in BaseCommand().create_parser("manage.py", "any")._actions}
BUILT_IN = (str, int, float)


def test_commands_and_their_arguments_are_as_recorded(snapshot: Snapshot) -> None:
    names = [(app, name) for name, app in get_commands().items() if app in OUR_APPS]
    parsers = {name: load_command_class(app, name).create_parser("manage.py", name) for app, name in names}
    snapshot("commands.json", {name: _structure(parser) for name, parser in parsers.items()})


def test_make_targets_are_as_recorded(snapshot: Snapshot) -> None:
    makefile = (Path(settings.BASE_DIR) / "Makefile").read_text(encoding="utf-8")
    targets = sorted(set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE)))
    snapshot("make_targets.txt", "\n".join(targets) + "\n")


@pytest.mark.django_db
def test_json_output_of_commands_is_as_recorded(ada: User, snapshot: Snapshot) -> None:
    session = sample(ada)
    keys.create(name="laptop", owner=ada)
    Agent.objects.create(name="assistant", is_default=True)
    calls: dict[str, list[Any]] = {
        "history list": [],
        "history show": [session.pk],
        "history search": ["disk"],
        "history delete": [session.pk],
        "history purge": [],
        "history verify": [],
        "history lint": [session.pk],
        "keys list": [],
        "agents list": [],
    }
    shapes: dict[str, Any] = {}
    for name, arguments in calls.items():
        out = StringIO()
        call_command(*name.split(), *map(str, arguments), "--json", stdout=out, stderr=StringIO())
        merge_shape(shapes, {name: json.loads(out.getvalue())})
    snapshot("command_output.json", shapes)


def _structure(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Options by their names, positional arguments in their order, subcommands."""
    own = [action for action in parser._actions if action.dest not in COMMON]
    subcommands = next((one for one in own if isinstance(one, argparse._SubParsersAction)), None)
    arguments = [one for one in own if one is not subcommands]
    found: dict[str, Any] = {
        "options": {" ".join(one.option_strings): _argument(one) for one in arguments if one.option_strings},
        "arguments": [{"name": one.dest, **_argument(one)} for one in arguments if not one.option_strings],
    }
    if exclusive := [
        [" ".join(one.option_strings) or one.dest for one in group._group_actions]
        for group in parser._mutually_exclusive_groups
    ]:
        found["exclusive"] = exclusive
    if subcommands is not None:
        found["subcommands"] = {name: _structure(inner) for name, inner in subcommands.choices.items()}
    return found


def _argument(action: argparse.Action) -> dict[str, Any]:
    told = {
        "action": type(action).__name__.strip("_").removesuffix("Action").lower(),
        "default": None if action.default is None else repr(action.default),
        "choices": sorted(map(str, action.choices)) if action.choices else None,
        "nargs": action.nargs,
        "required": action.required or None,
        "type": action.type.__name__ if action.type in BUILT_IN else "custom" if action.type else None,
    }
    return {name: value for name, value in told.items() if value is not None}
