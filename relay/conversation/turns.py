"""Turns: drafts of users, the entry that a message follows, and the entry that a turn begins with.

A page and a program name the entry that they showed last (`after`). While the request is on its way, the answer that
they were showing may end. Such a message continues that answer: it follows the last entry of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.context.values import ContextOptions
from history.db.prepared import prepared
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, JsonObject, ModelInput, Part, Text
from history.errors import NoSuchEntry
from history.models import Message, Session
from history.record import recorder, selectors
from history.record.paths import behind_notes, is_on_way, newest_descendant
from relay.agents.settings import pick_agent, setting_changes
from relay.agents.turn import TurnInput
from relay.chat import attachments
from relay.commands import BadCommand, Command, parse, unescape_slashes
from relay.errors import RelayError
from relay.live import runs
from relay.models import Agent, Run, User
from relay.providers.registry import router
from relay.tools.base import all_tools
from relay.usage import allowances

MAX_CHARS = 400_000
# A client that is further behind than so many of the newest runs has not merely missed the end of an answer.
MOST_RUNS = 20
FURTHEST = 100_000  # how far a branch is followed to its end in one step

Client = JsonObject  # address and time of the connection


class NotPossible(RelayError):
    """The request makes no sense here; the text is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDraft:
    """A message as its writer left it. `agent` and `model` empty: as before in this session, or the default."""

    text: str
    attachments: Sequence[str] = ()
    agent: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What became of a draft: an entry that `run` answers, a place in the queue, or only some words for the user."""

    seq: int = 0
    run: UUID | None = None
    is_branch: bool = False
    is_queued: bool = False
    queued_id: int = 0
    words: str = ""
    go_to: UUID | None = None


def check_draft(draft: MessageDraft) -> None:
    if not settings.CHAT_HISTORY_ENABLED:
        raise NotPossible(_("History is off on this server. The chat accepts no messages."))
    if not draft.text.strip() and not draft.attachments:
        raise NotPossible(_("Write a message first."))
    if len(draft.text) > MAX_CHARS:
        raise NotPossible(_("This message is too long. Attach it as a file."))


def parse_command(draft: MessageDraft) -> Command | None:
    """The slash command that a draft is, if it is one. Refuses drafts that cannot be sent."""
    check_draft(draft)
    try:
        return parse(draft.text, all_tools())
    except BadCommand as error:
        raise NotPossible(str(error)) from error


def text_parts(text: str) -> tuple[Part, ...]:
    return (Text(text=text),) if text.strip() else ()


LAST_TURN = ContextOptions(max_turns=1)  # the settings that hold at an entry, without all earlier messages


def append_input(
    session: Session, message: ModelInput, agent: Agent, *, after: int, moving: str = ""
) -> recorder.Appended:
    """A message of the user, behind what has changed about the agent since: its instruction, its tools.

    `moving` is the reason for which the head is moved there first, if it is elsewhere.
    """
    with writing(savepoint=False):
        before = selectors.snapshot(session, leaf=after, options=LAST_TURN)
        is_elsewhere = bool(moving) and after != read_head(session)
        entries: list[Entry] = [HeadMoved(to=after, reason=moving, at=message.at)] if is_elsewhere else []
        entries += setting_changes(before, agent, at=message.at)
        return recorder.append_many(session, [*entries, message], after=after)[-1]


def append_message(
    user: User,
    session: Session,
    draft: MessageDraft,
    *,
    after: int,
    client: Client,
    on_leaf: bool,
    follows: UUID | None,
) -> tuple[SendResult, TurnInput]:
    """The message becomes an entry, and its run a row, in the caller's transaction."""
    allowances.note_message(user)
    agent = pick_agent(draft.agent, otherwise=session.agent)
    message = ModelInput(
        parts=(*text_parts(unescape_slashes(draft.text)), *attachments.parts_of(user, draft.attachments))
    )
    appended = append_input(session, message, agent, after=after, moving="switch" if on_leaf else "")
    model = choose_model(session, draft.model)
    turn = TurnInput(session_id=session.pk, user=user, leaf=appended.seq, agent=agent, model=model, client=client)
    run = runs.create_run(turn, follows=follows)
    return SendResult(seq=appended.seq, run=run, is_branch=not appended.moved_head), turn


def read_head(session: Session) -> int:
    return selectors.version_and_head.get(session.pk)[1]


def choose_model(session: Session, picked: str) -> str:
    """As the user picked it, or as they picked it last time in this session. Raises NoSuchModel for a new pick."""
    if picked:
        router().route(picked)
    if picked and session.metadata.get("model") != picked:
        session.metadata = {**session.metadata, "model": picked}
        Session.objects.filter(pk=session.pk).update(metadata=session.metadata, changed_at=timezone.now())
    return picked or str(session.metadata.get("model", ""))


def get_message(session: Session, seq: int) -> Message:
    found = Message.objects.at(session, seq).first()
    if found is None:
        raise NoSuchEntry(f"session {session.pk} has no entry {seq}")
    return found


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
    while following := _runs_following(run.pk):
        run = following[0]
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
    end = session.head if is_current else newest_descendant(session, place.seq, steps=FURTHEST)
    run = find_run_answering(session_id, end)
    return InsertPosition(run.leaf, run) if run else InsertPosition(end)


def last_run_at(session_id: UUID, leaf: int) -> UUID | None:
    ended = Run.objects.filter(session=session_id, leaf=leaf, ended_at__isnull=False)
    return ended.order_by("-started_at").values_list("pk", flat=True).first()


def find_run_answering(session_id: UUID, after: int) -> Run | None:
    """The run with `after` on its path: between the entry that it answers and the one that it wrote last."""
    return next((run for run in Run.objects.running_in(session_id) if _is_within(run, after)), None)


def is_unanswered(session: Session, tip: int, run: Run | None) -> bool:
    """Whether a chat ends at `tip` with a message that has no answer: it was stopped or lost before its first word."""
    if run is not None or session.source != Session.Source.CHAT:
        return False
    last = _facts_of(session.pk, tip)
    while last and last[0][0]:
        last = _facts_of(session.pk, last[0][1])
    return bool(last) and last[0][2] == ModelInput.kind and not last[0][3]


@prepared
def _facts_of(session_id: UUID, seq: int) -> QuerySet[Message, tuple[bool, int, str, bool]]:
    return Message.objects.at(session_id, seq).values_list("is_state", "parent_seq", "kind", "is_internal")


def _run_shown(session_id: UUID, seen: ViewerPosition) -> Run | None:
    run = _run_in.first(session_id, seen.run) if seen.run else None
    return run if run and _is_within(run, seen.after) else None


@prepared
def _run_in(session_id: UUID, run_id: UUID) -> QuerySet[Run]:
    return Run.objects.filter(pk=run_id, session=session_id)


@prepared
def _runs_following(run_id: UUID) -> QuerySet[Run]:
    return Run.objects.filter(follows=run_id)[:1]


def _run_ended(session_id: UUID, seen: ViewerPosition) -> Run | None:
    """The run whose end the writer missed: `after` is behind the head, and that run wrote what follows it.

    Or the writer saw its end, and in the queue the message that has been sent since.
    """
    if seen.on_leaf or seen.after == selectors.version_and_head.get(session_id)[1]:
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
