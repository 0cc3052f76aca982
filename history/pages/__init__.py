"""Pages of the history."""
