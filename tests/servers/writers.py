"""A database of its own, and real processes that work on it: for what threads in a test cannot show.

The commands that the processes know are the functions of `worker`. Each prints one JSON value per line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.databases import create_migrated_database

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[str]


def start_writer(environment: dict[str, str], *words: object) -> Process:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.servers.writer", *map(str, words)],
        cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Writers:
    environment: dict[str, str]
    helper: Process  # runs commands one after the other, so that not each of them costs a start

    def start(self, command: str, *words: object) -> Process:
        return start_writer(self.environment, command, *words)

    @contextmanager
    def started(self, command: str, *words: object) -> Iterator[Process]:
        process = self.start(command, *words)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self, command: str, *words: object) -> Any:
        """Let the helper run a command; what it told."""
        assert self.helper.stdin is not None
        self.helper.stdin.write(json.dumps([command, *map(str, words)]) + "\n")
        self.helper.stdin.flush()
        return self.next_line(self.helper)

    def lines_to_the_end(self, process: Process) -> list[Any]:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, f"{process.args!r} ended with {process.returncode}"
        return read_lines(out)

    @staticmethod
    def next_line(process: Process) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{process.args!r} told nothing and is gone"
        return json.loads(line)


def read_lines(text: str) -> list[Any]:
    """Whole lines only: what is not ended by a newline was cut off by a kill."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def start_writers(folder: Path) -> Iterator[Writers]:
    with create_migrated_database(folder) as database_url:
        environment = os.environ | {
            "DATABASE_URL": database_url, "PARLEY_DATA_DIR": str(folder), "PARLEY_BACKGROUND": "false",
            "DJANGO_SETTINGS_MODULE": "project.settings",
        }  # fmt: skip
        place = Writers(environment, start_writer(environment, "serve"))
        yield place
        place.helper.communicate(timeout=60)
