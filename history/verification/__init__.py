"""Verification of the history: seals, digests and projections of all sessions.

`verify` walks every session entry by entry: body against digest, digest against the chain of seals, columns against the
body, and everything derived from the entries (path, head, calls, counters, search rows, blob links) against the
entries. The audit chain must explain what is missing; its own seals are checked first. Findings are yielded as they are
met; memory does not grow with the number of sessions.

A chain that was cut off at its newest end still fits. A `checkpoint` finds that: a few numbers and a hash over all
sessions, kept elsewhere, with which a later state is compared.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from uuid import UUID

from history.access import audit
from history.models import Exchange, Session
from history.verification.checkpoints import Checkpoint as Checkpoint
from history.verification.checkpoints import checkpoint as checkpoint
from history.verification.checkpoints import compare
from history.verification.rebuilding import rebuild as rebuild
from history.verification.rows import Blobs, audited_state
from history.verification.rows import FindingSeverity as FindingSeverity
from history.verification.rows import VerificationFinding as VerificationFinding
from history.verification.sessions import SessionCheck

Progress = Callable[[int], None]

FINDINGS_PER_SESSION = 1_000
ATTEMPTS = 5


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
    yield from _check_audit()
    if checkpoint is not None:
        yield from compare(checkpoint)
    for session in _all_sessions() if sessions is None else _load_sessions(sessions):
        yield from _check_session(session, blobs, progress)
    if sessions is None:
        yield from _check_inputs(blobs)


def _check_audit() -> Iterator[VerificationFinding]:
    for flaw in audit.flaws():
        yield VerificationFinding(
            None, flaw.seq, f"audit_{flaw.problem}", f"this event of the audit chain is {flaw.problem}"
        )


def _all_sessions() -> Iterator[Session]:
    last, rows = None, Session.objects.order_by("pk")
    while page := list((rows if last is None else rows.filter(pk__gt=last))[:200]):
        yield from page
        last = page[-1].pk


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
        if _is_the_same(now, session):
            break
        session = now
    if progress is not None:
        progress(check.entries)
    yield from findings


def _is_the_same(now: Session, then: Session) -> bool:
    names = ("version", "trimmed_through", "state", "hidden_at", "owner_id", "hold", "title", "expires_at")
    return all(getattr(now, name) == getattr(then, name) for name in names)


def _check_inputs(blobs: Blobs) -> Iterator[VerificationFinding]:
    """Check the blobs of exchanges."""
    last = 0
    rows = Exchange.blobs.through.objects.order_by("pk").values_list("pk", "exchange__session_id", "blob_id")
    while page := list(rows.filter(pk__gt=last)[:500]):
        for _, session_id, name in page:
            if not blobs.is_healthy(name):
                sentence = f"the blob {name[:12]}… that a call was made from is missing or was altered"
                yield VerificationFinding(session_id, 0, "broken_blob", sentence)
        last = page[-1][0]
