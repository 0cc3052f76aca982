"""Tools that control the turn: ask the user, call another agent, summarise older messages, finish."""

from typing import Annotated

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from history.context.messages import FINISH_TOOL
from history.text import has_visible_text
from relay.tools.base import ToolContext, ToolError, tool


@tool(directive="ask_user", summary=_("Asks the user and waits for the answer"))
def ask_user(
    context: ToolContext,
    question: Annotated[str, "The question, with everything that is needed to answer it."],
    choices: Annotated[list[str] | None, "Possible answers, if there are only a few."] = None,
) -> str:
    """Ask the user a question and wait for the answer. Use it when only the user can decide or know."""
    if not has_visible_text(question):
        raise ToolError("The question is empty. Write what the user should answer.")
    return "The question was asked."


@tool(timeout=settings.PARLEY_AGENT_SECONDS, is_for_agents=True, summary=_("Gives a part of the task to another agent"))
async def call_agent(
    context: ToolContext,
    agent: Annotated[str, "The name of the agent."],
    task: Annotated[str, "The task with all information that the agent needs. It knows nothing else."],
) -> str:
    """Let another agent do a part of the task and wait for its answer, which is the result of this call.

    It works by itself and cannot ask the user; it can read this conversation up to this point. Several calls in one
    answer run at the same time.
    """
    if context.ask_agent is None:
        raise ToolError("Only an agent can call another, in the middle of its turn.")
    return await context.ask_agent(context, name=agent, task=task)


@tool(directive="compress", summary=_("Summarises older messages"))
def compress_chat_history(context: ToolContext) -> str:
    """Have the older part of this conversation replaced by a summary. Use it between two pieces of long work.

    Nothing is lost: read_session still reads the original messages.
    """
    return "The older part of the conversation is summarised before your next step."


@tool(name=FINISH_TOOL, directive="finish_task", summary=_("Ends the task with its result"))
def finish_task(context: ToolContext, result: Annotated[str, "The complete result of the task, for the user."]) -> str:
    """End the task with its result. Call it once, when nothing is left to do, without other calls."""
    if not result.strip():
        raise ToolError("The result is empty. Write the result of the task for the user.")
    return "The task is finished."
