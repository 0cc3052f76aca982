"""Text with styles, tables, Markdown and progress bars for a terminal, drawn by rich.

Apart from `output`, which imports it for a terminal only: rich takes a tenth of the start of a command.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

from markdown_it import MarkdownIt
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

LEAST_WIDTH = 20
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def draw_line(pieces: Iterable[tuple[str, str]]) -> str:
    """Texts with their styles."""
    return _draw(Text.assemble(*pieces), width=10_000, soft_wrap=True)


def draw_markdown(text: str, *, indent: int) -> str:
    document = Markdown(text, hyperlinks=False)
    document.parsed = _PARSER.parse(text)
    for inner in (inner for token in document.parsed for inner in token.children or ()):
        if inner.type == "softbreak":
            inner.type = "hardbreak"
    width = max(LEAST_WIDTH, shutil.get_terminal_size().columns)
    drawn = _draw(Padding(document, (0, 0, 0, indent)), width=width)
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines())


def draw_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    table = Table(header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return _draw(table, width=shutil.get_terminal_size().columns)


@contextmanager
def progress_bar(words: str, *, total: int | None) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(words, total=total)
        yield lambda steps: bar.advance(task, steps)


def _draw(item: RenderableType, *, width: int, soft_wrap: bool = False) -> str:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=width)
    console.print(item, soft_wrap=soft_wrap, highlight=False)
    return out.getvalue()
