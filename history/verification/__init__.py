"""Verification of the history: seals, digests and projections of all sessions.

Body against digest, digest against the chain of seals, columns and projections against the body; the audit chain must
explain what is missing. Findings are yielded as they are met, so memory does not grow. A chain that was cut off at its
end still fits: a `checkpoint`, kept elsewhere, finds that.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from uuid import UUID

from history.access import audit
from history.db.bulk import one_by_one
from history.models import Exchange, Session
from history.verification.checkpoints import Checkpoint, checkpoint, compare
from history.verification.projections_check import rebuild
from history.verification.rows import Blobs, FindingSeverity, VerificationFinding, audited_state
from history.verification.sessions import SessionCheck

__all__ = ["Checkpoint", "FindingSeverity", "VerificationFinding", "checkpoint", "rebuild", "verify"]

Progress = Callable[[int], None]

FINDINGS_PER_SESSION = 1_000
ATTEMPTS = 5
COMPARED = ("version", "trimmed_through", "state", "hidden_at", "owner_id", "hold", "title", "expires_at")
INPUT_LINK = ("blob_id", "exchange__session_id")


def verify(
    *,
    sessions: Iterable[Session | UUID] | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Iterator[VerificationFinding]:
    """Yield what is wrong. Without `sessions`: in all of them, and in the inputs of exchanges.

    `progress` is called with the number of entries of each checked session.
    """
    blobs = Blobs()
    for flaw in audit.flaws():
        sentence = f"this event of the audit chain is {flaw.problem}"
        yield VerificationFinding(None, flaw.seq, f"audit_{flaw.problem}", sentence)
    if checkpoint is not None:
        yield from compare(checkpoint)
    for session in one_by_one(Session.objects.all(), page=200) if sessions is None else _load_sessions(sessions):
        yield from _check_session(session, blobs, progress)
    if sessions is None:
        for link in one_by_one(Exchange.blobs.through.objects.select_related("exchange").only(*INPUT_LINK), page=500):
            if not blobs.is_healthy(link.blob_id):
                sentence = f"the blob {link.blob_id[:12]}… with the content of a call is missing or was altered"
                yield VerificationFinding(link.exchange.session_id, 0, "broken_blob", sentence)


def _load_sessions(sessions: Iterable[Session | UUID]) -> Iterator[Session]:
    for session in sessions:
        yield from Session.objects.filter(pk=session.pk if isinstance(session, Session) else session)


def _check_session(session: Session, blobs: Blobs, progress: Progress | None) -> Iterator[VerificationFinding]:
    """Check one session. If it changed during the check and something seemed wrong, check it again."""
    findings: list[VerificationFinding] = []
    for _ in range(ATTEMPTS):
        if session.state == Session.State.REMOVING and audited_state(session.pk).is_removed:
            return
        check = SessionCheck(session, blobs)
        findings = list(islice(check.check(), FINDINGS_PER_SESSION))
        now = Session.objects.filter(pk=session.pk).first() if findings else session
        if now is None:
            return
        if all(getattr(now, name) == getattr(session, name) for name in COMPARED):
            break
        session = now
    if progress is not None:
        progress(check.entries)
    yield from findings
