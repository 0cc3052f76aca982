"""Messages that wait for the end of an answer, in the order in which they were written.

A row is deleted in the transaction that appends its message, so a crash neither loses nor repeats it. A tool command is
a row while it is carried out, also where nothing waits before it. After a run that did not end well the rows are held:
nothing is sent automatically until the owner decides. A new message joins the queue behind them and releases them, so
the order stays. A message that is refused (its agent or a file is gone) is held alone, with the reason, and does not
keep those behind it from being sent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.db.prepared import prepared
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelInput, ModelOutput, ToolRequest
from history.errors import HistoryError
from history.models import Session
from history.record import recorder, writer
from relay.agents.settings import pick_agent
from relay.agents.turn import TurnInput
from relay.chat import attachments
from relay.commands import Command
from relay.conversation import turns
from relay.conversation.turns import MessageDraft, NotPossible, SendResult, ViewerPosition
from relay.errors import RelayError
from relay.live import groups, runs
from relay.models import QueuedMessage, Run, User
from relay.models.runs import INTERRUPTED
from relay.providers.registry import router
from relay.runtime import process_locks
from relay.runtime.async_db import in_database, in_database_after_outages, store_once
from relay.runtime.event_loop import start_task
from relay.tools.base import ToolContext, all_tools
from relay.tools.running import run_calls
from relay.usage import allowances

logger = logging.getLogger(__name__)

MAX_QUEUED = 20


def enqueue(user: User, session: Session, draft: MessageDraft, after: int) -> QueuedMessage:
    """Put a message behind those that wait there already, and release these: their owner continues."""
    if QueuedMessage.objects.filter(session=session.pk).count() >= MAX_QUEUED:
        raise NotPossible(_("Too many messages are waiting. Wait for the answer, or stop it."))
    # What cannot be sent is refused while its writer is still there.
    attachments.parts_of(user, draft.attachments)
    pick_agent(draft.agent, otherwise=session.agent)
    if draft.model:
        router().route(draft.model)
    waiting = [row.pk for row in QueuedMessage.objects.sendable(session.pk, after)]
    QueuedMessage.objects.filter(pk__in=waiting, held_at__isnull=False).update(held_at=None)
    return QueuedMessage.objects.create(
        session=session,
        owner=user,
        text=draft.text,
        attachments=list(draft.attachments),
        agent=draft.agent,
        model=draft.model,
        after=after,
    )


async def unqueue(session: Session, *, queued_id: int | None = None) -> int:
    """Withdraw one message, or all of them; how many there were."""
    rows = QueuedMessage.objects.filter(session=session.pk, **{} if queued_id is None else {"pk": queued_id})

    def delete() -> int:
        with writing():
            return rows.delete()[0]

    withdrawn = await in_database(delete)
    groups.notify_session(session.pk)
    return withdrawn


def _hold(row: QueuedMessage, reason: str) -> None:
    """It was refused, or not carried out to its end: it waits until its owner decides."""
    with writing():
        QueuedMessage.objects.filter(pk=row.pk).hold_with_error(reason)


async def start_answer(session: Session, sent: SendResult, turn: TurnInput | None) -> SendResult:
    """Begin an answer if one is due, and notify all sockets. At its end, the next queued message is sent.

    `sent.run` may have a row already.
    """
    if turn:
        run_id, _task = await runs.start_run(turn, send_queued_after, run_id=sent.run)
        sent = replace(sent, run=run_id)
    groups.notify_session(session.pk)
    return sent


def send_queued_after(task: asyncio.Task[Run | None]) -> None:
    """A run has ended: if it ended well, send the next message that waits for it."""
    run = None if task.cancelled() else task.result()
    if run and run.has_queue and run.outcome in (Run.Outcome.DONE, Run.Outcome.LIMIT):
        start_task(_send_queued_after(run))


async def _send_queued_after(run: Run) -> None:
    seen = ViewerPosition(after=run.leaf, run=run.pk, on_leaf=True)
    try:
        await send_next(run.owner_id, run.session_id, seen, take=in_database_after_outages)
    except Exception:
        logger.exception("The action after a run failed.")


async def send_queued(user: User, session: Session, *, after: int, run: UUID | None = None) -> SendResult:
    """The owner sends what waits, held or not, in order: the first now, the others as the answers end."""
    seen = ViewerPosition(after=after, run=run, on_leaf=True)

    def release() -> None:
        with writing():
            writer.lock([session.pk])
            QueuedMessage.objects.release_all(session.pk, turns.find_branch_end(session.pk, seen).seq)

    await in_database(release)
    return await send_next(user.pk, session.pk, seen, is_requested=True) or SendResult()


class _Refused(Exception):
    def __init__(self, row: QueuedMessage, error: RelayError | HistoryError) -> None:
        super().__init__(str(error))
        self.row, self.error = row, error


async def send_next(
    owner_id: int,
    session_id: UUID,
    seen: ViewerPosition,
    *,
    is_requested: bool = False,
    take: Callable[..., Awaitable[Any]] = in_database,
) -> SendResult | None:
    """Send the oldest message that waits there, and further ones as long as they are tool commands.

    What is refused is held with the reason, and those behind it are sent. If nothing could be sent that a user has
    requested, the first error is raised. `take` waits for the database where no user waits for us.
    """
    follows, refused = seen.run, None
    while True:
        try:
            carry_out = await take(_take, owner_id, session_id, seen, follows)
            if carry_out is None:
                break
            sent: SendResult = await carry_out()
        except _Refused as refusal:
            refused = refused or refusal.error
            await in_database(_hold, refusal.row, type(refusal.error).__name__[:40])
            groups.notify_session(session_id)
            continue
        if sent.run:
            return sent
        seen, refused = replace(seen, after=sent.seq, run=None), None
    if refused is not None and is_requested:
        raise refused
    return None


def _take(
    owner_id: int, session_id: UUID, seen: ViewerPosition, follows: UUID | None
) -> Callable[[], Awaitable[SendResult]] | None:
    """What is to be done for the oldest message of that conversation.

    It is removed and appended in one transaction, or claimed if it is a tool command.
    """
    # Mostly nothing waits. A message that was queued before the run ended is seen: the end waits for its transaction.
    if not _first_queued(session_id):
        return None
    with writing():
        owned = Session.objects.select_related("owner").filter(
            pk=session_id, owner_id=owner_id, state=Session.State.OPEN
        )
        if (session := owned.first()) is None:
            return None
        writer.lock([session_id])
        place = turns.find_branch_end(session_id, seen)
        waiting = QueuedMessage.objects.sendable(session_id, place.seq)
        if place.run is not None or not waiting or (row := waiting[0]).held_at is not None:
            return None
        try:
            draft = MessageDraft(text=row.text, attachments=row.attachments, agent=row.agent, model=row.model)
            command = turns.parse_command(draft)
            if command is not None and command.is_tool:
                tool = ToolCommand(session.owner, session, row, command, place.seq)
                return tool.carry_out if tool.claim() else None
            QueuedMessage.objects.filter(pk=row.pk).delete()
            follows = follows or turns.last_run_at(session_id, place.seq)
            sent, turn = turns.append_message(
                session.owner, session, draft, after=place.seq, client={}, on_leaf=True, follows=follows
            )
            return partial(start_answer, session, sent, turn)
        except (RelayError, HistoryError) as error:
            raise _Refused(row, error) from error


@prepared
def _first_queued(session_id: UUID) -> QuerySet[QueuedMessage, int]:
    return QueuedMessage.objects.filter(session=session_id).values_list("pk", flat=True)[:1]


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """A tool command in the queue. It leaves the queue when what was typed, the call and its result are recorded."""

    user: User
    session: Session
    row: QueuedMessage
    command: Command
    after: int
    on_leaf: bool = True

    def claim(self) -> bool:
        """Whether this process carries it out; true for exactly one of those that try."""
        free = QueuedMessage.objects.filter(pk=self.row.pk, claimed_at=None)
        return bool(free.update(claimed_at=timezone.now(), process=process_locks.name_here()))

    async def carry_out(self) -> SendResult:
        try:
            return await self._call_tool()
        except (RelayError, HistoryError) as error:
            raise _Refused(self.row, error) from error
        except BaseException:
            await in_database(_hold, self.row, INTERRUPTED)
            raise

    async def carry_out_typed(self) -> SendResult:
        """The same for its writer, who gets the reason of a refusal. Then send what waits behind it."""
        groups.notify_session(self.session.pk)
        try:
            sent = await self.carry_out()
        except _Refused as refusal:
            await unqueue(self.session, queued_id=self.row.pk)
            raise refusal.error from None
        await send_next(self.user.pk, self.session.pk, ViewerPosition(after=sent.seq, on_leaf=True))
        return sent

    async def _call_tool(self) -> SendResult:
        await in_database(allowances.note_message, self.user)
        request = self.command.as_request(f"typed-{uuid4().hex[:12]}")
        context = ToolContext(user=self.user, session_id=self.session.pk, agent=self.session.agent, by_hand=True)
        results = await run_calls([request], toolbox=all_tools(), context=context)
        entries = [results, *context.kept_by(results)]
        started_at = results.results[0].started_at or results.at
        sent = await store_once(partial(self._record, request, entries, started_at))
        groups.notify_session(self.session.pk)
        return sent

    def _record(self, request: ToolRequest, results: Sequence[Entry], at: datetime, *, is_repeated: bool) -> SendResult:
        typed = {"source": "command"}
        entries: list[Entry] = [
            ModelInput(parts=turns.text_parts(self.row.text), metadata=typed, at=at),
            ModelOutput(parts=(request,), end_reason="tool_use", metadata=typed, at=at),
            *results,
        ]
        with writing():
            is_removed, _rows = QueuedMessage.objects.filter(pk=self.row.pk).delete()
            if is_repeated and not is_removed:
                return SendResult(seq=turns.read_head(self.session))
            if self.on_leaf and self.after != turns.read_head(self.session):
                entries.insert(0, HeadMoved(to=self.after, reason="switch", at=at))
            appended = recorder.append_many(self.session, entries, after=self.after)[-1]
        return SendResult(seq=appended.seq, is_branch=not appended.moved_head)
