"""Check of one session, page by page: entries first, then projections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from history.entries import Entry
from history.models import Session
from history.models.seals import digest_of
from history.verification.entries import Chain, read_body, texts_left, wrong_columns
from history.verification.findings import FindingSeverity, VerificationFinding
from history.verification.projections_check import ProjectionsCheck
from history.verification.rows import Blobs, Excuses, MessageRow, excuses_for, pages_of
from history.verification.session_facts import SessionFacts


class SessionCheck:
    """What is known of a session while its entries pass by."""

    def __init__(self, session: Session, blobs: Blobs) -> None:
        self.session = session
        self.blobs = blobs
        self.chain = Chain(session.anchor_seal)
        self.claims = ProjectionsCheck(session)
        self.last = session.trimmed_through
        self.last_seal = session.anchor_seal
        self.entries = 0
        self.facts = SessionFacts(session)

    @cached_property
    def excuses(self) -> Excuses:
        return excuses_for(self.session.pk)

    def check(self) -> Iterator[VerificationFinding]:
        yield from self.facts.check_audited(self.excuses)
        yield from self._check_anchor()
        for rows in pages_of(self.session):
            for row in rows:
                yield from self._check_row(row)
            yield from self.claims.check_page(rows)
        yield from self._check_end()
        yield from self.claims.check_end()
        yield from self.facts.check_derived(self.excuses)

    def _found(self, seq: int, code: str, sentence: str) -> VerificationFinding:
        return VerificationFinding(self.session.pk, seq, code, sentence)

    def _check_anchor(self) -> Iterator[VerificationFinding]:
        through = self.session.trimmed_through
        if through and self.excuses.trimmed != (through, self.session.anchor_seal.hex()):
            yield self._found(through, "untold_trim", "entries up to here are gone, and no audit event tells of a trim")

    def _check_row(self, row: MessageRow) -> Iterator[VerificationFinding]:
        self.entries += 1
        kept = row.seq <= self.session.trimmed_through
        yield from self._check_kept(row) if kept else self._check_link(row)
        if row.body is None:
            self.facts.note_dropped()
            yield from self._check_dropped(row)
            yield from self.claims.add(row, None, frozenset())
            return
        entry, names, problem = read_body(row, self.blobs)
        if problem:
            yield self._found(row.seq, *problem)
        if row.seq <= self.session.dropped_through and not row.is_state:
            sentence = "the session says that the texts up to here were dropped, but its own was not"
            yield VerificationFinding(self.session.pk, row.seq, "undropped_text", sentence, FindingSeverity.PROJECTION)
        if entry is not None:
            self.facts.note_entry(entry)
            yield from self._check_columns(row, entry)
        yield from self.claims.add(row, entry, names)

    def _check_link(self, row: MessageRow) -> Iterator[VerificationFinding]:
        if row.seq != self.last + 1:
            yield self._found(self.last + 1, "missing_entry", missing(self.last + 1, row.seq - 1))
            self.chain.break_off()
        if problem := self.chain.problem_with(row):
            yield self._found(row.seq, *problem)
        if row.parent_seq > self.session.trimmed_through and not self.claims.replay.has(row.parent_seq):
            sentence = f"its parent {row.parent_seq} is not there, or is nothing that can be followed"
            yield self._found(row.seq, "dangling_parent", sentence)
        self.last, self.last_seal = row.seq, row.seal

    def _check_kept(self, row: MessageRow) -> Iterator[VerificationFinding]:
        """An entry that a trim left standing, because it still holds: the audit event of the trim knows its digest."""
        if self.excuses.kept.get(row.seq) != row.digest.hex():
            yield self._found(row.seq, "altered_entry", "it stands before the anchor, but no trim left it there")
        elif row.body is not None and digest_of(row.salt or b"", row.body) != row.digest:
            yield self._found(row.seq, "altered_body", "its body is not the one that was sealed")

    def _check_dropped(self, row: MessageRow) -> Iterator[VerificationFinding]:
        if row.seq > self.excuses.dropped_through:
            yield self._found(row.seq, "missing_body", "its body is gone, and no audit event says that it was dropped")
        for name in texts_left(row):
            sentence = f"its body was dropped, but there is still something in {name}"
            yield VerificationFinding(self.session.pk, row.seq, "text_left", sentence, FindingSeverity.PROJECTION)

    def _check_columns(self, row: MessageRow, entry: Entry) -> Iterator[VerificationFinding]:
        for name in wrong_columns(row, entry):
            yield self._found(row.seq, "altered_column", f"the column {name} does not say what the entry says")

    def _check_end(self) -> Iterator[VerificationFinding]:
        session = self.session
        if self.last < session.version:
            yield self._found(self.last + 1, "missing_entry", missing(self.last + 1, session.version))
        elif self.last_seal != session.last_seal:
            sentence = "its seal is not the one that the session knows as its last"
            yield self._found(self.last, "altered_end", sentence)


def missing(first: int, last: int) -> str:
    return "it is missing" if first == last else f"it is missing, like everything up to entry {last}"
