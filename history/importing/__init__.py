"""Import of conversations of other products and of Parley exports.

    unpacking (files to pieces) → history.formats (pieces to conversations) → storing (conversations to sessions)

An import may be repeated: it adds only what is new. What cannot be read is named in the report.
"""

from history.formats.reports import ImportItem, ImportOutcome, ImportReport
from history.importing.running import Import
from history.importing.unpacking import UnpackedFile, files_at, uploaded

__all__ = ["Import", "ImportItem", "ImportOutcome", "ImportReport", "UnpackedFile", "files_at", "uploaded"]
