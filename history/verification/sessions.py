"""Check of one session: its own columns, its entries page by page, its projections.

Of an entry the body is compared with the digest, the digest with the chain and the columns with the body. Owner, key
and source are compared with the seal that was made when the session began; hold, deletion and a title set by hand with
the audit chain. The automatic title and the expiry are computed again.
"""

from collections.abc import Iterator
from datetime import timedelta

from history.db.packing import attachments_of, blobs_in, unpack
from history.entries import Entry, JsonObject, ModelInput, ToolResults, UnknownEntry
from history.models import Message, Session
from history.models.seals import digest_of, seal_of, title_mark_of
from history.record import projections
from history.record.expiry import expiry_of
from history.record.loading import pages_of
from history.text.titles import title_from
from history.verification.projections_check import ProjectionsCheck
from history.verification.rows import Blobs, VerificationFinding, audited_state, projection_finding

# Columns that only some entries fill.
COLUMN_DEFAULTS: JsonObject = {
    "provider": "", "model": "", "status": "complete", "end_reason": "", "input_tokens": 0, "output_tokens": 0,
    "usage_source": "", "latency": None, "duration": None, "request_id": "",
}  # fmt: skip

Problem = tuple[str, str]  # code, sentence


class Chain:
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
            return None if digest == row.digest else ("altered_body", "its body was changed after it was sealed")
        if digest == row.digest:
            return ("altered_seal", "its seal does not match the previous seal, its number, parent, kind and digest")
        if self._fits(row, digest):
            return "altered_digest", "its digest does not match its body, which is unchanged"
        return "altered_entry", "neither its body nor its digest matches its seal"

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


PAGE = 500
# Events of earlier versions do not have the moment of a deletion; they were written within the same transaction.
SAME_MOMENT = timedelta(minutes=10)


class SessionCheck:
    def __init__(self, session: Session, blobs: Blobs) -> None:
        self.session = session
        self.blobs = blobs
        self.chain = Chain(session.anchor_seal)
        self.projections = ProjectionsCheck(session)
        self.last = session.trimmed_through
        self.last_seal = session.anchor_seal
        self.entries = 0
        self.titles: list[str] = []  # that messages give: the first, and the one that the session has
        self.is_title_lost = session.trimmed_through > 0
        self.audited = audited_state(session.pk)

    def check(self) -> Iterator[VerificationFinding]:
        yield from self._check_audited_columns()
        through = self.session.trimmed_through
        if through and self.audited.trimmed != (through, self.session.anchor_seal.hex()):
            sentence = "entries up to here are missing, and no audit event records a trim"
            yield self._damage(through, "untold_trim", sentence)
        for rows in pages_of(self.session, Message.objects.in_order(self.session), most=PAGE):
            for row in rows:
                yield from self._check_row(row)
            yield from self.projections.check_page(rows)
        if self.last < self.session.version:
            yield self._missing(self.last + 1, self.session.version)
        elif self.last_seal != self.session.last_seal:
            yield self._damage(self.last, "altered_end", "its seal differs from the last seal of the session")
        yield from self.projections.check_end()
        yield from self._check_derived_columns()

    def _damage(self, seq: int, code: str, sentence: str) -> VerificationFinding:
        return VerificationFinding(self.session.pk, seq, code, sentence)

    def _check_row(self, row: Message) -> Iterator[VerificationFinding]:
        self.entries += 1
        yield from self._check_kept(row) if row.seq <= self.session.trimmed_through else self._check_link(row)
        if row.body is None:
            self.is_title_lost = True
            yield from self._check_dropped(row)
            yield from self.projections.add(row, None, frozenset())
            return
        entry, names, problem = read_body(row, self.blobs)
        if problem:
            yield self._damage(row.seq, *problem)
        if row.seq <= self.session.dropped_through and not row.is_state:
            sentence = "the session records dropped texts up to here, but this text is still stored"
            yield projection_finding(self.session, row.seq, "undropped_text", sentence)
        if entry is not None:
            self._note_title(entry)
            for name in wrong_columns(row, entry):
                yield self._damage(row.seq, "altered_column", f"the column {name} differs from the entry")
        yield from self.projections.add(row, entry, names)

    def _check_link(self, row: Message) -> Iterator[VerificationFinding]:
        if row.seq != self.last + 1:
            yield self._missing(self.last + 1, row.seq - 1)
            self.chain.before.clear()
        if problem := self.chain.check(row):
            yield self._damage(row.seq, *problem)
        if row.parent_seq > self.session.trimmed_through and row.parent_seq not in self.projections.replay.steps:
            sentence = f"its parent {row.parent_seq} is missing or not valid"
            yield self._damage(row.seq, "dangling_parent", sentence)
        self.last, self.last_seal = row.seq, row.seal

    def _check_kept(self, row: Message) -> Iterator[VerificationFinding]:
        """An entry before the anchor that a trim left, because it still holds: the audit event has its digest."""
        if self.audited.kept.get(row.seq) != row.digest.hex():
            yield self._damage(row.seq, "altered_entry", "it is before the anchor, but no trim left it")
        elif row.body is not None and digest_of(row.salt or b"", row.body) != row.digest:
            yield self._damage(row.seq, "altered_body", "its body was changed after it was sealed")

    def _check_dropped(self, row: Message) -> Iterator[VerificationFinding]:
        if row.seq > self.audited.dropped_through:
            sentence = "its body is missing, and no audit event records that it was dropped"
            yield self._damage(row.seq, "missing_body", sentence)
        counts = {projections.FAILED_RESULTS} if row.kind == ToolResults.kind else set()  # which a drop keeps
        for name, rest in (("content", row.content), ("metadata", row.metadata.keys() - counts)):
            if rest:
                sentence = f"its body was dropped, but {name} still has content"
                yield projection_finding(self.session, row.seq, "text_left", sentence)

    def _missing(self, first: int, last: int) -> VerificationFinding:
        sentence = "it is missing" if first == last else f"it is missing, with all entries up to {last}"
        return self._damage(first, "missing_entry", sentence)

    def _check_audited_columns(self) -> Iterator[VerificationFinding]:
        session = self.session
        if bytes(session.begin_seal) != session.expected_begin_seal():
            yield self._damage(0, "altered_owner", "its owner, key or source was changed")
        if session.hold != self.audited.is_held:
            state = "held" if session.hold else "not held"
            yield self._damage(0, "altered_hold", f"it is {state}, but the audit log disagrees")
        if problem := self._deletion_problem():
            yield self._damage(0, "altered_deletion", problem)

    def _deletion_problem(self) -> str:
        hidden_at, audited = self.session.hidden_at, self.audited.hidden_at
        if self.session.state == Session.State.INCOMPLETE:
            return ""
        if self.session.state == Session.State.REMOVING:
            return "" if self.audited.is_removed else "its removal has started without an audit event"
        if hidden_at is None or audited is None:
            state = "not deleted" if hidden_at is None else "deleted"
            return "" if hidden_at == audited else f"it is {state}, but the audit log disagrees"
        is_same = abs(hidden_at - audited) <= SAME_MOMENT
        return "" if is_same else "its time of deletion differs from the audit log"

    def _check_derived_columns(self) -> Iterator[VerificationFinding]:
        if not self._is_title_right():
            sentence = "its title is neither automatic nor set by a user"
            yield self._damage(0, "altered_title", sentence)
        if self.session.expires_at != expiry_of(self.session):
            sentence = "its expiry does not match the retention rules; the next purge sets it"
            yield projection_finding(self.session, 0, "altered_expiry", sentence)

    def _note_title(self, entry: Entry) -> None:
        if isinstance(entry, ModelInput) and not entry.is_internal and len(self.titles) < 2:
            title = title_from(entry.text)
            if title and (not self.titles or title == self.session.title):
                self.titles.append(title)

    def _is_title_right(self) -> bool:
        session, audited = self.session, self.audited
        if not session.title and session.version and audited.dropped_through >= session.version:
            return True  # it was dropped with the texts
        given_mark = "" if audited.is_title_dropped else bytes(session.given_title).hex()
        mark = audited.title if audited.title is not None else given_mark
        if mark:
            return title_mark_of(session.pk, session.title).hex() == mark
        if self.is_title_lost:
            return True  # the message that it was taken from is gone
        if audited.title is None:
            return session.title == (self.titles[0] if self.titles else "")
        return session.title in ("", *self.titles)  # after an empty title set by hand, any later message gives one
