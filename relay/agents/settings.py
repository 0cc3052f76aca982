"""The agent of a turn, and the entries that record changes of its instruction and tools.

Its row is read when a turn begins and stays as it is until the turn ends.
"""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import QuerySet

from history.context.values import Snapshot
from history.db.prepared import prepared
from history.entries import Entry, SystemInstructionSet, ToolDefinition, ToolsOffered, thaw
from history.models import Session
from relay.errors import NoSuchAgent
from relay.models import Agent
from relay.tools.base import toolbox

CALL_AGENT = "call_agent"


def pick_agent(name: str, *, otherwise: str = "") -> Agent:
    """The agent that a user or client names, or `otherwise` where none is named. Raises NoSuchAgent."""
    if not name:
        return find_agent(otherwise)
    row = _agents_named.first(name)
    if row is None:
        raise NoSuchAgent(name)
    return row


def find_agent(name: str) -> Agent:
    """The agent of a stored session. If it was deleted since, the default one, or one without tools."""
    named = _agents_named(name) if name else []
    return next(iter(named or _default_agents() or Agent.objects.all()[:1]), None) or Agent()


@prepared
def _agents_named(name: str) -> QuerySet[Agent]:
    return Agent.objects.filter(name=name)


@prepared
def _default_agents() -> QuerySet[Agent]:
    return Agent.objects.filter(is_default=True)


def callable_agents(agent: Agent) -> list[Agent]:
    return list(Agent.objects.filter(name__in=agent.agents) if agent.agents else Agent.objects.exclude(name=agent.name))


def setting_changes(before: Snapshot, agent: Agent, *, at: datetime) -> list[Entry]:
    """Entries that record the agent's instruction and tools, if they differ from those `before`."""
    entries: list[Entry] = []
    if agent.instruction != before.system_instruction or _ends_instruction_of_program(before, agent):
        entries.append(SystemInstructionSet(instruction=agent.instruction, agent=agent.name, is_internal=True, at=at))
    offered = offered_tools(agent)
    if offered != before.tools:
        entries.append(ToolsOffered(tools=offered, agent=agent.name, is_internal=True, at=at))
    return entries


def _ends_instruction_of_program(before: Snapshot, agent: Agent) -> bool:
    """Whether an agent without an instruction continues a program's session, whose instruction ends here."""
    if agent.instruction or not agent.name or before.instruction_by or not before.nodes:
        return False
    started_here = Session.objects.filter(pk=before.session_id, source=Session.Source.CHAT, forked_from=None)
    return not started_here.exists()


def offered_tools(agent: Agent) -> tuple[ToolDefinition, ...]:
    """Definitions of the agent's tools; that of `call_agent` lists the agents that it may call."""
    definitions = tuple(tool.definition for tool in toolbox(agent.tools).values())
    if CALL_AGENT not in agent.tools:
        return definitions
    others = callable_agents(agent)
    described = [_with_agents(one, others) if one.name == CALL_AGENT else one for one in definitions]
    return tuple(one for one in described if others or one.name != CALL_AGENT)


def _with_agents(tool: ToolDefinition, others: Sequence[Agent]) -> ToolDefinition:
    parameters = thaw(tool.parameters)
    parameters["properties"]["agent"]["enum"] = [agent.name for agent in others]
    lines = [f"- {agent.name}: {agent.purpose}" for agent in others]
    description = "\n".join([tool.description, "", "Agents that can be called:", *lines])
    return ToolDefinition(name=tool.name, description=description, parameters=parameters)
