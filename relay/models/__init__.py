"""Tables of the relay: agents, runs, usage and relayed calls."""

from typing import Any

from relay.models.agents import Agent as Agent, McpServer as McpServer
from relay.models.arrivals import KeyArrival as KeyArrival, PlanLimits as PlanLimits
from relay.models.relayed import IssuedId as IssuedId, JournalPosition as JournalPosition, NamedReply as NamedReply
from relay.models.runs import QueuedMessage as QueuedMessage, Run as Run
from relay.models.usage import (
    Allowance as Allowance,
    KeyMinute as KeyMinute,
    KeyStreams as KeyStreams,
    KeyUse as KeyUse,
    RecentMessage as RecentMessage,
    Spending as Spending,
)

User = Any  # settings.AUTH_USER_MODEL, which is in `project`
