"""Pages of the relay in the admin."""

from relay.admin import agents as agents
from relay.admin import mcp_servers as mcp_servers
from relay.admin import usage as usage
