"""Output of commands: lines, tables, Markdown and progress bars on a terminal, plain columns in a pipe, JSON.

Texts come from strangers (titles, names, messages). Control characters never reach a terminal, markup is not
interpreted, HTML is shown as text, and links are written out.
"""

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

from django.core.management.base import OutputWrapper
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone
from rich.cells import cell_len, set_cell_size

Stream = OutputWrapper | TextIO
Piece = str | tuple[str, str]


def print_line(stream: Stream, *pieces: Piece, indent: int = 0) -> None:
    """One line of texts, some with a style: `("failed", "red")`. Only a terminal gets the styles."""
    styled = [(piece, "") if isinstance(piece, str) else piece for piece in (" " * indent, *pieces)]
    styled = [(printable(words), style) for words, style in styled]
    if stream.isatty():
        from history.management import terminal

        stream.write(terminal.draw_line(styled))
    else:
        stream.write("".join(words for words, _ in styled).rstrip() + "\n")


def print_lines(stream: Stream, text: str, *, indent: int = 0) -> None:
    for line in text.splitlines():
        print_line(stream, line, indent=indent)


def print_markdown(stream: Stream, text: str, *, indent: int = 0) -> None:
    """Headings, lists, tables and code as formatted text. The line breaks of the text are kept."""
    from history.management import terminal

    text = "\n".join(printable(line.expandtabs(4)) for line in text.splitlines())
    stream.write(terminal.draw_markdown(text, indent=indent))


def printable(text: str) -> str:
    """Without characters that move the cursor, colour the screen or break a line."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") else char for char in text)


def print_table(stream: Stream, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    cells = [[as_cell(value) for value in row] for row in rows]
    if stream.isatty():
        from history.management import terminal

        stream.write(terminal.draw_table(columns, cells))
    else:
        stream.write(_aligned([list(columns), *cells]))


def print_counts(stream: Stream, columns: Sequence[str], counts: Iterable[tuple[str, int]]) -> None:
    print_table(stream, columns, [(name, f"{count:,}") for name, count in counts])


def as_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return timezone.localtime(value).strftime("%Y-%m-%d %H:%M")
    return printable(str(value))


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(cell_len(cell) for cell in column) for column in zip(*lines, strict=True)]
    padded = (map(set_cell_size, line, widths) for line in lines)
    return "".join("  ".join(line).rstrip() + "\n" for line in padded)


def print_json(stream: Stream, value: object) -> None:
    """Indented, non-ASCII as it is. A lone surrogate, which no encoding can write, makes all of it escaped."""
    text = json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
    if any("\ud800" <= char <= "\udfff" for char in text):
        text = json.dumps(value, cls=DjangoJSONEncoder, indent=2)
    stream.write(text + "\n")


def print_json_line(stream: Stream, value: object) -> None:
    """For lists of unknown length: one object a line."""
    stream.write(json.dumps(value, cls=DjangoJSONEncoder) + "\n")


@contextmanager
def progress_bar(words: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances the bar; on stderr, and only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    from history.management import terminal

    with terminal.progress_bar(words, total=total) as advance:
        yield advance
