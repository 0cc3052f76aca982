"""Folder and largest size of the journal, from the settings."""

from pathlib import Path

from django.conf import settings


def journal_folder() -> Path:
    return Path(settings.PARLEY_DATA_DIR) / "journal"


def most_bytes() -> int:
    """How large the journal may become."""
    return int(settings.PARLEY_JOURNAL_MB) * 1024 * 1024
