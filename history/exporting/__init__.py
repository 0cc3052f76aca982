"""Export of sessions in any format, as a stream of bytes in bounded memory. See docs/export.md.

export = await prepare(viewer, Selection(mine=True), "jsonl", since=cursor)   # errors come before the first byte
async for chunk in export: ...                                               # or: for chunk in export.pieces()
export.report                                                                # what could not be carried
"""

from history.exporting.exports import Export, ExportReport, begin, begin_async
from history.exporting.selection import CannotExport, NothingSelected, Selection

__all__ = ["CannotExport", "Export", "ExportReport", "NothingSelected", "Selection", "begin", "begin_async"]
