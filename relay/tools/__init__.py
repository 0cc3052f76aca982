"""Tools of agents: typed functions whose signatures give their schemas.

    schemas (JSON schema from a signature, and validation of arguments) → base (what a tool is)
    → built_in (the tools of Parley) → registry (which there are) → running (calls, their limits and their results)

`docs/agents.md` shows how to write one.
"""
