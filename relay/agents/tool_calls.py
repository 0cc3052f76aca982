"""The tools that an answer asks for, within a turn: run in parallel, each call answered once, in the order asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from history.entries import Text, ToolRequest, ToolResult, ToolResults
from relay.agents.saving import finish_if_cancelled, request_compression, store_entries
from relay.agents.subagents import call_agent
from relay.agents.turn import StoredAnswer, Turn, TurnObserver
from relay.models import Run
from relay.runtime.async_db import in_database_after_outages
from relay.tools.base import ToolContext
from relay.tools.registry import Toolbox, toolbox
from relay.tools.running import answer_all, run_call, run_calls

# The result of a question beside the one that was answered.
NO_ANSWER = "The user did not answer this question."


async def run_tool_calls(turn: Turn, observer: TurnObserver, said: StoredAnswer) -> tuple[Run.Outcome | None, int]:
    """Run what an answer asks for. None: ask the model again."""
    requests, box = said.output.tool_requests, await in_database_after_outages(toolbox, turn.agent.tools)
    context = ToolContext(
        user=turn.user,
        session_id=turn.session_id,
        agent=turn.agent.name,
        ask_agent=partial(call_agent, turn, observer, said.seq),
    )
    if not turn.answers and await _has_question(requests, box, context):
        return Run.Outcome.WAITING, said.seq
    await observer.on_tool_calls(seq=said.seq, requests=requests)
    results = await _collect_results(turn, observer, said, box, context)
    leaf = await store_entries(turn, observer, results, *context.kept_by(results), after=said.seq)
    succeeded = [
        _directive(box, request)
        for request, result in zip(requests, results.results, strict=True)
        if result.status == "success"
    ]
    if "compress" in succeeded:
        await in_database_after_outages(request_compression, observer.id)
    finished = "finish_task" in succeeded
    return (Run.Outcome.DONE if finished else None), leaf


async def _collect_results(
    turn: Turn, observer: TurnObserver, said: StoredAnswer, box: Toolbox, context: ToolContext
) -> ToolResults:
    """One for each request, in their order: the person's answer, or the tool's; interrupted where we are ended."""
    requests = said.output.tool_requests
    done = {
        place: answer
        for place, request in enumerate(requests)
        if (answer := await _answer_to(request, turn, box, context)) is not None
    }
    left = [place for place in range(len(requests)) if place not in done]

    def note(place: int, result: ToolResult) -> None:
        done[left[place]] = result
        observer.on_tool_result(seq=said.seq, index=left[place], result=result)

    try:
        await run_calls([requests[place] for place in left], toolbox=box, context=context, on_result=note)
    except asyncio.CancelledError:
        results = answer_all(requests, done, agent=turn.agent.name)
        await finish_if_cancelled(store_entries(turn, observer, results, *context.kept_by(results), after=said.seq))
        raise
    return answer_all(requests, done, agent=turn.agent.name)


async def _has_question(requests: Sequence[ToolRequest], box: Toolbox, context: ToolContext) -> bool:
    """Whether the person has something to answer. A call with wrong arguments asks nothing: its result says why."""
    for request in requests:
        if _directive(box, request) == "ask_user" and await _is_asked(request, box, context):
            return True
    return False


async def _is_asked(request: ToolRequest, box: Toolbox, context: ToolContext) -> bool:
    return (await run_call(request, toolbox=box, context=context)).status == "success"


async def _answer_to(request: ToolRequest, turn: Turn, box: Toolbox, context: ToolContext) -> ToolResult | None:
    """The person's answer to a question, or that there is none. None: not a question, so the tool is to be run."""
    result = ToolResult(call_id=request.call_id, name=request.name)
    if request.call_id in turn.answers:
        return replace(result, parts=(Text(text=turn.answers[request.call_id]),))
    if _directive(box, request) == "ask_user" and await _is_asked(request, box, context):
        return replace(result, status="skipped", error=NO_ANSWER)
    return None


def _directive(box: Toolbox, request: ToolRequest) -> str:
    known = box.get(request.name)
    return known.directive if known else ""
