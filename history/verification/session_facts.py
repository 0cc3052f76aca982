"""Checks of a session's own columns: owner, hold and deletion, title and expiry.

Owner, key and source are compared with the seal that was made when the session began; hold, deletion and a title set by
hand with the audit chain; the automatic title and the expiry are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from history.entries import Entry, ModelInput
from history.models import COPY_UNFINISHED, REMOVAL_STARTED, Session
from history.models.seals import title_mark_of
from history.record.expiry import expiry_of
from history.text.titles import title_from
from history.verification.findings import FindingSeverity, VerificationFinding
from history.verification.rows import Excuses

# Events of earlier versions do not name the moment of a deletion; they were written within the same transaction.
SAME_MOMENT = timedelta(minutes=10)


class SessionFacts:
    """What a session says about itself, and what its entries say while they pass by."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.titles: list[str] = []  # of its messages: the first, or the one that it has
        self.is_title_lost = session.trimmed_through > 0

    def note_entry(self, entry: Entry) -> None:
        if not isinstance(entry, ModelInput) or entry.is_internal:
            return
        if (
            len(self.titles) < 2
            and (title := title_from(entry.text))
            and (not self.titles or title == self.session.title)
        ):
            self.titles.append(title)

    def note_dropped(self) -> None:
        self.is_title_lost = True

    def check_audited(self, excuses: Excuses) -> Iterator[VerificationFinding]:
        session = self.session
        if bytes(session.begin_seal) != session.expected_begin_seal():
            yield self._found("altered_owner", "its owner, key or source is not the one that it began with")
        if session.hold != excuses.is_held:
            state = "held" if session.hold else "not held"
            yield self._found("altered_hold", f"it is {state}, and the audit chain says otherwise")
        yield from self._check_deletion(excuses)

    def _check_deletion(self, excuses: Excuses) -> Iterator[VerificationFinding]:
        hidden_at, told = self.session.hidden_at, excuses.hidden_at
        if hidden_at == COPY_UNFINISHED:
            return
        if hidden_at == REMOVAL_STARTED:
            if not excuses.is_removed:
                yield self._found("altered_deletion", "its removal has begun, and no audit event tells of it")
        elif (hidden_at is None) != (told is None):
            state = "not deleted" if hidden_at is None else "deleted"
            yield self._found("altered_deletion", f"it is {state}, and the audit chain says otherwise")
        elif hidden_at is not None and told is not None and abs(hidden_at - told) > SAME_MOMENT:
            yield self._found("altered_deletion", "it was deleted at another time than the audit chain says")

    def check_derived(self, excuses: Excuses) -> Iterator[VerificationFinding]:
        if not self._is_title_right(excuses):
            yield self._found("altered_title", "its title is neither the automatic one nor one that was set by hand")
        if self.session.expires_at != expiry_of(self.session):
            sentence = "the time until which it is kept does not follow from the rules; the next purge sets it"
            yield VerificationFinding(self.session.pk, 0, "altered_expiry", sentence, FindingSeverity.PROJECTION)

    def _is_title_right(self, excuses: Excuses) -> bool:
        session = self.session
        if not session.title and session.version and excuses.dropped_through >= session.version:
            return True  # it went with the texts
        mark = excuses.title if excuses.title is not None else bytes(session.given_title).hex()
        if mark:
            return title_mark_of(session.pk, session.title).hex() == mark
        if self.is_title_lost:
            return True  # the message that it was taken from is gone
        is_first_wanted = excuses.title is None  # an empty title set by hand lets any later message give one
        wanted = self.titles[:1] if is_first_wanted else ["", *self.titles]
        return session.title in (wanted or [""])

    def _found(self, code: str, sentence: str) -> VerificationFinding:
        return VerificationFinding(self.session.pk, 0, code, sentence)
