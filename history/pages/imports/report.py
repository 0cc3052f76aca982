"""An import as a page shows it: in words of the reader's language, what matters first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from history.formats.base import Note
from history.formats.note_texts import filled_in, level_word, note_words, worded
from history.importing import jobs
from history.importing.reports import ImportOutcome
from history.models import ImportJob, Session
from history.text.lazy import lazy_from_json

NAMES = {
    ImportOutcome.REFUSED: gettext_lazy("refused"),
    ImportOutcome.NOTED: gettext_lazy("noted"),
    ImportOutcome.IMPORTED: gettext_lazy("imported"),
    ImportOutcome.GROWN: gettext_lazy("grown"),
    ImportOutcome.THERE: gettext_lazy("already there"),
    ImportOutcome.IGNORED: gettext_lazy("ignored"),
}
BADGES = {
    ImportOutcome.REFUSED: "failed",
    ImportOutcome.NOTED: "warning",
    ImportOutcome.IMPORTED: "success",
    ImportOutcome.GROWN: "success",
}


@dataclass(frozen=True)
class ShownNote:
    level: str
    name: Any
    text: str


@dataclass(frozen=True)
class ShownItem:
    outcome: ImportOutcome
    title: str
    file: str
    format: str
    entries: int
    why: str
    session: str | None
    notes: tuple[ShownNote, ...]

    @property
    def name(self) -> Any:
        return NAMES[self.outcome]

    @property
    def badge(self) -> str:
        return BADGES.get(self.outcome, "")


@dataclass(frozen=True)
class ImportView:
    row: ImportJob

    @property
    def pk(self) -> UUID:
        return self.row.pk

    @property
    def created_at(self) -> datetime:
        return self.row.created_at

    @property
    def files(self) -> str:
        names = [str(file.get("name", "")) for file in self.row.files]
        more = len(names) - 3
        words = ", ".join(names[:3])
        return (
            words
            if more <= 0
            else ngettext("%(names)s and %(more)s more", "%(names)s and %(more)s more", more)
            % {
                "names": words,
                "more": more,
            }
        )

    @property
    def is_active(self) -> bool:
        going_on = (ImportJob.State.WAITING, ImportJob.State.RUNNING, ImportJob.State.UPLOADING)
        return self.row.state in going_on and not self.is_interrupted

    @property
    def is_uploading(self) -> bool:
        return self.row.state == ImportJob.State.UPLOADING

    @cached_property
    def is_interrupted(self) -> bool:
        return jobs.is_interrupted(self.row)

    @cached_property
    def may_run_again(self) -> bool:
        return jobs.may_run_again(self.row)

    @property
    def state(self) -> str:
        return _("interrupted") if self.is_interrupted else str(self.row.get_state_display())

    @property
    def error(self) -> str:
        return _(self.row.error) if self.row.error else ""

    @property
    def size(self) -> int:
        return sum(int(file.get("size", 0)) for file in self.row.files)

    @property
    def read(self) -> int:
        """How far it is; an archive is larger inside than outside."""
        done = self.row.state == ImportJob.State.DONE
        return self.size if done else min(self.row.bytes_read, self.size)

    @property
    def counts(self) -> list[tuple[Any, int]]:
        counts = self.row.counts
        named = [(NAMES[outcome], counts.get(outcome.value, 0)) for outcome in NAMES]
        return [*((name, count) for name, count in named if count), (_("entries"), counts.get("entries", 0))]

    @cached_property
    def items(self) -> list[ShownItem]:
        """Refusals first; what was repaired or lost before what went well; files without conversations last."""
        order = {outcome.value: place for place, outcome in enumerate(NAMES)}
        there = _still_there(self.row.items)
        rows = sorted(self.row.items, key=lambda item: (order.get(item["outcome"], 9), not item["notes"]))
        return [_item(row, there) for row in rows]

    @property
    def untold(self) -> int:
        """Items that are counted but not kept one by one."""
        told: int = sum(self.row.counts.get(outcome.value, 0) for outcome in NAMES)
        return max(told - len(self.row.items), 0)


def shown(job: ImportJob) -> ImportView:
    return ImportView(job)


def _still_there(items: list[dict[str, Any]]) -> set[str]:
    names = [item["session"] for item in items if item.get("session")]
    found = Session.objects.not_hidden().filter(pk__in=names[:900]).values_list("pk", flat=True)
    return {str(name) for name in found} | set(names[900:])


def _item(row: Mapping[str, Any], there: set[str]) -> ShownItem:
    return ShownItem(
        outcome=ImportOutcome(row["outcome"]),
        title=filled_in(_text(row, "title")),
        file=row["file"],
        format=row["format"],
        entries=row["entries"],
        why=worded(_text(row, "why")),
        session=row["session"] if row["session"] in there else None,
        notes=tuple(_note(note) for note in row["notes"]),
    )


def _note(note: Mapping[str, Any]) -> ShownNote:
    said = Note(level=note["level"], what=_text(note, "what"), where=_text(note, "where"), count=note["count"])
    return ShownNote(note["level"], level_word(note["level"]), note_words(said))


def _text(row: Mapping[str, Any], name: str) -> str:
    kept = row.get("apart", {}).get(name)
    return lazy_from_json(kept) if kept else str(row[name])
