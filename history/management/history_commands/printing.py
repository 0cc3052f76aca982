"""Coloured lines and progress bars on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from history.management.output import Stream, is_a_terminal, printable

Piece = str | tuple[str, str]


def print_line(stream: Stream, *pieces: Piece, indent: int = 0) -> None:
    """One line of texts, some with a style: `("failed", "red")`. What is no terminal gets the words alone."""
    text = Text(" " * indent)
    for piece in pieces:
        words, style = (piece, "") if isinstance(piece, str) else piece
        text.append(printable(words), style=style)
    stream.write(_coloured(text) if is_a_terminal(stream) else f"{text.plain.rstrip()}\n")


def print_lines(stream: Stream, text: str, *, indent: int = 0) -> None:
    """A text of several lines."""
    for line in text.splitlines():
        print_line(stream, line, indent=indent)


def print_json_line(stream: Stream, value: Any) -> None:
    """For lists that have no end in sight: one object a line."""
    stream.write(json.dumps(value, cls=DjangoJSONEncoder) + "\n")


def _coloured(text: Text) -> str:
    drawn = StringIO()
    Console(file=drawn, force_terminal=True, width=10_000).print(text, soft_wrap=True, highlight=False)
    return drawn.getvalue()


@contextmanager
def progress_bar(words: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives a function that moves the bar on; on stderr, and only on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(words, total=total)
        yield lambda steps: bar.advance(task, steps)
