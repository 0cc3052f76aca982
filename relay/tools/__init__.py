"""Tools of agents: typed functions whose signatures give their schemas. `docs/agents.md` shows how to write one.

base → built_in (the tools of Parley) and mcp (those of MCP servers) → running
"""
