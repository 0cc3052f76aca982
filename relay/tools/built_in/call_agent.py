"""Another agent does a part of the task, in a session of its own; `relay.agents.subagents` has the rules."""

from __future__ import annotations

from typing import Annotated

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from relay.tools.base import ToolContext, ToolError, tool


@tool(timeout=settings.PARLEY_AGENT_SECONDS, is_for_agents=True, summary=_("Lets another agent do a part of the task"))
async def call_agent(
    context: ToolContext,
    agent: Annotated[str, "The name of the agent."],
    task: Annotated[str, "What it is to do, with everything that it has to know: it begins with nothing else."],
) -> str:
    """Let another agent do a part of the task and wait for its answer, which is the result of this call.

    It works by itself and cannot ask anybody; it can read this conversation up to here. Several calls in one answer run
    at the same time.
    """
    if context.ask_agent is None:
        raise ToolError("Only an agent can call another, in the middle of its turn.")
    return await context.ask_agent(context, name=agent, task=task)
