"""What the REST API does with a model. The rest of it is in `history.api`."""
