"""Providers: calls to models over HTTP. The wire formats are in `history.dialects`."""
