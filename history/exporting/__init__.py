"""Export of sessions in any format, as bytes in bounded memory: docs/export.md, docs/internals/services.md."""

from history.exporting.exports import Export, ExportReport, begin, begin_async
from history.exporting.selection import CannotExport, NothingSelected, Selection

__all__ = ["CannotExport", "Export", "ExportReport", "NothingSelected", "Selection", "begin", "begin_async"]
