"""Built-in documentation: the pages of `docs/`, served at /help/ for signed-in users."""
