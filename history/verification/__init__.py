"""Verification of the history: seals, digests and projections of all sessions.

Body against digest, digest against the chain of seals, columns and projections against the body; the audit chain must
explain what is missing. Findings are yielded as they are met, so memory does not grow. A chain that was cut off at its
end still fits: a `checkpoint`, kept elsewhere, finds that.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from django.db.models import Max

from history.access import audit
from history.db.bulk import one_by_one
from history.entries import JsonDict, JsonObject
from history.models import AuditEvent, Exchange, Message, Session
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
    checkpoint: "Checkpoint | None" = None,
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


class SessionState(NamedTuple):
    session: str
    version: int
    seal: str
    begin: str = ""  # the seal of its owner, key and source; checkpoints of earlier versions have none


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Version and last seal of every session, kept outside the database and compared later.

    The root is a hash over all of them, so that a root on paper vouches for the file. The audit chain, whose tip is in
    the checkpoint, must explain what is missing.
    """

    entries: int
    last_message_id: int
    root: str
    audit_seq: int
    audit_seal: str
    sessions: tuple[SessionState, ...]

    def to_json(self) -> JsonDict:
        return {
            "entries": self.entries,
            "last_message_id": self.last_message_id,
            "root": self.root,
            "audit": {"seq": self.audit_seq, "seal": self.audit_seal},
            "sessions": [list(state) for state in self.sessions],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "Checkpoint":
        """Raises ValueError if the value is not a checkpoint."""
        try:
            states = tuple(
                SessionState(str(pk), int(version), str(seal), *map(str, begin))
                for pk, version, seal, *begin in value["sessions"]
            )
            entries, last, root, tip = value["entries"], value["last_message_id"], value["root"], value["audit"]
            return cls(int(entries), int(last), str(root), int(tip["seq"]), str(tip["seal"]), states)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("not a valid checkpoint: use a file written by history verify") from error


def checkpoint() -> Checkpoint:
    """A checkpoint of the record now, without empty sessions and those whose removal has begun."""
    # The tip first: a removal during the reading is then explained by an event after it.
    tip = AuditEvent.objects.order_by("-seq").values_list("seq", "seal").first() or (0, b"")
    rows = Session.objects.filter(version__gt=0).order_by("pk").values_list("pk", "version", "last_seal", "begin_seal")
    states = tuple(
        SessionState(str(pk), version, seal.hex(), bytes(begin).hex())
        for pk, version, seal, begin in rows.iterator(chunk_size=2_000)
    )
    last = Message.objects.aggregate(last=Max("pk"))["last"] or 0
    return Checkpoint(Message.objects.count(), last, root_of(states), tip[0], tip[1].hex(), states)


def root_of(states: Iterable[SessionState]) -> str:
    root = sha256()
    for state in states:
        root.update(" ".join(str(fact) for fact in state if fact != "").encode() + b"\n")
    return root.hexdigest()


def compare(known: Checkpoint) -> Iterator[VerificationFinding]:
    """Yield what is in the checkpoint and not in the record."""
    if root_of(known.sessions) != known.root:
        sentence = "the checkpoint itself was altered: its root does not match"
        yield VerificationFinding(None, 0, "altered_checkpoint", sentence)
    tip = AuditEvent.objects.filter(seq=known.audit_seq, seal=bytes.fromhex(known.audit_seal))
    if known.audit_seq and not tip.exists():
        sentence = "this audit event was the newest at the checkpoint and is missing or altered"
        yield VerificationFinding(None, known.audit_seq, "audit_cut", sentence)
    newest = Message.objects.aggregate(last=Max("pk"))["last"] or 0
    removals = AuditEvent.objects.filter(seq__gt=known.audit_seq, action__in=["remove", "trim"])
    if newest < known.last_message_id and not removals.exists():
        sentence = f"the newest message has the id {newest}; at the checkpoint there was {known.last_message_id}"
        yield VerificationFinding(None, newest, "older_record", sentence)
    for state in known.sessions:
        yield from _compare_session(state)


def _compare_session(state: SessionState) -> Iterator[VerificationFinding]:
    name, version = UUID(state.session), state.version
    session = Session.objects.filter(pk=name).only("version", "trimmed_through", "anchor_seal", "begin_seal").first()
    if session is None:
        if not audited_state(name).is_removed:
            sentence = "the session is missing, and no audit event records its removal"
            yield VerificationFinding(name, version, "missing_session", sentence)
        return
    if state.begin and state.begin != bytes(session.begin_seal).hex():
        yield VerificationFinding(name, 0, "altered_owner", "its owner, key or source differs from the checkpoint")
    if version < session.trimmed_through:
        return
    seal = session.anchor_seal
    if version > session.trimmed_through:
        seal = Message.objects.at(session, version).values_list("seal", flat=True).first()
    if seal is None and not audited_state(name).is_removed:
        yield VerificationFinding(name, version, "missing_entry", "it existed at the checkpoint and is missing")
    elif seal is not None and bytes(seal).hex() != state.seal:
        sentence = "its seal differs from the checkpoint: the history was rewritten"
        yield VerificationFinding(name, version, "rewritten", sentence)
