"""What is being answered just now, in whichever process: asked of the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from history.entries import ModelInput
from history.models import Exchange, Message, Session
from history.record import exchanges
from relay.agents.summarising import SUMMARISER
from relay.models import Run

# A program that has made so many calls in a session since one that is still open does not wait for that one.
NEWEST = 8
MOST_OPEN = 2_000


def answering(session_ids: Iterable[UUID]) -> set[UUID]:
    """Those of them with a run that has not ended, in whichever process it runs. One query."""
    wanted = set(session_ids)
    if not wanted:
        return set()
    return set(Run.objects.filter(session__in=wanted, ended_at=None).values_list("session", flat=True))


def open_exchange_of(run: Run) -> Exchange | None:
    """The answer that this run waits for, if it does. Another run may have begun at the same place after it."""
    waiting = Exchange.objects.of(run.session).running().filter(after=run.leaf).order_by("started_at")
    return next((one for one in _calls_of(run, waiting) if one.metadata.get("role") != SUMMARISER), None)


def lost_answer_of(run: Run) -> int | None:
    """The entry that was made of the answer of a run whose process is gone."""
    swept = Exchange.objects.of(run.session).filter(after=run.leaf, end_reason=exchanges.SERVER_LOST)
    return _calls_of(run, swept).values_list("message__seq", flat=True).first()


def _calls_of(run: Run, calls: QuerySet[Exchange]) -> QuerySet[Exchange]:
    """Those that began after the run. After the clock was set back: all of them, where no other run answers there."""
    begun = calls.filter(started_at__gte=run.started_at)
    if run.started_at <= timezone.now() or begun.exists():
        return begun
    others = Run.objects.filter(session=run.session, leaf=run.leaf, ended_at=None).exclude(pk=run.pk)
    return begun if others.exists() else calls


def is_unanswered(session: Session, tip: int, run: Run | None) -> bool:
    """Whether a chat ends at `tip` with a user's message: its answer was stopped or lost before the first word."""
    if run is not None or session.source != Session.Source.CHAT:
        return False
    last = Message.objects.at(session, tip).first()
    while last and last.is_state:
        last = Message.objects.at(session, last.parent_seq).first()
    return last is not None and last.kind == ModelInput.kind and not last.is_internal


# Calls of programs, through the relay. Their sign of life is the journal, so the row names a time to come.


def is_waited_for(session: Session) -> bool:
    """Whether a program waits for an answer in this session. The newest calls alone: a session may have thousands."""
    if session.source != Session.Source.RELAY:
        return False
    calls = Exchange.objects.of(session).order_by("-started_at", "-id")
    newest = calls.values_list("ended_at", "heartbeat_at")[:NEWEST]
    return any(ended is None and until > timezone.now() for ended, until in newest)


def calls_waited_for(session_ids: Collection[UUID]) -> set[tuple[UUID, UUID]]:
    """The open calls of programs in these sessions, each with its session.

    Asked of the index of what is open: by session, a database would go through every call that was ever made there.
    """
    waiting = Exchange.objects.running().filter(heartbeat_at__gt=timezone.now()).order_by("-heartbeat_at")
    found = waiting.values_list("session", "pk")[:MOST_OPEN]
    return {(session, pk) for session, pk in found if session is not None and session in session_ids}
