"""What is to be done with a session that lives on: decided once from its outline, carried out step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from history.models import Message, Session
from history.retention import turns


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """What is to be done with one session: cut after entry `cut`, and leave the entries that still hold."""

    session_id: UUID
    version: int
    cut: int
    outline: turns.Outline

    def entries(self) -> QuerySet[Message]:
        return entries_through(self.session_id, self.cut, leaving=self.outline.still_holding(self.cut))


def entries_through(session_id: UUID, cut: int, *, leaving: Sequence[int]) -> QuerySet[Message]:
    return Message.objects.of(session_id).filter(seq__lte=cut).exclude(seq__in=leaving)


def outline_of(session: Session) -> turns.Outline:
    outline = turns.Outline(trimmed_through=session.trimmed_through, head=session.head)
    rows = Message.objects.of(session).order_by("seq").values_list("seq", "parent_seq", "kind")
    for seq, parent, kind in rows.iterator(chunk_size=2_000):
        outline.add(seq, parent, kind)
    return outline


def lock_if_unchanged(plan: TrimPlan) -> Session | None:
    """The session under a lock; None when it has gone on since the plan was made, or is held."""
    locked = Session.objects.select_for_update().filter(pk=plan.session_id, version=plan.version, hold=False)
    return locked.first()
