"""Import report: the outcome of each conversation and file."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from history.entries import JsonDict
from history.formats.base import Note
from history.text.lazy import lazy_to_json


class ImportOutcome(StrEnum):
    IMPORTED = "imported"
    GROWN = "grown"
    THERE = "already there"
    REFUSED = "refused"
    NOTED = "noted"  # a file as such: something is wrong with it
    IGNORED = "ignored"  # a file in a folder or archive that holds no conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One conversation, or one file. `entries` were stored now; `why` is the reason for a refusal."""

    outcome: ImportOutcome
    file: str
    format: str = ""
    title: str = ""
    session: UUID | None = None
    entries: int = 0
    why: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def is_repaired(self) -> bool:
        return any(note.level == "repaired" for note in self.notes)

    def as_json(self) -> JsonDict:
        return {
            "outcome": self.outcome.value,
            "file": self.file,
            "format": self.format,
            "title": self.title,
            "session": str(self.session) if self.session else None,
            "entries": self.entries,
            "why": self.why,
            "notes": [
                {"level": note.level, "what": note.what, "where": note.where, "count": note.count}
                for note in self.notes
            ],
        }

    def as_stored_json(self) -> JsonDict:
        """The report as JSON, with the parameters of its texts, so that it can be translated later."""
        data = self.as_json()
        notes = [
            told | _lazy_fields(what=note.what, where=note.where)
            for told, note in zip(data["notes"], self.notes, strict=True)
        ]
        return data | {"notes": notes} | _lazy_fields(title=self.title, why=self.why)


def _lazy_fields(**texts: str) -> JsonDict:
    lazy_texts = {name: data for name, text in texts.items() if (data := lazy_to_json(text))}
    return {"apart": lazy_texts} if lazy_texts else {}


@dataclass(slots=True)
class ImportReport:
    """Counts only: a million conversations must not become a list."""

    counts: Counter[ImportOutcome] = field(default_factory=Counter)
    repaired: int = 0
    entries: int = 0

    def add(self, item: ImportItem) -> None:
        self.counts[item.outcome] += 1
        self.repaired += item.is_repaired and item.outcome in (
            ImportOutcome.IMPORTED,
            ImportOutcome.GROWN,
            ImportOutcome.THERE,
        )
        self.entries += item.entries

    def __getitem__(self, outcome: ImportOutcome) -> int:
        return self.counts[outcome]

    @property
    def conversations(self) -> int:
        return sum(
            self.counts[outcome] for outcome in (ImportOutcome.IMPORTED, ImportOutcome.GROWN, ImportOutcome.THERE)
        )

    def as_json(self) -> dict[str, int]:
        return {outcome.value: self.counts[outcome] for outcome in ImportOutcome} | {
            "repaired": self.repaired,
            "entries": self.entries,
        }
