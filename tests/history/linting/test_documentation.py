"""docs/lint.md lists every rule as it is, and every option of the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from history.linting import RULES
from history.management.commands.history import Command

pytestmark = pytest.mark.no_database

PAGE = (Path(settings.BASE_DIR) / "docs" / "lint.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rule_id", RULES)
def test_every_rule_is_on_the_page_in_its_own_words(rule_id: str) -> None:
    rule = RULES[rule_id]
    words = re.sub(r"%\((\w+)\)s", r"*\1*", rule.words)
    assert f"| `{rule.id}` | {rule.severity} | {words} |" in PAGE


def test_every_rule_on_the_page_is_checked() -> None:
    assert set(re.findall(r"^\| `([\w-]+/[\w-]+)` \|", PAGE, re.MULTILINE)) == set(RULES)


def test_every_option_is_on_the_page() -> None:
    parser = Command().create_parser("manage.py", "history")
    actions = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
    options = {name for action in actions["lint"]._actions for name in action.option_strings if name.startswith("--")}
    assert {name for name in options if name not in PAGE} == {"--help"}
