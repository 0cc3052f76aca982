"""The task plan: a list in Markdown that an agent keeps, one line for each step, and the tool that changes it.

Each change is an entry, so a branch has its own plan. The model gets it with its newest input: compression keeps it.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from django.utils.translation import gettext_lazy as _

from history.entries import PlanSet
from relay.tools.base import ToolContext, ToolError, tool

TOOL = "update_plan"
State = Literal["open", "doing", "done"]

_STEP = re.compile(r"^(\s*)(?:[-*+]|\d+[.)])\s+\[([^\]])\]\s+(\S.*)$")
_STATES: dict[str, State] = {" ": "open", "x": "done", "X": "done", "✓": "done"}
SPACES_PER_LEVEL = 2
DEEPEST = 3

NONE_YET = "[There is no task plan yet. If the task takes several steps, write one with update_plan before you begin.]"
HOLDS = "[The current task plan. Call update_plan whenever you start or finish a step.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    text: str
    state: State = "open"
    level: int = 0


@dataclass(frozen=True, slots=True)
class TaskPlan:
    steps: tuple[Step, ...]

    @property
    def done(self) -> int:
        return sum(step.state == "done" for step in self.steps)

    @property
    def is_done(self) -> bool:
        return self.done == len(self.steps)

    @property
    def current(self) -> Step | None:
        doing = next((step for step in self.steps if step.state == "doing"), None)
        return doing or next((step for step in self.steps if step.state == "open"), None)


def read_plan(text: str) -> TaskPlan:
    """The steps of a plan: items with a box. A mark that is neither empty nor a tick means that it is being done."""
    steps = []
    for match in filter(None, map(_STEP.match, text.splitlines())):
        spaces, mark, words = match.groups()
        level = min(len(spaces.expandtabs(4)) // SPACES_PER_LEVEL, DEEPEST)
        steps.append(Step(text=words.strip(), state=_STATES.get(mark, "doing"), level=level))
    return TaskPlan(tuple(steps))


def plan_notice(plan: str) -> str | None:
    """The plan as the model gets it with its newest input; None once everything is done."""
    if not plan.strip():
        return NONE_YET
    return None if read_plan(plan).is_done else f"{HOLDS}\n{plan}"


def on_screen(plan: str, screen: str | None) -> str | None:
    """The same above what else is shown with that input."""
    return "\n\n".join(filter(None, [plan_notice(plan), screen])) or None


MOST_CHARS = 20_000
MOST_STEPS = 100


@tool(summary=_("Keeps the task plan that the page shows"))
def update_plan(
    context: ToolContext,
    plan: Annotated[
        str, "The whole plan in Markdown, one line per step: `- [ ] open`, `- [~] in progress`, `- [x] done`."
    ],
) -> str:
    """Write or change the task plan, which the user sees as a checklist.

    Write it before a task of several steps, and again when you start or finish a step. Always write the whole plan. An
    empty text removes the plan.
    """
    text = plan.strip()
    steps = read_plan(text).steps
    if len(text) > MOST_CHARS or len(steps) > MOST_STEPS:
        raise ToolError(f"A plan has at most {MOST_STEPS} steps and {MOST_CHARS:,} characters: keep it short.")
    if text and not steps:
        raise ToolError("The plan has no steps. Write each step on its own line: - [ ] open, - [x] done.")
    context.keep(PlanSet(plan=text, agent=context.agent, is_internal=True))
    if not text:
        return "The plan was removed."
    return f"Plan saved: {read_plan(text).done} of {len(steps)} steps are done."
