"""The loop of an agent: call a model, run the tools that it calls, call it again, until a turn is answered.

A run follows its own leaf: each call is made from the path to the entry that the run itself wrote last, also when other
branches of the session grow. Everything is stored as it happens, so a turn that a user, an error or the end of the
process ends in the middle loses nothing.
"""

from uuid import UUID

from history.entries import ModelInput, ModelOutput, Text
from history.models import Message
from history.record import selectors
from relay.agents.compression import compress_if_requested, run_compression
from relay.agents.model_call import call_model
from relay.agents.settings import RoleName
from relay.agents.tool_calls import run_tool_calls
from relay.agents.turn import StoredAnswer, Turn, TurnObserver, read_leaf, store_entries
from relay.chat import error_texts
from relay.errors import RelayError
from relay.models import Run
from relay.runtime.async_db import in_database_after_outages
from relay.tools.running import answer_all

# Messages from one role of an agent to the next: internal, so pages show them behind a toggle.
BRIEFINGS: dict[RoleName, str] = {
    "planner": "Before anybody acts: write a short plan for the task above. Do not carry it out yet.",
    "executor": "Carry out the plan above.",
    "reviewer": "Review the answer above: is it complete and right? Name what is wrong or missing, briefly.",
}


async def run_turn(turn: Turn, observer: TurnObserver) -> Run.Outcome:
    """Run the whole turn. Raises TurnFailed and NoSuchModel. If it is cancelled, partial answers are stored."""
    leaf = turn.leaf
    if turn.compression:
        return await run_compression(turn, observer, turn.compression)
    waiting = await in_database_after_outages(_open_calls, turn.session_id, leaf) if turn.answers else None
    if waiting:
        return await _resume(turn, observer, waiting)
    for place, role in enumerate(turn.agent.roles):
        if role != "executor" or place > 0:
            leaf = await _brief(turn, observer, role, leaf)
        outcome, leaf = await _answer(turn, observer, role, leaf)
        if outcome is not Run.Outcome.DONE:
            return outcome
    await compress_if_requested(turn, observer, leaf)
    return Run.Outcome.DONE


async def _resume(turn: Turn, observer: TurnObserver, waiting: StoredAnswer) -> Run.Outcome:
    """Continue an answer whose calls are open: the user has answered its question."""
    outcome, leaf = await run_tool_calls(turn, observer, waiting)
    if outcome is None:
        outcome, leaf = await _answer(turn, observer, "executor", leaf)
    return outcome


async def _brief(turn: Turn, observer: TurnObserver, role: RoleName, leaf: int) -> int:
    briefing = ModelInput(channel="agent", is_internal=True, agent=turn.agent.name, parts=(Text(text=BRIEFINGS[role]),))
    return await store_entries(turn, observer, briefing, after=leaf)


async def _answer(turn: Turn, observer: TurnObserver, role: RoleName, leaf: int) -> tuple[Run.Outcome, int]:
    for _ in range(turn.agent.max_steps):
        if turn.budget.is_used_up:
            break
        answer = await call_model(turn, observer, role, leaf)
        leaf = answer.seq
        if not answer.output.tool_requests:
            return Run.Outcome.DONE, leaf
        outcome, leaf = await run_tool_calls(turn, observer, answer)
        if outcome is not None:
            return outcome, leaf
    return Run.Outcome.LIMIT, leaf


async def close_open_calls(turn: Turn, observer: TurnObserver) -> None:
    """Record that calls were interrupted, if the turn ended after an answer and before its tools ran."""
    leaf = await in_database_after_outages(read_leaf, observer.id)
    waiting = await in_database_after_outages(_open_calls, turn.session_id, leaf)
    if waiting:
        results = answer_all(waiting.output.tool_requests, {}, agent=turn.agent.name)
        await store_entries(turn, observer, results, after=leaf)


async def store_refusal(turn: Turn, observer: TurnObserver, error: RelayError) -> None:
    """Record why no model was called: it is not available, or the user's allowance is used up."""
    refusal = ModelOutput(
        status="failed", end_reason="refused", error=error_texts.of_error(error), agent=turn.agent.name
    )
    leaf = await in_database_after_outages(read_leaf, observer.id)
    await store_entries(turn, observer, refusal, after=leaf)


def _open_calls(session_id: UUID, leaf: int) -> StoredAnswer | None:
    """The answer at the leaf, if its calls have no results."""
    message = Message.objects.at(session_id, leaf).first()
    entry = selectors.entries_of([message])[0] if message else None
    if isinstance(entry, ModelOutput) and entry.tool_requests and entry.status == "complete":
        return StoredAnswer(leaf, entry)
    return None
