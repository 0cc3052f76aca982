"""`manage.py history …` inside a test: what it prints, and where."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Lines(StringIO):
    """Keeps what was written, a line each, although the command fails."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def write(self, text: str) -> int:
        self.lines += text.splitlines()
        return len(text)


def history(*arguments: Any, out: StringIO | None = None) -> tuple[str, str]:
    out, err = out or StringIO(), StringIO()
    call_command("history", *map(str, arguments), stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def history_json(*arguments: Any) -> Any:
    return json.loads(history(*arguments, "--json")[0])
