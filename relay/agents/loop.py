"""One turn of an agent: ask a model, run the tools it asks for, ask again, until there is an answer or reason to stop.

A run follows its own leaf: whatever happens beside it in the session, each call is made from the path to the entry that
the run itself wrote last. Everything is stored as it happens, so whoever ends a turn in the middle, a person, an error
or the end of the process, loses nothing that was said before.
"""

from __future__ import annotations

from uuid import UUID

from history.entries import ModelInput, ModelOutput, Text
from history.models import Message
from history.record import selectors
from relay.agents.compression import compress_if_requested, run_compression
from relay.agents.model_call import call_model
from relay.agents.saving import read_leaf, store_entries
from relay.agents.settings import RoleName
from relay.agents.tool_calls import run_tool_calls
from relay.agents.turn import StoredAnswer, Turn, TurnObserver
from relay.chat import error_texts
from relay.errors import RelayError
from relay.models import Run
from relay.runtime.async_db import in_database_after_outages
from relay.tools.running import answer_all

# What one role of an agent says to the next. Internal: people see it behind a toggle, the model sees it.
BRIEFINGS: dict[RoleName, str] = {
    "planner": "Before anybody acts: write a short plan for the task above. Do not carry it out yet.",
    "executor": "Carry out the plan above.",
    "reviewer": "Review the answer above: is it complete and right? Name what is wrong or missing, briefly.",
}


async def run_turn(turn: Turn, observer: TurnObserver) -> Run.Outcome:
    """Carry the turn through. Raises TurnFailed, NoSuchModel; cancelled, it stores what there is and goes."""
    leaf = turn.leaf
    if turn.compression:
        return await run_compression(turn, observer, turn.compression)
    asked = await in_database_after_outages(_open_calls, turn.session_id, leaf) if turn.answers else None
    if asked:
        return await _resume(turn, observer, asked)
    for place, role in enumerate(turn.agent.roles):
        if role != "executor" or place > 0:
            leaf = await _brief(turn, observer, role, leaf)
        outcome, leaf = await _speak(turn, observer, role, leaf)
        if outcome is not Run.Outcome.DONE:
            return outcome
    await compress_if_requested(turn, observer, leaf)
    return Run.Outcome.DONE


async def _resume(turn: Turn, observer: TurnObserver, asked: StoredAnswer) -> Run.Outcome:
    """Go on at an answer whose calls are open: somebody has answered its question."""
    outcome, leaf = await run_tool_calls(turn, observer, asked)
    if outcome is None:
        outcome, leaf = await _speak(turn, observer, "executor", leaf)
    return outcome


async def _brief(turn: Turn, observer: TurnObserver, role: RoleName, leaf: int) -> int:
    said = ModelInput(channel="agent", is_internal=True, agent=turn.agent.name, parts=(Text(text=BRIEFINGS[role]),))
    return await store_entries(turn, observer, said, after=leaf)


async def _speak(turn: Turn, observer: TurnObserver, role: RoleName, leaf: int) -> tuple[Run.Outcome, int]:
    for _ in range(turn.agent.max_steps):
        if turn.budget.is_used_up:
            break
        said = await call_model(turn, observer, role, leaf)
        leaf = said.seq
        if not said.output.tool_requests:
            return Run.Outcome.DONE, leaf
        outcome, leaf = await run_tool_calls(turn, observer, said)
        if outcome is not None:
            return outcome, leaf
    return Run.Outcome.LIMIT, leaf


async def close_open_calls(turn: Turn, observer: TurnObserver) -> None:
    """The turn was ended. If that was after an answer was stored and before its tools ran, its calls say so."""
    leaf = await in_database_after_outages(read_leaf, observer.id)
    asked = await in_database_after_outages(_open_calls, turn.session_id, leaf)
    if asked:
        await store_entries(
            turn, observer, answer_all(asked.output.tool_requests, {}, agent=turn.agent.name), after=leaf
        )


async def store_refusal(turn: Turn, observer: TurnObserver, error: RelayError) -> None:
    """No model was asked, and the conversation says why: nobody offers it, or the person's allowance is used up."""
    said = ModelOutput(status="failed", end_reason="refused", error=error_texts.of_error(error), agent=turn.agent.name)
    leaf = await in_database_after_outages(read_leaf, observer.id)
    await store_entries(turn, observer, said, after=leaf)


def _open_calls(session_id: UUID, leaf: int) -> StoredAnswer | None:
    """The answer at the leaf, if its calls wait for somebody."""
    message = Message.objects.at(session_id, leaf).first()
    entry = selectors.entries_of([message])[0] if message else None
    if isinstance(entry, ModelOutput) and entry.tool_requests and entry.status == "complete":
        return StoredAnswer(leaf, entry)
    return None
