"""Drafts of users, what became of them, and the entry that a turn begins with."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext as _

from history.context import ContextOptions
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, JsonObject, ModelInput, Part, Text
from history.errors import NoSuchEntry
from history.models import Message, Session
from history.record import recorder, selectors
from relay.agents.settings import AgentSettings, pick_agent, setting_changes
from relay.agents.turn import Turn
from relay.chat import attachments
from relay.commands import BadCommand, Command, parse, spoken
from relay.errors import RelayError
from relay.live import runs
from relay.models import User
from relay.providers.registry import router
from relay.tools.registry import all_tools
from relay.usage import allowances

MAX_CHARS = 400_000

Client = JsonObject  # address and time of the connection


class NotPossible(RelayError):
    """The request makes no sense here; the text is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
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


def check_draft(draft: Draft) -> None:
    if not settings.CHAT_HISTORY_ENABLED:
        raise NotPossible(_("History is off on this server. The chat accepts no messages."))
    if not draft.text.strip() and not draft.attachments:
        raise NotPossible(_("Write a message first."))
    if len(draft.text) > MAX_CHARS:
        raise NotPossible(_("This message is too long. Attach it as a file."))


def parse_command(draft: Draft) -> Command | None:
    """The slash command that a draft is, if it is one. Refuses drafts that cannot be sent."""
    check_draft(draft)
    try:
        return parse(draft.text, all_tools())
    except BadCommand as error:
        raise NotPossible(str(error)) from error


def text_parts(text: str) -> tuple[Part, ...]:
    return (Text(text=text),) if text.strip() else ()


# The settings that hold at an entry, without all earlier messages.
LAST_TURN = ContextOptions(max_turns=1)


def append_input(
    session: Session, message: ModelInput, agent: AgentSettings, *, after: int, moving: str = ""
) -> recorder.Appended:
    """A message of the user, behind what has changed about the agent since: its instruction, its tools.

    `moving` is the reason for which the head is moved there first, if it is elsewhere.
    """
    with writing():
        before = selectors.snapshot(session, leaf=after, options=LAST_TURN)
        is_elsewhere = bool(moving) and after != read_head(session)
        entries: list[Entry] = [HeadMoved(to=after, reason=moving, at=message.at)] if is_elsewhere else []
        entries += setting_changes(before, agent, at=message.at)
        return recorder.append_many(session, [*entries, message], after=after)[-1]


def append_message(
    user: User,
    session: Session,
    draft: Draft,
    *,
    after: int,
    client: Client,
    on_leaf: bool = False,
    follows: UUID | None = None,
) -> tuple[SendResult, Turn]:
    """The message becomes an entry, and its run a row, in the caller's transaction."""
    allowances.note_message(user)
    agent = pick_agent(draft.agent, otherwise=session.agent)
    message = ModelInput(parts=(*text_parts(spoken(draft.text)), *attachments.parts_of(user, draft.attachments)))
    appended = append_input(session, message, agent, after=after, moving="switch" if on_leaf else "")
    model = choose_model(session, draft.model)
    turn = Turn(session_id=session.pk, user=user, leaf=appended.seq, agent=agent, model=model, client=client)
    run = runs.create_run(turn, follows=follows)
    return SendResult(seq=appended.seq, run=run, is_branch=not appended.moved_head), turn


def read_head(session: Session) -> int:
    return Session.objects.values_list("head", flat=True).get(pk=session.pk)


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
