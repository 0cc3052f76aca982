"""What a restore says about each session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from history.formats.base import Note

Outcome = Literal["imported", "extended", "already there", "deleted", "noted", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One session of a file, or one line of another section (`session` None), and what became of it.

    `extended`: it was there already, and has now what the file knew besides. `noted`: nothing was done.
    """

    session: UUID | None
    outcome: Outcome
    title: str = ""
    entries: int = 0  # that were stored now
    why: str = ""
    notes: tuple[Note, ...] = ()
