"""Every exporter, by name. A new format is one more line here."""

from django.utils.translation import gettext_lazy as _

from history.formats.exporters import EXPORTERS, Exporter, register

register(
    Exporter(
        name="jsonl",
        label=_("Parley (complete, can be restored)"),
        media_type="application/x-ndjson",
        suffix=".jsonl",
        write=None,
        one_file=True,
    )
)

__all__ = ["EXPORTERS", "Exporter"]
