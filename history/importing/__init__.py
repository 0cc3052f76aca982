"""Import of conversations of other products and of Parley exports.

`run` takes files (`files_at` for paths, `uploaded` for what was sent to us), unpacks them, recognises each by what it
says, and stores conversation by conversation. It may be run again at any time: what is there already is left alone, and
a conversation that has grown gets its new entries. What cannot be read is named in the report, and never keeps the rest
out.

    unpacking (files to pieces) → history.formats (pieces to conversations) → storing (conversations to sessions)
"""

from history.importing.reports import ImportItem, ImportOutcome, ImportReport
from history.importing.running import run, steps
from history.importing.unpacking import UnpackedFile, files_at, uploaded

__all__ = ["ImportItem", "ImportOutcome", "ImportReport", "UnpackedFile", "files_at", "run", "steps", "uploaded"]
