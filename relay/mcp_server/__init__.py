"""Parley as an MCP server: `application` is the endpoint, `protocol` the SDK behind it, `tools` has the tools."""
