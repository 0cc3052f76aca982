"""Static files are collected when they have changed since they were collected last: on most starts they have not."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command


def collect_when_changed() -> bool:
    """Whether anything was done."""
    stamp, sources = Path(settings.PARLEY_DATA_DIR) / "static.stamp", _sources()
    if stamp.exists() and stamp.read_text() == sources and staticfiles_storage.exists("staticfiles.json"):
        return False
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(sources)
    return True


def _sources() -> str:
    """Stands for all files that would be collected: where they are, how long, and when each was changed."""
    found = sorted((path, storage.path(path)) for finder in get_finders() for path, storage in finder.list([]))
    lines = [f"{path} {place} {Path(place).stat().st_size} {Path(place).stat().st_mtime_ns}" for path, place in found]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
