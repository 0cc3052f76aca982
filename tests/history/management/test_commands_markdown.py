"""`history show` on a terminal draws Markdown; in a pipe texts stay as they are; every command knows `--json`."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from history.management.commands.history import ACTIONS, Command
from history.models import Session
from tests.clients import Terminal, run_history
from tests.factories import create_chat

ANSWER = """# Result

- **bold** and `code`

| a | b |
| - | - |
| 1 | 2 |

```python
print("hi")
```

<script>alert(1)</script> \x1b[31mred\x1b[0m [site](https://example.org)
"""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def session(ada: Any) -> Session:
    return create_chat(ada, "one line\nanother *line*", ANSWER)


def on_a_terminal(session: Session) -> str:
    return run_history("show", session.pk, out=Terminal())[0]


@pytest.mark.django_db
def test_on_a_terminal_markdown_is_drawn(session: Session) -> None:
    shown = COLOURS.sub("", on_a_terminal(session))
    assert "• bold and code" in shown
    assert "**bold**" not in shown
    assert "```" not in shown
    assert 'print("hi")' in shown
    assert re.search(r"1 +2", shown)
    assert "| - |" not in shown


@pytest.mark.django_db
def test_new_lines_stay_new_lines(session: Session) -> None:
    lines = [line.strip() for line in COLOURS.sub("", on_a_terminal(session)).splitlines()]
    assert lines[lines.index("another line") - 1] == "one line"


@pytest.mark.django_db
def test_nothing_in_a_text_speaks_to_the_terminal(session: Session) -> None:
    shown = on_a_terminal(session)
    assert "\x1b[31mred" not in shown
    assert "\x1b]8" not in shown
    assert "<script>alert(1)</script>" in COLOURS.sub("", shown)
    assert "https://example.org" in shown


@pytest.mark.django_db
def test_in_a_pipe_texts_stay_as_they_were_written(session: Session) -> None:
    shown = run_history("show", session.pk)[0]
    assert "    - **bold** and `code`" in shown
    assert "\x1b" not in shown


# Every command


def parsers() -> dict[str, argparse.ArgumentParser]:
    parser = Command().create_parser("manage.py", "history")
    return next(action.choices for action in parser._actions if isinstance(action.choices, dict))


@pytest.mark.parametrize("name", ACTIONS)
def test_every_command_knows_json(name: str) -> None:
    assert "--json" in parsers()[name]._option_string_actions


@pytest.mark.parametrize("name", ACTIONS)
def test_every_command_and_each_of_its_options_is_described(name: str) -> None:
    page = (Path(settings.BASE_DIR) / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    options = [action.option_strings for action in parsers()[name]._actions if action.option_strings]
    told_once_for_all = {"-h", "--json"}
    missing = [one for one in options if not told_once_for_all & set(one) and not any(word in section for word in one)]
    assert f"`history {name}" in section
    assert missing == []


@pytest.mark.django_db
def test_json_of_a_list_is_json_for_every_reader(ada: Any) -> None:
    create_chat(ada, "hi")
    for arguments in (["list"], ["search", "hi"], ["purge"], ["person", "ada", "--erase"]):
        assert isinstance(json.loads(run_history(*arguments, "--json")[0]), dict)
