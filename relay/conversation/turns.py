"""Where the next answer begins: finding the place, putting the person's words there, and starting a run."""

from __future__ import annotations

from dataclasses import replace

from django.utils import timezone

from history.context import ContextOptions
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelInput
from history.errors import NoSuchEntry
from history.models import Message, Session
from history.record import recorder, selectors
from relay.agents.instructions import setting_changes
from relay.agents.settings import AgentSettings
from relay.agents.turn import Turn
from relay.conversation.drafts import SendResult
from relay.live import groups, runs
from relay.providers.registry import router

# What holds at a place, without reading all that was said before.
LAST_TURN = ContextOptions(max_turns=1)


async def start_answer(
    session: Session, sent: SendResult, turn: Turn | None, *, on_end: runs.OnEnd | None
) -> SendResult:
    """Begin an answer if one is due, and notify all sockets. `sent.run` may be written down already."""
    run = await runs.start_run(turn, on_end=on_end, run_id=sent.run) if turn else None
    groups.notify_session(session.pk)
    return replace(sent, run=run)


def append_input(
    session: Session, said: ModelInput, agent: AgentSettings, *, after: int, moving: str = ""
) -> recorder.Appended:
    """The person's words, behind what has changed about the agent since: its instruction, its tools.

    `moving` is the reason for which the head is moved there first, if it is elsewhere.
    """
    with writing():
        before = selectors.snapshot(session, leaf=after, options=LAST_TURN)
        is_elsewhere = bool(moving) and after != read_head(session)
        entries: list[Entry] = [HeadMoved(to=after, reason=moving, at=said.at)] if is_elsewhere else []
        entries += setting_changes(before, agent, at=said.at)
        return recorder.append_many(session, [*entries, said], after=after)[-1]


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
