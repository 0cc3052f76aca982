"""Parley's own JSONL format: complete sessions, exported and restored.

Between a header and an `end` line there are, session by session, a `session` line, its `entry` lines by number, its
`exchange` lines by time and a `session_end` line with the checkpoint. A `blob` is before the first line that needs it;
sections of others (agents) come before the `end`. What follows from the entries (counters, path, calls, search rows) is
made again during the restore, fingerprints with the key of the restoring server. The bytes are canonical: a file that
was restored and exported again is the same. Bodies and salts are what was sealed, so seals can be verified in the file.
"""

from history.formats.jsonl.lines import FORMAT, ExtraSection, is_header, register_section
from history.formats.jsonl.restoring import restore
from history.formats.jsonl.writing import JsonlWriter

__all__ = ["FORMAT", "ExtraSection", "JsonlWriter", "is_header", "register_section", "restore"]
