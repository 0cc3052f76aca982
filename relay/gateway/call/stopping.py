"""Relayed calls under way when the process is stopped: they may end, for a bounded time.

New calls are refused meanwhile (503 with Retry-After), so that clients go to another process or come back after the
restart. What is not done in time is cut and recorded as stopped. `PARLEY_RELAY_STOP_SECONDS` is the time.
"""

from __future__ import annotations

import asyncio
import logging

from relay.gateway.call.disconnects import CallCancellation
from relay.gateway.call.errors import Refusal

logger = logging.getLogger(__name__)

WHY = "The server was stopped while the call was running."
RETRY_SECONDS = 5
# To write the end of a call that was cut.
CUT_SECONDS = 2.0

_running: dict[CallCancellation, asyncio.Task[None]] = {}
_is_stopping = False


def begin_anew() -> None:
    """For a process whose work starts, or starts again."""
    global _is_stopping
    _is_stopping = False


def refuse_new_calls() -> None:
    global _is_stopping
    _is_stopping = True


def check_open() -> None:
    """Raises a Refusal while the process is stopping."""
    if _is_stopping:
        headers = (("retry-after", str(RETRY_SECONDS)),)
        raise Refusal("The server is being stopped. Try again in a few seconds.", "overloaded", headers=headers)


def is_stopping() -> bool:
    return _is_stopping


def watch(call: CallCancellation) -> None:
    task = asyncio.current_task()
    if task is not None:
        _running[call] = task


def unwatch(call: CallCancellation) -> None:
    _running.pop(call, None)


async def let_calls_end(seconds: float) -> None:
    """Wait for the calls of this event loop. Cut those that take longer."""
    refuse_new_calls()
    loop = asyncio.get_running_loop()
    tasks = {task for task in _running.values() if task.get_loop() is loop}
    if not tasks:
        return
    logger.info("Waiting up to %d seconds for %d relayed calls to end.", seconds, len(tasks))
    _, unfinished = await asyncio.wait(tasks, timeout=seconds)
    for call in [call for call, task in _running.items() if task in unfinished]:
        call.stop()
    if unfinished:
        logger.warning("Cut %d relayed calls that had not ended.", len(unfinished))
        await asyncio.wait(unfinished, timeout=CUT_SECONDS)
