"""Checks of one entry: body against digest, digest against chain, columns against body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from history.db.packing import attachments_of, blobs_in, unpack
from history.entries import Entry, ToolResults, UnknownEntry
from history.models.seals import digest_of, seal_of
from history.record import fingerprints, projections
from history.verification.rows import Blobs, MessageRow

# What the columns say when the entry says nothing about them.
UNSAID: dict[str, Any] = {
    "provider": "", "model": "", "status": "complete", "end_reason": "", "input_tokens": 0, "output_tokens": 0,
    "usage_source": "", "latency": None, "duration": None, "request_id": "",
}  # fmt: skip

Problem = tuple[str, str]  # code, sentence


class Chain:
    """The seals of one session, link by link."""

    def __init__(self, anchor: bytes) -> None:
        self.before: tuple[bytes, ...] | None = (anchor,)  # what the previous seal may have been; None: it is missing

    def problem_with(self, row: MessageRow) -> Problem | None:
        digest = None if row.body is None else digest_of(row.salt or b"", row.body)
        problem = self._problem(row, digest)
        # If a seal was altered, the next one was made with the seal that should have been there.
        right = (seal_of(self._previous(), **_sealed(row, row.digest)),) if problem and self.before else ()
        self.before = (row.seal, *right)
        return problem

    def break_off(self) -> None:
        """Entries are missing: the next seal cannot be checked."""
        self.before = None

    def _problem(self, row: MessageRow, digest: bytes | None) -> Problem | None:
        if digest is None or digest == row.digest:
            if self._fits(row, row.digest):
                return None
            return (
                "altered_seal",
                "its seal does not follow from the seal before it, its number, parent, kind and digest",
            )
        if self._fits(row, row.digest):
            return "altered_body", "its body is not the one that was sealed"
        if self._fits(row, digest):
            return "altered_digest", "its digest is not that of its body, which is the one that was sealed"
        return "altered_entry", "neither its body nor its digest fits its seal"

    def _fits(self, row: MessageRow, digest: bytes) -> bool:
        if self.before is None:
            return True
        return any(seal_of(before, **_sealed(row, digest)) == row.seal for before in self.before)

    def _previous(self) -> bytes:
        return self.before[0] if self.before else b""


def _sealed(row: MessageRow, digest: bytes) -> dict[str, Any]:
    return {"seq": row.seq, "parent": row.parent_seq, "kind": row.kind, "digest": digest}


def read_body(row: MessageRow, blobs: Blobs) -> tuple[Entry | None, frozenset[str], Problem | None]:
    """The entry, the blobs it refers to, and what is wrong with them."""
    names = set(blobs_in(row.body or ""))
    contents: dict[str, bytes] = {}
    for name in names:
        content = blobs.content(name)
        if content is None:
            return None, frozenset(names), _blob_problem(name)
        contents[name] = content
    try:
        entry = unpack(row.body or "null", contents)
    except (ValueError, KeyError, TypeError):
        return None, frozenset(names), ("unreadable_body", "its body cannot be read")
    attached = attachments_of(entry)
    problem = next((_blob_problem(name) for name in sorted(attached) if not blobs.is_healthy(name)), None)
    return entry, frozenset(names | attached), problem


def _blob_problem(name: str) -> Problem:
    return "broken_blob", f"the blob {name[:12]}… that it refers to is missing or was altered"


def wrong_columns(row: MessageRow, entry: Entry) -> Iterator[str]:
    said: dict[str, Any] = UNSAID | projections.columns_of(entry)
    if isinstance(entry, UnknownEntry):
        del said["created_at"]  # the writer knew the time from another source
    return (name for name, value in said.items() if getattr(row, name) != value)


def texts_left(row: MessageRow) -> list[str]:
    """The columns that should be empty, because the texts were dropped; only how many results failed is kept."""
    counts = {projections.FAILED_RESULTS} if row.kind == ToolResults.kind else set()
    said = {"content": row.content, "metadata": {name for name in row.metadata if name not in counts}}
    return [name for name, left in said.items() if left]


def wrong_fingerprint(row: MessageRow, entry: Entry, *, after: bytes, scope: str) -> bool:
    """Whether the chain was continued differently. What was redacted cannot be checked: it was hashed before."""
    is_redacted = "[redacted:" in (row.body or "") or bool(entry.metadata.get("redacted"))
    if is_redacted or entry.metadata.get("recording") == "no_replies":
        return False
    return not fingerprints.is_fingerprint(row.fingerprint, entry, after=after, scope=scope)
