"""The loop of an agent: call a model, run the tools that it calls, call it again, until a turn is answered.

A run follows its own leaf: each call is made from the path to the entry that the run itself wrote last, also when other
branches of the session grow. Everything is stored as it happens, so a turn that a user, an error or the end of the
process ends in the middle loses nothing.
"""

import asyncio
from typing import Any
from uuid import UUID

from history.entries import ModelInput, ModelOutput, Text
from history.models import Message
from history.record import exchanges, selectors
from relay.agents.compression import compress, compress_at_end
from relay.agents.model_call import ModelCall, open_call
from relay.agents.requests import RenderedCall, render_call
from relay.agents.tool_calls import run_tool_calls
from relay.agents.turn import (
    CompressionRequest,
    StoredAnswer,
    TurnFailed,
    TurnInput,
    TurnObserver,
    finish_if_cancelled,
    read_leaf,
    read_updates,
    store_entries,
)
from relay.chat import error_texts
from relay.errors import Cut, ProviderError, RelayError
from relay.models import Run
from relay.models.agents import RoleName
from relay.providers.http import Route
from relay.providers.registry import router
from relay.runtime.async_db import in_database_after_outages
from relay.tools.running import answer_all

# Messages from one role of an agent to the next: internal, so pages show them behind a toggle.
BRIEFINGS: dict[RoleName, str] = {
    "planner": "Write a short plan for the task above. Do not carry it out yet.",
    "executor": "Carry out the plan above.",
    "reviewer": "Review the answer above: is it complete and right? Name what is wrong or missing, briefly.",
}


async def run_turn(turn: TurnInput, observer: TurnObserver) -> Run.Outcome:
    """Run the whole turn. Raises TurnFailed and NoSuchModel. If it is cancelled, partial answers are stored."""
    leaf = turn.leaf
    if turn.compression:
        await compress_at_end(turn, observer, leaf)
        return Run.Outcome.DONE
    waiting = await in_database_after_outages(find_open_calls, turn.session_id, leaf) if turn.answers else None
    if waiting:
        outcome, leaf = await run_tool_calls(turn, observer, waiting)
        return outcome or (await _answer(turn, observer, "executor", leaf))[0]
    for place, role in enumerate(turn.agent.roles):
        if role != "executor" or place > 0:
            parts, name = (Text(text=BRIEFINGS[role]),), turn.agent.name
            briefing = ModelInput(channel="agent", is_internal=True, agent=name, parts=parts)
            leaf = await store_entries(turn, observer, briefing, after=leaf)
        outcome, leaf = await _answer(turn, observer, role, leaf)
        if outcome is not Run.Outcome.DONE:
            return outcome
    await compress_at_end(turn, observer, leaf)
    return Run.Outcome.DONE


async def _answer(turn: TurnInput, observer: TurnObserver, role: RoleName, leaf: int) -> tuple[Run.Outcome, int]:
    for _ in range(max(1, turn.agent.max_steps)):
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


async def call_model(turn: TurnInput, observer: TurnObserver, role: RoleName, leaf: int) -> StoredAnswer:
    """One call after the entry `leaf`. Its answer is stored in any case; TurnFailed says why it is not whole."""
    route = router().route(turn.agent.model_for(role, picked=turn.model))
    async with open_call(turn, await _render(turn, observer, role, route, leaf)) as call:
        await observer.on_call(call.exchange, call.assembler, model=route.name, role=role)
        try:
            await call.stream(observer)
        except ProviderError as error:
            if error.kind == "context_length" and (shorter := await _compress_after_refusal(call, observer)):
                return await call_model(turn, observer, role, shorter)
            reason = "upstream_cut" if isinstance(error, Cut) else "upstream_error"
            await call.store(reason, observer=observer, error=error)
            raise TurnFailed(error) from error
        except asyncio.CancelledError:
            await finish_if_cancelled(call.store(observer.stop_reason or "stopped", observer=observer))
            raise
        except BaseException:
            await finish_if_cancelled(call.store("server_error", observer=observer))
            raise
        return await finish_if_cancelled(call.store("done", observer=observer))


async def _render(turn: TurnInput, observer: TurnObserver, role: RoleName, route: Route, leaf: int) -> RenderedCall:
    """The next call of a run, from its path; compressed first if it is full or a summary was requested."""
    options: Any = {"owner": turn.user, "agent": turn.agent, "role": role, "route": route, "client": turn.client}
    leaf, found = await in_database_after_outages(_read_updates_and_render, observer.id, turn.session_id, leaf, options)
    if isinstance(found, RenderedCall) and not found.is_full:
        return found
    request = CompressionRequest(why="full") if isinstance(found, RenderedCall) else found
    leaf = await compress(turn, observer, leaf, route=route, request=request)
    return await in_database_after_outages(render_call, turn.session_id, leaf=leaf, **options)


def _read_updates_and_render(
    run_id: UUID, session_id: UUID, leaf: int, options: Any
) -> tuple[int, CompressionRequest | RenderedCall]:
    """A request to compress, or the call. In one job: a switch of threads costs as much CPU as the statements."""
    leaf, request = read_updates(run_id, session_id, leaf)
    return leaf, request or render_call(session_id, leaf=leaf, **options)


async def _compress_after_refusal(call: ModelCall, observer: TurnObserver) -> int:
    """Compress a context that the provider refuses as too long. The entry to continue from; 0 if nothing can go."""
    exchange, request = call.exchange, CompressionRequest(why="too_long")
    call.reservation.release()  # a summary reserves for itself
    shorter = await compress(call.turn, observer, exchange.after, route=call.rendered.route, request=request)
    if shorter == exchange.after:
        return 0
    await in_database_after_outages(
        exchanges.finish, exchange, None, end_reason="upstream_error", error="context_length"
    )
    return shorter


async def close_open_calls(turn: TurnInput, observer: TurnObserver) -> None:
    """Record that calls were interrupted, if the turn ended after an answer and before its tools ran."""
    leaf = await in_database_after_outages(read_leaf, observer.id)
    waiting = await in_database_after_outages(find_open_calls, turn.session_id, leaf)
    if waiting:
        results = answer_all(waiting.output.tool_requests, {}, agent=turn.agent.name)
        await store_entries(turn, observer, results, after=leaf)


async def store_refusal(turn: TurnInput, observer: TurnObserver, error: RelayError) -> None:
    """Record why no model was called: it is not available, or the user's allowance is used up."""
    refusal = ModelOutput(
        status="failed", end_reason="refused", error=error_texts.error_text(error), agent=turn.agent.name
    )
    leaf = await in_database_after_outages(read_leaf, observer.id)
    await store_entries(turn, observer, refusal, after=leaf)


def find_open_calls(session_id: UUID, leaf: int) -> StoredAnswer | None:
    """The answer at the leaf, if its calls have no results."""
    message = Message.objects.at(session_id, leaf).first()
    entry = selectors.entries_of([message])[0] if message else None
    if isinstance(entry, ModelOutput) and entry.tool_requests and entry.status == "complete":
        return StoredAnswer(leaf, entry)
    return None
