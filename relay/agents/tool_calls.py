"""Tool calls within a turn: run in parallel, answered once each, including calls of other agents."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from django.conf import settings

from history.context.messages import FINISH_TOOL
from history.context.values import Snapshot
from history.db.transactions import writing
from history.dialects.tools import parse_arguments
from history.entries import ModelInput, ModelOutput, Text, ToolRequest, ToolResult, ToolResults, now
from history.models import Session
from history.record import recorder, selectors
from relay.agents.settings import callable_agents, setting_changes
from relay.agents.turn import (
    StoredAnswer,
    TurnInput,
    TurnObserver,
    finish_if_cancelled,
    request_compression,
    store_entries,
)
from relay.models import Agent, Run
from relay.runtime.async_db import in_database_after_outages
from relay.tools.base import Toolbox, ToolContext, ToolError, toolbox
from relay.tools.running import answer_all, run_call, run_calls

NO_ANSWER = "The user did not answer this question."  # the result of a question beside the one that was answered


async def run_tool_calls(
    turn: TurnInput, observer: TurnObserver, answer: StoredAnswer
) -> tuple[Run.Outcome | None, int]:
    """Run what an answer asks for. None: ask the model again."""
    requests, box = answer.output.tool_requests, await in_database_after_outages(toolbox, turn.agent.tools)
    context = ToolContext(
        user=turn.user,
        session_id=turn.session_id,
        agent=turn.agent.name,
        ask_agent=partial(call_agent, turn, observer, answer.seq),
    )
    questions = await _questions(requests, turn, box, context)
    if questions and not turn.answers:
        return Run.Outcome.WAITING, answer.seq
    await observer.on_tool_calls(seq=answer.seq, requests=requests)
    results = await _collect_results(turn, observer, answer, questions, box, context)
    leaf = await store_entries(turn, observer, results, *context.kept_by(results), after=answer.seq)
    directives = {_directive(box, result.name) for result in results.results if result.status == "success"}
    if "compress" in directives:
        await in_database_after_outages(request_compression, observer.id)
    return (Run.Outcome.DONE if "finish_task" in directives else None), leaf


async def _collect_results(
    turn: TurnInput,
    observer: TurnObserver,
    answer: StoredAnswer,
    questions: set[int],
    box: Toolbox,
    context: ToolContext,
) -> ToolResults:
    """One for each request, in their order: the person's answer, or the tool's; interrupted where we are ended."""
    requests = answer.output.tool_requests
    done: dict[int, ToolResult] = {}
    for place, request in enumerate(requests):
        result = ToolResult(call_id=request.call_id, name=request.name)
        if request.call_id in turn.answers:
            done[place] = replace(result, parts=(Text(text=turn.answers[request.call_id]),))
        elif place in questions:
            done[place] = replace(result, status="skipped", error=NO_ANSWER)
    left = [place for place in range(len(requests)) if place not in done]

    def note(place: int, result: ToolResult) -> None:
        done[left[place]] = result
        observer.on_tool_result(seq=answer.seq, index=left[place], result=result)

    try:
        await run_calls([requests[place] for place in left], toolbox=box, context=context, on_result=note)
    except asyncio.CancelledError:
        results = answer_all(requests, done, agent=turn.agent.name)
        await finish_if_cancelled(store_entries(turn, observer, results, *context.kept_by(results), after=answer.seq))
        raise
    return answer_all(requests, done, agent=turn.agent.name)


async def _questions(requests: Sequence[ToolRequest], turn: TurnInput, box: Toolbox, context: ToolContext) -> set[int]:
    """Places of open questions to the person. A call with wrong arguments asks nothing: its result says why."""
    return {
        place
        for place, request in enumerate(requests)
        if request.call_id not in turn.answers
        and _directive(box, request.name) == "ask_user"
        and (await run_call(request, toolbox=box, context=context)).status == "success"
    }


def _directive(box: Toolbox, name: str) -> str:
    tool = box.get(name)
    return tool.directive if tool else ""


# Calls of other agents. A called agent has a session below that of its caller and a run of its own; its answer is the
# result of the tool. It begins with its task alone, may read the conversation of its caller up to the call
# (`read_caller`), and cannot ask the user. How deep agents call each other, and how often in one turn, is limited
# (`PARLEY_AGENT_DEPTH`, `PARLEY_AGENT_CALLS`). What they use counts for the user and for the turns of all callers.


# What a called agent has besides its own tools, and what it has not.
ADDED_TOOL, REMOVED_TOOL = "read_caller", "ask_user"
LAST = 20

OUTCOME_TEXTS = {
    Run.Outcome.LIMIT: "The agent {name} stopped at a limit before the task was done.",
    Run.Outcome.STOPPED: "The agent {name} was stopped by the user.",
    Run.Outcome.FAILED: "The agent {name} failed: {error}.",
    Run.Outcome.LOST: "The agent {name} was interrupted.",
}


async def call_agent(
    turn: TurnInput, observer: TurnObserver, seq: int, context: ToolContext, *, name: str, task: str
) -> str:
    """The answer of the agent called `name`, which entry `seq` of the caller asks for; raises ToolError."""
    agent = await in_database_after_outages(_find, turn.agent, name.strip())
    if not task.strip():
        raise ToolError("The task is empty. Describe the task with all information that the agent needs.")
    if len(turn.callers) >= settings.PARLEY_AGENT_DEPTH:
        deep = settings.PARLEY_AGENT_DEPTH
        raise ToolError(f"Agents can call each other at most {deep} levels deep. Do the task yourself.")
    if turn.budget.is_used_up or not turn.budget.take_call():
        raise ToolError("No more agents can be called in this turn. Do the rest yourself.")
    below = await in_database_after_outages(_open, turn, agent, task.strip(), seq, context.call_id)
    run = await observer.run_subagent(below)
    return await in_database_after_outages(_answer, below, run)


def _find(caller: Agent, name: str) -> Agent:
    others = callable_agents(caller)
    found = next((agent for agent in others if agent.name == name), None)
    if found is None:
        there = ", ".join(agent.name for agent in others) or "none"
        raise ToolError(f"There is no callable agent {name[:100]}. Available agents: {there}.")
    return found


def _open(turn: TurnInput, agent: Agent, task: str, seq: int, call_id: str) -> TurnInput:
    """The session of the called agent, with its task, ready to be answered."""
    agent.tools = [*(name for name in agent.tools if name not in (ADDED_TOOL, REMOVED_TOOL)), ADDED_TOOL]
    with writing():
        caller = Session.objects.select_related("api_key").get(pk=turn.session_id)
        session = recorder.start_session(
            owner=turn.user,
            api_key=caller.api_key,
            agent=agent.name,
            workspace=caller.workspace,
            parent=caller,
            parent_call=call_id,
            metadata={"called_at": seq, "called_by": turn.agent.name},
        )
        message = ModelInput(channel="agent", parts=(Text(text=task),), at=now(), metadata={"from": turn.agent.name})
        empty = Snapshot(session_id=str(session.pk), version=0, nodes=())
        entries = [*setting_changes(empty, agent, at=message.at), message]
        leaf = recorder.append_many(session, entries, after=0)[-1].seq
    return TurnInput(
        session_id=session.pk,
        user=turn.user,
        leaf=leaf,
        agent=agent,
        model="" if agent.model else turn.model,
        client=turn.client,
        callers=(*turn.callers, turn.session_id),
        budget=turn.budget.below(tokens=agent.max_turn_tokens or None),
    )


def _answer(turn: TurnInput, run: Run) -> str:
    text = _final_text(turn, run)
    if run.outcome == Run.Outcome.DONE:
        return text or "The agent returned no text."
    ended = OUTCOME_TEXTS.get(Run.Outcome(run.outcome), "The agent {name} did not answer.")
    why = ended.format(name=turn.agent.name, error=run.error or "unknown")
    raise ToolError(f"{why}\n\nIts last text: {text}" if text else why)


def _final_text(turn: TurnInput, run: Run) -> str:
    """The result with which it finished its task, or the text of its last answer."""
    page = selectors.messages_of(Session(pk=turn.session_id), leaf=run.leaf, limit=LAST)
    answers = [entry for entry in selectors.entries_of(page.messages) if isinstance(entry, ModelOutput)]
    if not answers:
        return ""
    requests = [request for request in answers[-1].tool_requests if request.name == FINISH_TOOL]
    results = [(parse_arguments(request.arguments) or {}).get("result") for request in requests]
    return next((str(result) for result in results if result), answers[-1].text)
