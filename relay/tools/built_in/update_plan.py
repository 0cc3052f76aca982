"""The agent writes down what it is going to do and ticks it off; the page shows it as a checklist."""

from __future__ import annotations

from typing import Annotated

from django.utils.translation import gettext_lazy as _

from history.entries import PlanSet
from relay.tools.base import ToolContext, ToolError, tool
from relay.tools.plans import read_plan

MOST_CHARS = 20_000
MOST_STEPS = 100


@tool(summary=_("Keeps the task plan, which the page shows as a checklist"))
def update_plan(
    context: ToolContext,
    plan: Annotated[
        str, "The whole plan in Markdown, a line for each step: `- [ ] open`, `- [~] in progress`, `- [x] done`."
    ],
) -> str:
    """Write or change the task plan, which the person sees as a checklist.

    Write it before a task of several steps, and again whenever a step is begun or done: always the whole plan. An empty
    text takes the plan away.
    """
    text = plan.strip()
    steps = read_plan(text).steps
    if len(text) > MOST_CHARS or len(steps) > MOST_STEPS:
        raise ToolError(f"A plan has at most {MOST_STEPS} steps and {MOST_CHARS:,} characters: keep it short.")
    if text and not steps:
        raise ToolError("There is no step in it. Write each on a line of its own: - [ ] open, - [x] done.")
    context.keep(PlanSet(plan=text, agent=context.agent, is_internal=True))
    if not text:
        return "There is no plan any more."
    return f"The plan is kept: {read_plan(text).done} of {len(steps)} steps are done."
