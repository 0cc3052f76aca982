"""Export formats: name, file names and writer of each.

A new format is one more block here, and a row in docs/export.md. An exporter writes one session at a time, along its
path, in chunks, and notes what its format cannot carry. All sessions go into one stream (`one_file`), or each session
has its own file and several files go into a zip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from history.formats.base import Notes
from history.formats.writers import gemini_cli, html, markdown, nplt, requests, table
from history.models import Session

Write = Callable[[Session, Notes], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """`write` is None for our own format, whose lines depend on each other."""

    name: str
    label: str | Promise
    media_type: str
    suffix: str
    write: Write | None
    one_file: bool = False
    head: bytes = b""
    file_name: Callable[[Session], str] | None = None

    def name_of(self, session: Session) -> str:
        if self.file_name is not None:
            return self.file_name(session)
        return f"{session.created_at:%Y-%m-%d}-{session.pk}{self.suffix}"


LINES, JSON = "application/x-ndjson", "application/json"

EXPORTERS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter(
            name="jsonl",
            label=_("Parley (complete, can be restored)"),
            media_type=LINES,
            suffix=".jsonl",
            write=None,
            one_file=True,
        ),
        Exporter(
            name="json",
            label=_("Messages with their calls (JSON)"),
            media_type=JSON,
            suffix=".json",
            write=nplt.write,
            file_name=nplt.file_name,
        ),
        Exporter(name="markdown", label=_("Markdown"), media_type="text/markdown", suffix=".md", write=markdown.write),
        Exporter(
            name="html",
            label=_("A page to read and print (HTML)"),
            media_type="text/html",
            suffix=".html",
            write=html.write,
        ),
        Exporter(
            name="csv",
            label=_("A table (CSV)"),
            media_type="text/csv",
            suffix=".csv",
            write=table.write,
            one_file=True,
            head=table.HEAD,
        ),
        Exporter(
            name="gemini-cli",
            label=_("Gemini CLI (JSON)"),
            media_type=JSON,
            suffix=".json",
            write=gemini_cli.write,
            file_name=gemini_cli.file_name,
        ),
        Exporter(
            name="gemini-cli-jsonl",
            label=_("Gemini CLI (newer, a line per message)"),
            media_type=LINES,
            suffix=".jsonl",
            write=gemini_cli.write_log,
            file_name=gemini_cli.file_name_of_log,
        ),
        Exporter(
            name="openai",
            label=_("OpenAI chat (a line per session)"),
            media_type=LINES,
            suffix=".jsonl",
            write=requests.write_openai,
            one_file=True,
        ),
        Exporter(
            name="anthropic",
            label=_("Anthropic request (JSON)"),
            media_type=JSON,
            suffix=".json",
            write=requests.write_anthropic,
        ),
        Exporter(
            name="gemini",
            label=_("Gemini request (JSON)"),
            media_type=JSON,
            suffix=".json",
            write=requests.write_gemini,
        ),
        Exporter(
            name="sharegpt",
            label=_("ShareGPT (a line per session)"),
            media_type=LINES,
            suffix=".jsonl",
            write=requests.write_sharegpt,
            one_file=True,
        ),
    )
}
