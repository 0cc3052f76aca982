"""Small helpers for plain text, without Django."""


def whole_number(text: str | None) -> int | None:
    """Parse a number of an entry, a row or a page; invalid input and numbers too long for a database return None."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None


def has_visible_text(text: str) -> bool:
    """False for spaces, zero-width and control characters alone: some models answer with nothing else."""
    return any(char.isprintable() and not char.isspace() for char in text)
