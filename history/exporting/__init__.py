"""Export of sessions in any format, as a stream of bytes in bounded memory.

    export = await prepare(viewer, Selection(mine=True), "jsonl", since=cursor)   # refuses before the first byte
    async for chunk in export: ...                                               # or: for chunk in export.pieces()
    export.report                                                                # what could not be carried

`selection` says which sessions (rights, reasons, the audit trail), `cursors` where an export goes on from another one,
`exports` what is written, `threads` how the event loop gets it, `archives` how many files become one. docs/export.md.
"""

from history.exporting.cursors import ExportCursor, horizon
from history.exporting.exports import Export, ExportReport, begin, prepare, stream
from history.exporting.selection import CannotExport, NothingSelected, Selection

__all__ = [
    "CannotExport",
    "Export",
    "ExportCursor",
    "ExportReport",
    "NothingSelected",
    "Selection",
    "begin",
    "horizon",
    "prepare",
    "stream",
]
