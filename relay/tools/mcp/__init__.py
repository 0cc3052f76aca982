"""Tools of MCP servers, for our agents. All that a server tells us is foreign data: `shaping` cleans and cuts it.

config → transports (a process, or HTTP, within limits) → connections (one per server and process) → servers
"""
