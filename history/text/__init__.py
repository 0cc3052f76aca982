"""Small helpers for plain text. They know nothing of Django."""
