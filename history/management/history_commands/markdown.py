"""Markdown on a terminal: headings, lists, tables and code as one reads them. In a pipe texts stay as they are.

Texts come from strangers. Control characters are taken out before anything is drawn, HTML is shown and not interpreted,
and links are written out: nothing in a text can speak to the terminal.
"""

from __future__ import annotations

import shutil
from io import StringIO

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding

from history.management.output import Stream, printable

LEAST_WIDTH = 20
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def print_markdown(stream: Stream, text: str, *, indent: int = 0) -> None:
    text = "\n".join(printable(line.expandtabs(4)) for line in text.splitlines())
    drawn = Markdown(text, hyperlinks=False)
    drawn.parsed = _with_lines(_PARSER.parse(text))
    width = max(LEAST_WIDTH, shutil.get_terminal_size().columns)
    out = StringIO()
    Console(file=out, force_terminal=True, width=width).print(Padding(drawn, (0, 0, 0, indent)))
    stream.write("".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()))


def _with_lines(tokens: list[Token]) -> list[Token]:
    """Keep the line breaks of the text."""
    for inner in (inner for token in tokens for inner in token.children or ()):
        if inner.type == "softbreak":
            inner.type = "hardbreak"
    return tokens
