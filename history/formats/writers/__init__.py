"""Export formats: name, file names and writer of each. A new format is one more row here and in docs/export.md.

A writer writes one session at a time, along its path, in chunks, and notes what its format cannot carry.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from history.formats.base import Notes
from history.formats.writers import gemini_cli, html, markdown, nplt, requests, table
from history.models import Session

Write = Callable[[Session, Notes], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Exporter:
    """`write` is None for Parley's own format, whose lines depend on each other."""

    name: str
    label: str | Promise
    media_type: str
    suffix: str
    write: Write | None
    one_file: bool = False
    head: bytes = b""
    base_name: Callable[[Session], str] = lambda session: f"{session.created_at:%Y-%m-%d}-{session.pk}"

    def name_of(self, session: Session) -> str:
        return f"{self.base_name(session)}{self.suffix}"


LINES, JSON = ("application/x-ndjson", ".jsonl"), ("application/json", ".json")  # media type and suffix of the file

_EXPORTERS = (
    Exporter("jsonl", _("Parley (complete, can be restored)"), *LINES, None, one_file=True),
    Exporter("json", _("Messages and tool calls (JSON)"), *JSON, nplt.write, base_name=nplt.base_name),
    Exporter("markdown", _("Markdown"), "text/markdown", ".md", markdown.write),
    Exporter("html", _("Printable page (HTML)"), "text/html", ".html", html.write),
    Exporter("csv", _("Table (CSV)"), "text/csv", ".csv", table.write, one_file=True, head=table.HEAD),
    Exporter("gemini-cli", _("Gemini CLI (JSON)"), *JSON, gemini_cli.write, base_name=gemini_cli.base_name),
    Exporter(
        "gemini-cli-jsonl", _("Gemini CLI (newer, JSONL)"), *LINES, gemini_cli.write_log, base_name=gemini_cli.base_name
    ),
    Exporter("openai", _("OpenAI Chat (JSONL)"), *LINES, requests.write_openai, one_file=True),
    Exporter("anthropic", _("Anthropic request (JSON)"), *JSON, requests.write_anthropic),
    Exporter("gemini", _("Gemini request (JSON)"), *JSON, requests.write_gemini),
    Exporter("sharegpt", _("ShareGPT (JSONL)"), *LINES, requests.write_sharegpt, one_file=True),
)
EXPORTERS = {exporter.name: exporter for exporter in _EXPORTERS}
