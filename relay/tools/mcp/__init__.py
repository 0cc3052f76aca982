"""Tools of MCP servers, for our agents.

    values (what a server is, without its row) → transports (a process, or HTTP, within limits)
    → connections (one per server and process, in a thread of their own) → servers (rows, and the tools made of them)

What a server tells us, its descriptions included, is foreign data: cleaned and cut in `shaping`.
"""
