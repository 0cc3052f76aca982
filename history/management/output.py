"""Output of commands: tables on a terminal, columns in a pipe, JSON.

Texts come from strangers (titles, names, what a model said), so control characters never reach a terminal and markup
is never interpreted.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from io import StringIO
from typing import Any, Protocol

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


class Stream(Protocol):
    """`self.stdout` of a command, or any text file."""

    def write(self, text: str, /) -> Any: ...

    def isatty(self) -> bool: ...


def is_a_terminal(stream: Stream) -> bool:
    return stream.isatty()


def print_table(stream: Stream, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    cells = [[as_cell(value) for value in row] for row in rows]
    if is_a_terminal(stream):
        stream.write(_drawn(columns, cells))
    else:
        stream.write(_aligned([list(columns), *cells]))


def print_json(stream: Stream, value: Any) -> None:
    """Readable, non-ASCII as it is; a lone surrogate, which no encoding can write, makes all of it escaped."""
    text = json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
    if any("\ud800" <= char <= "\udfff" for char in text):
        text = json.dumps(value, cls=DjangoJSONEncoder, indent=2)
    stream.write(text + "\n")


def as_cell(value: Any) -> str:
    """Any value as one line of text for a table."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return timezone.localtime(value).strftime("%Y-%m-%d %H:%M")
    return printable(str(value))


def printable(text: str) -> str:
    """Without what could move a cursor, colour a screen or break a line."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") else char for char in text)


def _drawn(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    table = Table(header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    drawn = StringIO()
    Console(file=drawn, force_terminal=True, width=shutil.get_terminal_size().columns).print(table)
    return drawn.getvalue()


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(cell_len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(_padded, line, widths)).rstrip() + "\n" for line in lines)


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))
