"""One agent calls another: a session below the caller's, a run of its own in it, and its answer as the tool's result.

The called agent begins with nothing but its task. It can read the conversation of its caller up to the call
(`read_caller`), and nothing of what happens there later. There is no person whom it could ask. How deep agents may call
each other and how often in one turn is limited (`PARLEY_AGENT_DEPTH`, `PARLEY_AGENT_CALLS`), and what they use counts
for the same person and for the turn of everybody above them.
"""

from __future__ import annotations

import json
from dataclasses import replace

from django.conf import settings

from history.context import FINISH_TOOL
from history.db.transactions import writing
from history.entries import Entry, ModelInput, ModelOutput, Text, now
from history.models import Session
from history.record import recorder, selectors
from relay.agents.instructions import setting_changes
from relay.agents.settings import AgentSettings, callable_agents
from relay.agents.turn import Turn, TurnObserver
from relay.models import Run
from relay.runtime.async_db import in_database_after_outages
from relay.tools.base import ToolContext, ToolError

# What a called agent has besides its own tools, and what it has not.
ADDED_TOOL, REMOVED_TOOL = "read_caller", "ask_user"
LAST = 20

OUTCOME_TEXTS = {
    Run.Outcome.LIMIT: "The agent {name} came to its limit before it was done.",
    Run.Outcome.STOPPED: "The agent {name} was stopped by the person.",
    Run.Outcome.FAILED: "The agent {name} failed: {error}.",
    Run.Outcome.LOST: "The agent {name} was interrupted.",
}


async def call_agent(
    turn: Turn, observer: TurnObserver, seq: int, context: ToolContext, *, name: str, task: str
) -> str:
    """The answer of the agent called `name`, which entry `seq` of the caller asks for; raises ToolError."""
    agent = await in_database_after_outages(_find, turn.agent, name.strip())
    if not task.strip():
        raise ToolError("There is no task: say what the agent is to do, with everything that it has to know.")
    if len(turn.callers) >= settings.PARLEY_AGENT_DEPTH:
        deep = settings.PARLEY_AGENT_DEPTH
        raise ToolError(f"Agents may call each other {deep} deep, and that is reached here: do it without calling one.")
    if turn.budget.is_used_up or not turn.budget.take_call():
        raise ToolError("No more agents may be called in this turn: do the rest without them.")
    below = await in_database_after_outages(_open, turn, agent, task.strip(), seq, context.call_id)
    run = await observer.run_subagent(below)
    return await in_database_after_outages(_answer, below, run)


def _find(caller: AgentSettings, name: str) -> AgentSettings:
    others = callable_agents(caller)
    found = next((agent for agent in others if agent.name == name), None)
    if found is None:
        there = ", ".join(agent.name for agent in others) or "none"
        raise ToolError(f"There is no agent called {name[:100]} that could be called here. There are: {there}.")
    return found


def _open(turn: Turn, agent: AgentSettings, task: str, seq: int, call_id: str) -> Turn:
    """The session of the called agent, with its task, ready to be answered."""
    tools = tuple(name for name in agent.tools if name not in (ADDED_TOOL, REMOVED_TOOL))
    agent = replace(agent, tools=(*tools, ADDED_TOOL))
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
        said = ModelInput(channel="agent", parts=(Text(text=task),), at=now(), metadata={"from": turn.agent.name})
        entries: list[Entry] = [*setting_changes(None, agent, at=said.at), said]
        leaf = recorder.append_many(session, entries, after=0)[-1].seq
    return Turn(
        session_id=session.pk,
        user=turn.user,
        leaf=leaf,
        agent=agent,
        model="" if agent.model else turn.model,
        client=turn.client,
        callers=(*turn.callers, turn.session_id),
        budget=turn.budget.below(tokens=agent.max_turn_tokens),
    )


def _answer(turn: Turn, run: Run) -> str:
    said = _last_words(turn, run)
    if run.outcome == Run.Outcome.DONE:
        return said or "The agent said nothing."
    ended = OUTCOME_TEXTS.get(Run.Outcome(run.outcome), "The agent {name} did not answer.")
    why = ended.format(name=turn.agent.name, error=run.error or "unknown")
    raise ToolError(f"{why}\n\nIts last words: {said}" if said else why)


def _last_words(turn: Turn, run: Run) -> str:
    """Its answer: the result that it finished with, or what it said last."""
    page = selectors.messages_of(Session(pk=turn.session_id), leaf=run.leaf, limit=LAST)
    answers = [entry for entry in selectors.entries_of(page.messages) if isinstance(entry, ModelOutput)]
    if not answers:
        return ""
    results = [_result_in(request.arguments) for request in answers[-1].tool_requests if request.name == FINISH_TOOL]
    return next(filter(None, results), answers[-1].text)


def _result_in(arguments: str) -> str:
    try:
        told = json.loads(arguments)
    except ValueError:
        return ""
    return str(told.get("result", "")) if isinstance(told, dict) else ""
