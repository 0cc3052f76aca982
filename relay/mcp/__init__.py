"""The Model Context Protocol, both ways, with the official SDK.

`serving`: Parley is an MCP server at `/mcp`, so that any client can recall what was said in earlier sessions.
`using`: agents call the tools of MCP servers that the staff has configured.

The SDK takes a second to import and tens of megabytes to keep, so nothing imports it before somebody needs it.
"""
