"""Cancellation of relayed calls: client disconnects, revoked keys, the end of the process.

After a disconnect a call is cancelled at once, or drained for a while so that the record is complete. Draining is
bounded in time and in number, because the vendor charges for it. Keys are checked twice a second while calls run, which
may take many minutes. When the process stops, new calls get 503 with Retry-After, so that clients go to another process
or come back after the restart.
"""

import asyncio
import logging
import threading
from dataclasses import dataclass, field

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from history.db.process_state import process_state
from history.models import ApiKey
from relay.gateway.call.errors import Refusal

logger = logging.getLogger(__name__)

REVOKED = "The API key was revoked or has expired while the call was running."
STOPPED = "The server was stopped while the call was running."
RETRY_SECONDS = 5
CUT_SECONDS = 2.0  # to write the end of a call that was cut


class CallCancellation:
    """Cancels the task in which it is created. Until `close` it is one of the running calls of this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, key: int) -> None:
        self._loop, self.key = loop, key
        self.task = asyncio.current_task(loop)
        self._timer: asyncio.TimerHandle | None = None
        self._is_cancelled = False
        self.reason = ""  # why the relay itself cancelled the call; empty if the client left
        running = process_state.get(RunningCalls)
        with running.lock:
            running.calls.add(self)

    def handle_disconnect(self) -> None:
        draining = process_state.get(RunningCalls).draining
        if settings.PARLEY_RELAY_ON_DISCONNECT == "drain" and len(draining) < settings.PARLEY_RELAY_DRAINS:
            draining.add(self)
            self._timer = self._loop.call_later(settings.PARLEY_RELAY_DRAIN_SECONDS, self.cancel)
        else:
            self.cancel()

    def cancel(self) -> None:
        if self.task is not None:
            self._is_cancelled = True
            self.task.cancel()

    def end(self, reason: str) -> None:
        """Cancel the call, from any thread. The first reason counts."""
        self._loop.call_soon_threadsafe(self._end, reason)

    def _end(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            self.cancel()

    def uncancel(self) -> bool:
        """Whether the relay cancelled the task; then the task may end normally."""
        if self._is_cancelled and self.task is not None:
            self.task.uncancel()
        return self._is_cancelled

    def close(self) -> None:
        running = process_state.get(RunningCalls)
        with running.lock:
            running.calls.discard(self)
        running.draining.discard(self)
        self.task = None
        if self._timer is not None:
            self._timer.cancel()


@dataclass(eq=False)
class RunningCalls:
    """The relayed calls of this process; `draining` have no client any more."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    calls: set[CallCancellation] = field(default_factory=set)
    draining: set[CallCancellation] = field(default_factory=set)
    is_stopping: bool = False


def end_revoked() -> None:
    """End the calls of keys that are not valid any more: a background job. Without the database nothing is ended."""
    running = process_state.get(RunningCalls)
    with running.lock:
        keys = {call.key for call in running.calls}
    if not keys:
        return
    unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    valid = ApiKey.objects.filter(unexpired, pk__in=keys, revoked_at=None, owner__is_active=True)
    ended = keys - set(valid.values_list("pk", flat=True))
    with running.lock:
        calls = [call for call in running.calls if call.key in ended]
    for call in calls:
        call.end(REVOKED)


def accept_new_calls() -> None:
    process_state.get(RunningCalls).is_stopping = False


def refuse_new_calls() -> None:
    process_state.get(RunningCalls).is_stopping = True


def is_stopping() -> bool:
    return process_state.get(RunningCalls).is_stopping


def check_not_stopping() -> None:
    if is_stopping():
        headers = (("retry-after", str(RETRY_SECONDS)),)
        raise Refusal("The server is restarting. Try again in a few seconds.", "overloaded", headers=headers)


async def finish_calls(seconds: float) -> None:
    """Wait for the calls of this event loop. Cut those that take longer."""
    refuse_new_calls()
    loop, running = asyncio.get_running_loop(), process_state.get(RunningCalls)
    with running.lock:
        calls = {call.task: call for call in running.calls if call.task is not None and call.task.get_loop() is loop}
    if not calls:
        return
    logger.info("Waiting up to %d seconds for %d relayed calls to end.", seconds, len(calls))
    _, unfinished = await asyncio.wait(calls, timeout=seconds)
    for task in unfinished:
        calls[task].end(STOPPED)
    if unfinished:
        logger.warning("Cut %d relayed calls that had not ended.", len(unfinished))
        await asyncio.wait(unfinished, timeout=CUT_SECONDS)
