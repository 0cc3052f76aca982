"""Tables of the relay: agents, runs, usage and relayed calls."""

from typing import Any

from relay.models.agents import Agent as Agent
from relay.models.agents import McpServer as McpServer
from relay.models.relayed import IssuedId as IssuedId
from relay.models.relayed import JournalPosition as JournalPosition
from relay.models.relayed import NamedReply as NamedReply
from relay.models.runs import QueuedMessage as QueuedMessage
from relay.models.runs import Run as Run
from relay.models.usage import Allowance as Allowance
from relay.models.usage import KeyMinute as KeyMinute
from relay.models.usage import KeyStreams as KeyStreams
from relay.models.usage import KeyUse as KeyUse
from relay.models.usage import RecentMessage as RecentMessage
from relay.models.usage import Spending as Spending

User = Any  # settings.AUTH_USER_MODEL, which is in `project`
