"""Settings of an agent during a turn, and the entries that record their changes.

They are taken from the row of the agent when a turn begins and stay the same until it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from history.context.values import Snapshot
from history.entries import Entry, SystemInstructionSet, ToolDefinition, ToolsOffered, thaw
from history.models import Session
from relay.errors import NoSuchAgent
from relay.models import Agent
from relay.tools.registry import toolbox

RoleName = Literal["planner", "executor", "reviewer"]
PURPOSE_CHARS = 200
# 0 in one of these fields is the same as an empty field.
OPTIONAL_LIMITS = ("max_turns", "max_answer_tokens", "max_turn_tokens", "compress_at", "keep_turns")
CALL_AGENT = "call_agent"


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
        """Roles in the order of a turn. Most agents have only an executor; some plan before or review afterwards."""
        before: tuple[RoleName, ...] = ("planner",) if self.planner_model else ()
        after: tuple[RoleName, ...] = ("reviewer",) if self.reviewer_model else ()
        return (*before, "executor", *after)

    @property
    def purpose(self) -> str:
        """One line for other agents."""
        first = next(iter(self.instruction.strip().splitlines()), "")
        return " · ".join(filter(None, [self.label, first[:PURPOSE_CHARS]])) or self.name

    def model_for(self, role: RoleName, *, picked: str) -> str:
        """The model that the user picked is for the executor."""
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
    """The agent of a stored session. If it was deleted since, the default one, or one without tools."""
    named = Agent.objects.filter(name=name).first() if name else None
    row = named or Agent.objects.filter(is_default=True).first() or Agent.objects.first()
    return settings_of(row) if row else AgentSettings()


def callable_agents(agent: AgentSettings) -> list[AgentSettings]:
    """The agents that it may call: those it names, or all others."""
    rows = Agent.objects.filter(name__in=agent.agents) if agent.agents else Agent.objects.exclude(name=agent.name)
    return [settings_of(row) for row in rows]


def settings_of(row: Agent) -> AgentSettings:
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(AgentSettings)}
    values |= {name: tuple(values[name]) for name in ("tools", "agents", "folders")}
    values |= {name: values[name] or None for name in OPTIONAL_LIMITS}
    return AgentSettings(**values | {"max_steps": max(1, row.max_steps)})


# A change of an agent is an entry in every session that continues with it.


def setting_changes(before: Snapshot, agent: AgentSettings, *, at: datetime) -> list[Entry]:
    """Entries that record the agent's instruction and tools, if they differ from those `before`."""
    entries: list[Entry] = []
    if agent.instruction != before.system_instruction or _ends_instruction_of_program(before, agent):
        entries.append(SystemInstructionSet(instruction=agent.instruction, agent=agent.name, is_internal=True, at=at))
    offered = offered_tools(agent)
    if offered != before.tools:
        entries.append(ToolsOffered(tools=offered, agent=agent.name, is_internal=True, at=at))
    return entries


def _ends_instruction_of_program(before: Snapshot, agent: AgentSettings) -> bool:
    """Whether an agent without an instruction continues a program's session, whose instruction ends here."""
    if agent.instruction or not agent.name or before.instruction_by or not before.nodes:
        return False
    started_here = Session.objects.filter(pk=before.session_id, source=Session.Source.CHAT, forked_from=None)
    return not started_here.exists()


def offered_tools(agent: AgentSettings) -> tuple[ToolDefinition, ...]:
    """Definitions of the agent's tools; that of `call_agent` lists the agents that it may call."""
    definitions = toolbox(agent.tools).definitions()
    if CALL_AGENT not in agent.tools:
        return definitions
    others = callable_agents(agent)
    described = [_with_agents(one, others) if one.name == CALL_AGENT else one for one in definitions]
    return tuple(one for one in described if others or one.name != CALL_AGENT)


def _with_agents(tool: ToolDefinition, others: Sequence[AgentSettings]) -> ToolDefinition:
    parameters = thaw(tool.parameters)
    parameters["properties"]["agent"]["enum"] = [agent.name for agent in others]
    lines = [f"- {agent.name}: {agent.purpose}" for agent in others]
    description = "\n".join([tool.description, "", "Agents that can be called:", *lines])
    return ToolDefinition(name=tool.name, description=description, parameters=parameters)
