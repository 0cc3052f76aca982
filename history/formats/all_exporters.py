"""Every exporter, by name. A new format is one more block here, and a row in docs/export.md."""

from django.utils.translation import gettext_lazy as _

from history.formats.exporters import EXPORTERS, Exporter, register
from history.formats.writers import gemini_cli, html, markdown, nplt, requests, table

LINES, JSON = "application/x-ndjson", "application/json"

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
        name="gemini", label=_("Gemini request (JSON)"), media_type=JSON, suffix=".json", write=requests.write_gemini
    ),
    Exporter(
        name="sharegpt",
        label=_("ShareGPT (a line per session)"),
        media_type=LINES,
        suffix=".jsonl",
        write=requests.write_sharegpt,
        one_file=True,
    ),
):
    register(exporter)

__all__ = ["EXPORTERS", "Exporter"]
