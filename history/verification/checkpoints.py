"""Checkpoints to be kept outside the database, and their later comparison.

Every session is in it with its version and last seal, and the root is a hash over all of them, so that a root written
on paper vouches for a file that lies anywhere. A session that is gone must have been removed by policy, and an entry
must still be there or have been trimmed: the audit chain knows, and its own tip is part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Max

from history.models import AuditEvent, Message, Session
from history.verification.findings import VerificationFinding
from history.verification.rows import excuses_for


class SessionState(NamedTuple):
    """How far one session has come."""

    session: str
    version: int
    seal: str
    begin: str = ""  # the seal of its owner, key and source; checkpoints of earlier versions have none


@dataclass(frozen=True, slots=True)
class Checkpoint:
    entries: int
    last_message_id: int
    root: str
    audit_seq: int
    audit_seal: str
    sessions: tuple[SessionState, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": self.entries,
            "last_message_id": self.last_message_id,
            "root": self.root,
            "audit": {"seq": self.audit_seq, "seal": self.audit_seal},
            "sessions": [list(standing) for standing in self.sessions],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Checkpoint:
        """Raises ValueError for something that is no checkpoint."""
        try:
            standings = tuple(
                SessionState(str(pk), int(version), str(seal), *map(str, begin))
                for pk, version, seal, *begin in value["sessions"]
            )
            entries, last, root, tip = value["entries"], value["last_message_id"], value["root"], value["audit"]
            return cls(int(entries), int(last), str(root), int(tip["seq"]), str(tip["seal"]), standings)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("this is no checkpoint: give the file that verify wrote") from error


def checkpoint() -> Checkpoint:
    """The record as it stands now. Empty sessions are left out, and so are those whose removal has begun."""
    # The tip first: what is removed while we read is then explained by an event after it.
    tip = AuditEvent.objects.order_by("-seq").values_list("seq", "seal").first() or (0, b"")
    rows = Session.objects.filter(version__gt=0).order_by("pk").values_list("pk", "version", "last_seal", "begin_seal")
    standings = tuple(
        SessionState(str(pk), version, seal.hex(), bytes(begin).hex())
        for pk, version, seal, begin in rows.iterator(chunk_size=2_000)
    )
    last = Message.objects.aggregate(last=Max("pk"))["last"] or 0
    return Checkpoint(Message.objects.count(), last, root_of(standings), tip[0], tip[1].hex(), standings)


def root_of(standings: Iterable[SessionState]) -> str:
    root = sha256()
    for standing in standings:
        root.update(" ".join(str(fact) for fact in standing if fact != "").encode() + b"\n")
    return root.hexdigest()


def compare(known: Checkpoint) -> Iterator[VerificationFinding]:
    """What the checkpoint knows and the record does not."""
    if root_of(known.sessions) != known.root:
        yield VerificationFinding(
            None, 0, "altered_checkpoint", "the checkpoint itself was altered: its root does not fit"
        )
    if known.audit_seq and not _has_event(known):
        sentence = "this event of the audit chain was the newest at the checkpoint, and is gone or altered"
        yield VerificationFinding(None, known.audit_seq, "audit_cut", sentence)
    newest = Message.objects.aggregate(last=Max("pk"))["last"] or 0
    if newest < known.last_message_id and not _something_went_since(known):
        sentence = f"the newest message has the id {newest}; at the checkpoint there was {known.last_message_id}"
        yield VerificationFinding(None, newest, "older_record", sentence)
    for standing in known.sessions:
        yield from _compare_session(standing)


def _has_event(known: Checkpoint) -> bool:
    return AuditEvent.objects.filter(seq=known.audit_seq, seal=bytes.fromhex(known.audit_seal)).exists()


def _something_went_since(known: Checkpoint) -> bool:
    return AuditEvent.objects.filter(seq__gt=known.audit_seq, action__in=["remove", "trim"]).exists()


def _compare_session(standing: SessionState) -> Iterator[VerificationFinding]:
    name, version = UUID(standing.session), standing.version
    session = Session.objects.filter(pk=name).only(*_COMPARED).first()
    if session is None:
        if not excuses_for(name).is_removed:
            yield VerificationFinding(
                name, version, "missing_session", "the session is gone, and no audit event tells of its removal"
            )
        return
    if standing.begin and standing.begin != bytes(session.begin_seal).hex():
        yield VerificationFinding(name, 0, "altered_owner", "its owner, key or source is not the one of the checkpoint")
    if version < session.trimmed_through:
        return
    seal = _seal_at(session, version)
    if seal is None and not excuses_for(name).is_removed:
        yield VerificationFinding(name, version, "missing_entry", "it was there at the checkpoint and is missing")
    elif seal is not None and seal.hex() != standing.seal:
        yield VerificationFinding(
            name, version, "rewritten", "its seal is not the one of the checkpoint: history was written anew"
        )


_COMPARED = ("version", "trimmed_through", "anchor_seal", "hidden_at", "begin_seal")


def _seal_at(session: Session, seq: int) -> bytes | None:
    if seq == session.trimmed_through:
        return bytes(session.anchor_seal)
    seal = Message.objects.at(session, seq).values_list("seal", flat=True).first()
    return None if seal is None else bytes(seal)
