"""Who answers, as plain values: taken from the agent's row when a turn begins, and the same until it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from relay.errors import NoSuchAgent
from relay.models import Agent

RoleName = Literal["planner", "executor", "reviewer"]
PURPOSE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """`compress_at` and `keep_turns`: None is as the settings say."""

    name: str = ""
    label: str = ""
    instruction: str = ""
    model: str = ""
    planner_model: str = ""
    reviewer_model: str = ""
    tools: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    max_steps: int = 12
    max_turns: int | None = None
    max_answer_tokens: int | None = None
    max_turn_tokens: int | None = None
    compress_at: float | None = None
    keep_turns: int | None = None
    environment: bool = False
    folders: tuple[str, ...] = ()
    live_screen: bool = False
    temperature: float | None = None
    reasoning_effort: str = ""

    @property
    def roles(self) -> tuple[RoleName, ...]:
        """Who speaks in a turn, in order. Most agents only do; some plan before, or look over it afterwards."""
        before: tuple[RoleName, ...] = ("planner",) if self.planner_model else ()
        after: tuple[RoleName, ...] = ("reviewer",) if self.reviewer_model else ()
        return (*before, "executor", *after)

    @property
    def purpose(self) -> str:
        """What it is for, in a line: as other agents are told."""
        first = next(iter(self.instruction.strip().splitlines()), "")
        return " · ".join(filter(None, [self.label, first[:PURPOSE_CHARS]])) or self.name

    def model_for(self, role: RoleName, *, picked: str) -> str:
        """The person's pick is for whoever does the work."""
        own = {"planner": self.planner_model, "reviewer": self.reviewer_model, "executor": picked or self.model}
        return own[role]


def pick_agent(name: str, *, otherwise: str = "") -> AgentSettings:
    """The agent that a user or client names, or `otherwise` where none is named. Raises NoSuchAgent."""
    if not name:
        return find_agent(otherwise)
    row = Agent.objects.filter(name=name).first()
    if row is None:
        raise NoSuchAgent(name)
    return settings_of(row)


def find_agent(name: str) -> AgentSettings:
    """The agent of a stored session. It may have been deleted since: then the default one, or one that only talks."""
    named = Agent.objects.filter(name=name).first() if name else None
    row = named or Agent.objects.filter(is_default=True).first() or Agent.objects.first()
    return settings_of(row) if row else AgentSettings()


def callable_agents(agent: AgentSettings) -> list[AgentSettings]:
    """Whom it may call: those it names, or all others."""
    rows = Agent.objects.filter(name__in=agent.agents) if agent.agents else Agent.objects.exclude(name=agent.name)
    return [settings_of(row) for row in rows]


def settings_of(row: Agent) -> AgentSettings:
    return AgentSettings(
        name=row.name,
        label=row.label,
        instruction=row.instruction,
        model=row.model,
        planner_model=row.planner_model,
        reviewer_model=row.reviewer_model,
        tools=tuple(row.tools),
        agents=tuple(row.agents),
        max_steps=max(1, row.max_steps),
        max_turns=row.max_turns or None,
        max_answer_tokens=row.max_answer_tokens or None,
        max_turn_tokens=row.max_turn_tokens or None,
        compress_at=row.compress_at or None,
        keep_turns=row.keep_turns or None,
        environment=row.environment,
        folders=tuple(row.folders),
        live_screen=row.live_screen,
        temperature=row.temperature,
        reasoning_effort=row.reasoning_effort,
    )
