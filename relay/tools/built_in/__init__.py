"""The tools themselves: one module each, found by the registry."""
