"""The tools themselves: found by the registry."""
