"""Parley as an MCP server: `application` is the door, `protocol` the SDK behind it, `tools` what can be called."""
