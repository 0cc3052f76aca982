"""What an agent can do besides talking. A tool is one small module with a typed function that gives its schema.

    schemas (from a signature to JSON schema, and arguments held against it) → base (what a tool is)
    → built_in (one module per tool) → registry (which there are) → running (calls, their limits and their results)

`docs/agents.md` shows how to write one.
"""
