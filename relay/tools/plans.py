"""The task plan: a list in Markdown that an agent keeps, one line a step, ticked as it goes on.

The plan is a fact of the session like an instruction (`PlanSet`): each change is an entry, so a branch has the plan
that held there. What holds is told to the model with its newest input, so it survives a compression of what led to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

TOOL = "update_plan"
State = Literal["open", "doing", "done"]

_STEP = re.compile(r"^(\s*)(?:[-*+]|\d+[.)])\s+\[([^\]])\]\s+(\S.*)$")
_STATES: dict[str, State] = {" ": "open", "x": "done", "X": "done", "✓": "done"}
SPACES_PER_LEVEL = 2
DEEPEST = 3

NONE_YET = "[There is no task plan yet. If the task takes several steps, write one with update_plan before you begin.]"
HOLDS = "[The task plan, as it stands. Call update_plan whenever a step is begun or done.]"


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
        """What is being done, or comes next."""
        doing = next((step for step in self.steps if step.state == "doing"), None)
        return doing or next((step for step in self.steps if step.state == "open"), None)


def read_plan(text: str) -> TaskPlan:
    """The steps of a plan: items with a box. A mark that is neither empty nor a tick means that it is being done."""
    found = (_STEP.match(line) for line in text.splitlines())
    return TaskPlan(tuple(_step(match) for match in found if match))


def _step(match: re.Match[str]) -> Step:
    spaces, mark, text = match.groups()
    level = min(len(spaces.expandtabs(4)) // SPACES_PER_LEVEL, DEEPEST)
    return Step(text=text.strip(), state=_STATES.get(mark, "doing"), level=level)


def told(plan: str) -> str | None:
    """What a model that keeps a plan is told of it with its newest input; nothing once everything is done."""
    if not plan.strip():
        return NONE_YET
    return None if read_plan(plan).is_done else f"{HOLDS}\n{plan}"


def on_screen(plan: str, screen: str | None) -> str | None:
    """The same above what else is shown with that input."""
    return "\n\n".join(filter(None, [told(plan), screen])) or None
