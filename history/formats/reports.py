"""Import reports: the outcome of each conversation and file, and the texts of notes in the reader's language."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from uuid import UUID

from django.utils.translation import gettext, gettext_noop

from history.entries import JsonDict
from history.formats.base import Note
from history.models import Session
from history.text.lazy import LazyText, lazy_to_json


class ImportOutcome(StrEnum):
    IMPORTED = "imported"
    GROWN = "grown"
    THERE = "already there"
    REFUSED = "refused"
    NOTED = "noted"  # a file as such: something is wrong with it
    IGNORED = "ignored"  # a file in a folder or archive that holds no conversation


def outcome_of(before: Session | None, *, has_grown: bool) -> ImportOutcome:
    """The outcome of a conversation that is stored now. `before` is its session as it was."""
    if before is None:
        return ImportOutcome.IMPORTED
    return ImportOutcome.GROWN if has_grown else ImportOutcome.THERE


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One conversation, or one file. `entries` were stored now; `why` is the reason for a refusal."""

    outcome: ImportOutcome
    file: str = ""
    format: str = ""
    title: str = ""
    session: UUID | None = None
    entries: int = 0
    why: str = ""
    notes: tuple[Note, ...] = ()

    def as_json(self) -> JsonDict:
        session = str(self.session) if self.session else None
        return asdict(self) | {"outcome": self.outcome.value, "session": session}

    def as_stored_json(self) -> JsonDict:
        """The report as JSON, with the parameters of its texts, so that it can be translated later."""

        def with_parameters(data: JsonDict, **texts: str) -> JsonDict:
            lazy_texts = {name: lazy for name, text in texts.items() if (lazy := lazy_to_json(text))}
            return {**data, "apart": lazy_texts} if lazy_texts else data

        notes = [with_parameters(asdict(note), what=note.what, where=note.where) for note in self.notes]
        return with_parameters({**self.as_json(), "notes": notes}, title=self.title, why=self.why)


@dataclass(slots=True)
class ImportReport:
    """Counts only: a million conversations must not become a list."""

    counts: Counter[ImportOutcome] = field(default_factory=Counter)
    repaired: int = 0
    entries: int = 0

    def add(self, item: ImportItem) -> None:
        self.counts[item.outcome] += 1
        is_there = item.outcome in (ImportOutcome.IMPORTED, ImportOutcome.GROWN, ImportOutcome.THERE)
        self.repaired += is_there and any(note.level == "repaired" for note in item.notes)
        self.entries += item.entries

    def __getitem__(self, outcome: ImportOutcome) -> int:
        return self.counts[outcome]

    def as_json(self) -> dict[str, int]:
        counts = {outcome.value: self.counts[outcome] for outcome in ImportOutcome}
        return {**counts, "repaired": self.repaired, "entries": self.entries}


LEVELS = {"repaired": gettext_noop("repaired"), "lost": gettext_noop("lost"), "ignored": gettext_noop("left out")}


def level_label(level: str) -> str:
    return gettext(LEVELS.get(level, level))


def translate_sentence(text: str) -> str:
    """A marked sentence, with or without values."""
    if isinstance(text, LazyText) and text.values:
        values = {
            name: translate_if_lazy(value) if isinstance(value, str) else value for name, value in text.values.items()
        }
        return gettext(text.sentence) % values
    return gettext(text) if text else ""


def translate_if_lazy(text: str) -> str:
    """Translate lazy texts only; plain strings may be user content."""
    return translate_sentence(text) if isinstance(text, LazyText) else text


def note_text(note: Note) -> str:
    times = f" (× {note.count:,})" if note.count > 1 else ""
    place = f" – {translate_if_lazy(note.where)[:200]}" if note.where else ""
    return f"{translate_sentence(note.what)}{times}{place}"
