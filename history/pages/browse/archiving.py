"""Undo for sessions that were archived or unarchived on /history/ a moment ago, kept with the sign-in."""

from __future__ import annotations

import time
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from history.pages.browse.page import UNDO

_KEY = "archiving"


@dataclass(frozen=True, slots=True)
class ArchivingStep:
    """The sessions of the latest step, by id, and whether it archived or unarchived them."""

    ids: tuple[str, ...]
    is_archived: bool


def note_archiving(store: MutableMapping[str, Any], ids: Iterable[str], *, archived: bool) -> None:
    """Replace the latest step; without ids there is nothing to undo."""
    store[_KEY] = {"ids": list(ids), "archived": archived, "at": time.time()}


def latest_archiving(store: MutableMapping[str, Any]) -> ArchivingStep | None:
    """The step that can still be undone."""
    noted = store.get(_KEY) or {}
    if not noted.get("ids") or time.time() - noted["at"] > UNDO.total_seconds():
        return None
    return ArchivingStep(tuple(noted["ids"]), noted["archived"])
