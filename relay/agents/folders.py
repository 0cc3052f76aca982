"""Folders that an agent is told about: which may be, and a listing of each that stays short."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from django.conf import settings

MOST_LINES = 200
MOST_FOLDERS = 20
AT_ONCE = 8
# What nobody looks for in them.
IGNORED = frozenset({"node_modules", "__pycache__", "venv", "dist", "build", "target"})


class FolderNotAllowed(Exception):
    """The folder is not there, or lies outside of every root that the operator allows."""


def resolve_folder(folder: str) -> Path:
    """The folder, links followed; raises NotAllowed. Outside of the roots nobody learns whether it is there."""
    try:
        place = Path(folder).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise FolderNotAllowed(folder) from None
    if place.is_dir() and any(place.is_relative_to(Path(root).resolve()) for root in settings.PARLEY_FOLDERS):
        return place
    raise FolderNotAllowed(folder)


def list_folders(folders: Sequence[str]) -> list[str]:
    """One for each folder that may be listed, in their order; all are read side by side."""
    wanted = list(dict.fromkeys(folders))[:MOST_FOLDERS]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as readers:
        return [text for text in readers.map(_listing_or_nothing, wanted) if text]


def list_folder(place: Path) -> str:
    """A folder as an indented tree, level by level until there are enough lines."""
    shown = _first_entries(place)
    lines = [f"{place}{os.sep}", *_tree(place, shown, depth=1)]
    if len(shown) > MOST_LINES:
        lines.append("… and more")
    return "\n".join(lines)


def _listing_or_nothing(folder: str) -> str:
    try:
        return list_folder(resolve_folder(folder))
    except FolderNotAllowed:
        return ""


def _first_entries(place: Path) -> dict[Path, bool]:
    """So many entries, the uppermost first, and whether each is a folder; one more says that there are others."""
    found: dict[Path, bool] = {}
    level = [place]
    while level and len(found) <= MOST_LINES:
        below = []
        for folder in level:
            for entry in _entries(folder):
                if len(found) > MOST_LINES:
                    return found
                found[Path(entry.path)] = entry.is_dir(follow_symlinks=False)
                if found[Path(entry.path)]:
                    below.append(Path(entry.path))
        level = below
    return found


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in IGNORED]
    except OSError:
        return
    yield from sorted(shown, key=lambda entry: entry.name)


def _tree(place: Path, shown: dict[Path, bool], *, depth: int) -> Iterator[str]:
    for number, (path, is_folder) in enumerate(shown.items()):
        if path.parent != place or number >= MOST_LINES:
            continue
        # A name may hold anything, and a listing has one line for each.
        name = path.name.encode(errors="replace").decode().replace("\n", "�").replace("\r", "�")
        yield f"{'  ' * depth}{name}{os.sep if is_folder else ''}"
        if is_folder:
            yield from _tree(path, shown, depth=depth + 1)
