"""The tools that an answer asks for, within a turn: run in parallel, each call answered once, in the order asked."""

from __future__ import annotations

import asyncio
from functools import partial

from history.entries import Text, ToolRequest, ToolResult, ToolResults
from relay.agent.calling import call_agent
from relay.agent.keeping import keep, note_wish, to_the_end
from relay.agent.tools.base import ToolContext
from relay.agent.tools.registry import Toolbox, toolbox
from relay.agent.tools.running import answer_all, run_calls
from relay.agent.turn import Said, Turn, Watcher
from relay.database import in_database_after_outages
from relay.models import Run


async def use_tools(turn: Turn, watcher: Watcher, said: Said) -> tuple[Run.Outcome | None, int]:
    """Run what an answer asks for. None: ask the model again."""
    requests, box = said.output.tool_requests, await in_database_after_outages(toolbox, turn.agent.tools)
    if any(_directive(box, request) == "ask_user" and request.call_id not in turn.answers for request in requests):
        return Run.Outcome.WAITING, said.seq
    await watcher.calling(seq=said.seq, requests=requests)
    context = ToolContext(
        user=turn.user,
        session_id=turn.session_id,
        agent=turn.agent.name,
        ask_agent=partial(call_agent, turn, watcher, said.seq),
    )
    results = await _results(turn, watcher, said, box, context)
    leaf = await keep(turn, watcher, results, *context.kept_by(results), after=said.seq)
    succeeded = [
        _directive(box, request)
        for request, result in zip(requests, results.results, strict=True)
        if result.status == "success"
    ]
    if "compress" in succeeded:
        await in_database_after_outages(note_wish, watcher.id)
    finished = "finish_task" in succeeded
    return (Run.Outcome.DONE if finished else None), leaf


async def _results(turn: Turn, watcher: Watcher, said: Said, box: Toolbox, context: ToolContext) -> ToolResults:
    """One for each request, in their order: the person's answer, or the tool's; interrupted where we are ended."""
    requests = said.output.tool_requests
    done = {
        place: ToolResult(call_id=request.call_id, name=request.name, parts=(Text(text=turn.answers[request.call_id]),))
        for place, request in enumerate(requests)
        if request.call_id in turn.answers
    }
    left = [place for place in range(len(requests)) if place not in done]

    def note(place: int, result: ToolResult) -> None:
        done[left[place]] = result
        watcher.result(seq=said.seq, index=left[place], result=result)

    try:
        await run_calls([requests[place] for place in left], toolbox=box, context=context, on_result=note)
    except asyncio.CancelledError:
        results = answer_all(requests, done, agent=turn.agent.name)
        await to_the_end(keep(turn, watcher, results, *context.kept_by(results), after=said.seq))
        raise
    return answer_all(requests, done, agent=turn.agent.name)


def _directive(box: Toolbox, request: ToolRequest) -> str:
    known = box.get(request.name)
    return known.directive if known else ""
