"""The entry that a message follows, resolved from what its writer saw.

A page and a program name the entry that they showed last (`after`). While the request is on its way, the answer that
they were showing may end. Such a message continues that answer: it follows the last entry of the run.
"""

from dataclasses import dataclass
from uuid import UUID

from history.entries import ModelInput
from history.models import Message, Session
from history.record.branches import behind_notes, newest_below
from history.record.paths import is_on_way
from relay.models import Run

# A client that is further behind than so many of the newest runs has not merely missed the end of an answer.
MOST_RUNS = 20
# How far a branch is followed to its end in one step.
FURTHEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerPosition:
    """What a writer saw: the last entry, the run that was being answered there, and whether a branch was chosen."""

    after: int
    run: UUID | None = None
    on_leaf: bool = False


@dataclass(frozen=True, slots=True)
class InsertPosition:
    """The entry that a message follows, and the run that is still writing behind it."""

    seq: int
    run: Run | None = None


def find_insert_position(session_id: UUID, seen: ViewerPosition) -> InsertPosition:
    """Resolve what a writer saw. Call it with the session locked, so that no run ends in between."""
    run = _run_shown(session_id, seen) or find_run_answering(session_id, seen.after) or _run_ended(session_id, seen)
    if run is None:
        return InsertPosition(seen.after)
    # A message that waited for this run was sent at its end: the writer saw it in the queue.
    while following := Run.objects.filter(follows=run.pk).first():
        run = following
    if run.ended_at is None:
        return InsertPosition(run.leaf, run)
    return InsertPosition(behind_notes(session_id, run.leaf))


def find_branch_end(session_id: UUID, seen: ViewerPosition) -> InsertPosition:
    """The end of the conversation that a writer saw, where its queue continues: the head, or the end of that branch."""
    place = find_insert_position(session_id, seen)
    if place.run is not None:
        return place
    session = Session.objects.get(pk=session_id)
    is_current = place.seq == 0 or Message.objects.at(session, place.seq).filter(on_path=True).exists()
    end = session.head if is_current else newest_below(session, place.seq, steps=FURTHEST)
    run = find_run_answering(session_id, end)
    return InsertPosition(run.leaf, run) if run else InsertPosition(end)


def last_run_at(session_id: UUID, leaf: int) -> UUID | None:
    """The run that ended there, if one did."""
    ended = Run.objects.filter(session=session_id, leaf=leaf, ended_at__isnull=False)
    return ended.order_by("-started_at").values_list("pk", flat=True).first()


def find_run_answering(session_id: UUID, after: int) -> Run | None:
    """The run with `after` on its path: between the entry that it answers and the one that it wrote last."""
    return next((run for run in Run.objects.running_in(session_id) if _is_within(run, after)), None)


def is_unanswered(session: Session, tip: int, run: Run | None) -> bool:
    """Whether a chat ends at `tip` with a message that has no answer: it was stopped or lost before its first word."""
    if run is not None or session.source != Session.Source.CHAT:
        return False
    last = Message.objects.at(session, tip).first()
    while last and last.is_state:
        last = Message.objects.at(session, last.parent_seq).first()
    return last is not None and last.kind == ModelInput.kind and not last.is_internal


def _run_shown(session_id: UUID, seen: ViewerPosition) -> Run | None:
    run = Run.objects.filter(pk=seen.run, session=session_id).first() if seen.run else None
    return run if run and _is_within(run, seen.after) else None


def _run_ended(session_id: UUID, seen: ViewerPosition) -> Run | None:
    """The run whose end the writer missed: `after` is behind the head, and that run wrote what follows it.

    Or the writer saw its end, and in the queue the message that has been sent since.
    """
    if seen.on_leaf or seen.after == Session.objects.values_list("head", flat=True).get(pk=session_id):
        return None
    ended = Run.objects.filter(session=session_id, ended_at__isnull=False, origin__lte=seen.after, leaf__gte=seen.after)
    for run in ended.order_by("-started_at")[:MOST_RUNS]:
        is_current = Message.objects.at(session_id, run.leaf).filter(on_path=True).exists()
        is_behind = run.leaf > seen.after or Run.objects.filter(follows=run.pk).exists()
        if is_current and is_behind and _is_within(run, seen.after):
            return run
    return None


def _is_within(run: Run, seq: int) -> bool:
    return run.origin <= seq <= run.leaf and is_on_way(run.session_id, seq, to=run.leaf)
