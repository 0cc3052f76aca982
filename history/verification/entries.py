"""Checks of one entry: body against digest, digest against chain, columns against body."""

from collections.abc import Iterator

from history.db.packing import attachments_of, blobs_in, unpack
from history.entries import Entry, JsonObject, UnknownEntry
from history.models import Message
from history.models.seals import digest_of, seal_of
from history.record import projections
from history.verification.rows import Blobs

# Columns that only some entries fill.
COLUMN_DEFAULTS: JsonObject = {
    "provider": "", "model": "", "status": "complete", "end_reason": "", "input_tokens": 0, "output_tokens": 0,
    "usage_source": "", "latency": None, "duration": None, "request_id": "",
}  # fmt: skip

Problem = tuple[str, str]  # code, sentence


class Chain:
    """The seals of one session, link by link."""

    def __init__(self, anchor: bytes) -> None:
        self.before: list[bytes] = [anchor]  # the possible previous seals; none if that entry is missing

    def check(self, row: Message) -> Problem | None:
        problem = self._find_problem(row)
        # If a seal was altered, the next one was made with the seal that should have been there.
        expected = [_seal_of(row, before, row.digest) for before in self.before[:1] if problem]
        self.before = [row.seal, *expected]
        return problem

    def _find_problem(self, row: Message) -> Problem | None:
        digest = row.digest if row.body is None else digest_of(row.salt or b"", row.body)
        if self._fits(row, row.digest):
            return None if digest == row.digest else ("altered_body", "its body is not the one that was sealed")
        if digest == row.digest:
            return (
                "altered_seal",
                "its seal does not follow from the seal before it, its number, parent, kind and digest",
            )
        if self._fits(row, digest):
            return "altered_digest", "its digest is not that of its body, which is the one that was sealed"
        return "altered_entry", "neither its body nor its digest fits its seal"

    def _fits(self, row: Message, digest: bytes) -> bool:
        return not self.before or any(_seal_of(row, before, digest) == row.seal for before in self.before)


def _seal_of(row: Message, before: bytes, digest: bytes) -> bytes:
    return seal_of(before, seq=row.seq, parent=row.parent_seq, kind=row.kind, digest=digest)


def read_body(row: Message, blobs: Blobs) -> tuple[Entry | None, frozenset[str], Problem | None]:
    """The entry, the blobs it refers to, and the problem with them."""
    names = frozenset(blobs_in(row.body or ""))
    contents = {name: content for name in names if (content := blobs.content(name)) is not None}
    if missing := names - contents.keys():
        return None, names, _broken_blob(next(iter(missing)))
    try:
        entry = unpack(row.body or "null", contents)
    except (ValueError, KeyError, TypeError):
        return None, names, ("unreadable_body", "its body cannot be read")
    attached = attachments_of(entry)
    problem = next((_broken_blob(name) for name in sorted(attached) if not blobs.is_healthy(name)), None)
    return entry, names | attached, problem


def _broken_blob(name: str) -> Problem:
    return "broken_blob", f"the blob {name[:12]}… that it refers to is missing or was altered"


def wrong_columns(row: Message, entry: Entry) -> Iterator[str]:
    expected = {**COLUMN_DEFAULTS, **projections.columns_of(entry)}
    if isinstance(entry, UnknownEntry):
        del expected["created_at"]  # the writer knew the time from another source
    return (name for name, value in expected.items() if getattr(row, name) != value)
