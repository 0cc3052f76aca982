"""What a turn begins with besides the person's words: the agent's instruction and its tools, where they are not what
holds already. So a change of an agent is an entry in every session that goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from history.context import Snapshot
from history.entries import Entry, SystemInstructionSet, ToolDefinition, ToolsOffered, thaw
from history.models import Session
from relay.agents.settings import AgentSettings, callable_agents
from relay.tools.registry import toolbox

CALL_AGENT = "call_agent"


def setting_changes(before: Snapshot | None, agent: AgentSettings, *, at: datetime) -> list[Entry]:
    """Entries that make what holds that which the agent has now; None: nothing holds yet."""
    entries: list[Entry] = []
    if agent.instruction != (before.system_instruction if before else "") or _takes_over_without(before, agent):
        entries.append(SystemInstructionSet(instruction=agent.instruction, agent=agent.name, is_internal=True, at=at))
    offered = offered_tools(agent)
    if offered != (before.tools if before else ()):
        entries.append(ToolsOffered(tools=offered, agent=agent.name, is_internal=True, at=at))
    return entries


def _takes_over_without(before: Snapshot | None, agent: AgentSettings) -> bool:
    """An agent without an instruction goes on with what a program began: that one's orders end here all the same."""
    if before is None or agent.instruction or not agent.name or before.instruction_by or not before.nodes:
        return False
    begun_here = Session.objects.filter(pk=before.session_id, source=Session.Source.CHAT, forked_from=None)
    return not begun_here.exists()


def offered_tools(agent: AgentSettings) -> tuple[ToolDefinition, ...]:
    """The agent's tools as its model is told of them: whoever may call agents is told whom."""
    definitions = toolbox(agent.tools).definitions()
    if CALL_AGENT not in agent.tools:
        return definitions
    others = callable_agents(agent)
    named = [_naming(one, others) if one.name == CALL_AGENT else one for one in definitions]
    return tuple(one for one in named if others or one.name != CALL_AGENT)


def _naming(tool: ToolDefinition, others: Sequence[AgentSettings]) -> ToolDefinition:
    parameters = thaw(tool.parameters)
    parameters["properties"]["agent"]["enum"] = [agent.name for agent in others]
    lines = [f"- {agent.name}: {agent.purpose}" for agent in others]
    description = "\n".join([tool.description, "", "Agents that can be called:", *lines])
    return ToolDefinition(name=tool.name, description=description, parameters=parameters)
