"""Parley's own JSONL format: complete sessions, exported and restored.

A file begins with a header and ends with an `end` line. Between them stand, session by session, a `session` line, its
`entry` lines by number, its `exchange` lines by time and a `session_end` line with the checkpoint (entries, version,
seal); a `blob` stands before the first line that needs it. Sections of others (agents) come before the `end`.

What is written are facts. Columns that follow from an entry, counters, the path, calls and search rows are made again
during the restore. Fingerprints are never written: they are made with the key of the restoring server.
Owners are told by user name, keys by prefix.

The bytes are canonical (sorted keys, no spaces, times in UTC, sessions by id), so what was exported, restored and
exported again is the same file. Bodies and salts are exactly what was sealed: seals can be verified in the file, and
after a restore by `history verify`.

    lines (bytes and values) → serialise (rows and values) → writing (rows to lines)
    restoring (lines to sessions) → reading (lines to values that were checked) → insert_entries (rows as they were)
"""

from history.formats.jsonl.lines import FORMAT, VERSION, ExtraSection, is_header, register_section, sections
from history.formats.jsonl.restoring import restore
from history.formats.jsonl.session_buffer import Restored
from history.formats.jsonl.writing import JsonlWriter

__all__ = [
    "FORMAT",
    "VERSION",
    "ExtraSection",
    "JsonlWriter",
    "Restored",
    "is_header",
    "register_section",
    "restore",
    "sections",
]
