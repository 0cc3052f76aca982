"""What an export did, and what its format could not carry."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from history.formats.base import Note


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """`cursor` is where the next export goes on; empty where none was asked for."""

    format: str
    sessions: int
    bytes: int
    notes: tuple[Note, ...] = ()
    cursor: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"notes": [asdict(note) for note in self.notes]}
