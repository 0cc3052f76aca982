"""Providers: where a model is called. They only dial; what is said stands in `history.dialects`."""
