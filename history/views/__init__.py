"""Pages of the record."""
