"""REST endpoints that call models. All others are in `history.api`."""
