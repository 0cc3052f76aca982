"""The relay for programs: calls to /v1 and /v1beta, forwarded to a model and journaled."""
