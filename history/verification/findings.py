"""Findings of a verification."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class FindingSeverity(StrEnum):
    DAMAGE = "damage"  # the record itself is not what was written
    PROJECTION = "projection"  # something that was made from the entries is wrong, and can be made anew


@dataclass(frozen=True, slots=True)
class VerificationFinding:
    """One thing that is not as it was written: where, what (a code for programs) and a sentence for people."""

    session: UUID | None
    seq: int
    code: str
    sentence: str
    severity: FindingSeverity = FindingSeverity.DAMAGE

    @property
    def is_damage(self) -> bool:
        return self.severity is FindingSeverity.DAMAGE

    def __str__(self) -> str:
        where = f"session {self.session}, entry {self.seq}" if self.session else f"number {self.seq}"
        return f"{where}: {self.sentence} ({self.code})"
