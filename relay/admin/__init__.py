"""Pages of the relay in the admin."""

from relay.admin import agents, mcp_servers, usage  # noqa: F401 - registered by their import
