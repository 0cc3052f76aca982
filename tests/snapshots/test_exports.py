"""One sample session in every export format."""

from __future__ import annotations

import re

import pytest

from history.exporting import Selection, begin
from history.formats.writers import EXPORTERS
from project.accounts.models import User
from tests.snapshots.conftest import Snapshot
from tests.snapshots.samples import sample

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

# Seals are made with random salts.
RANDOM = re.compile(r'("(?:seal|salt)": ?")[^"]+"')
UNFIXED_ID = re.compile(r"(?!11111111-2222)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# The exchange is stored with the time of the test.
UNFIXED_TIME = re.compile(r"(?!2025-12-31)20\d\d-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?")
STYLE = re.compile(r"<style>.*?</style>\n", re.DOTALL)
BLANK_LINES = re.compile(r"\n\s*\n")


def test_export_formats_and_file_names_are_as_recorded(ada: User, snapshot: Snapshot) -> None:
    session = sample(ada)
    formats = {
        name: {"media_type": one.media_type, "one_file": one.one_file, "file_name": one.name_of(session)}
        for name, one in EXPORTERS.items()
    }
    snapshot("export_formats.json", formats)


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_export_of_the_sample_session_is_as_recorded(ada: User, snapshot: Snapshot, name: str) -> None:
    session = sample(ada)
    export = begin(ada, Selection(sessions=(session.pk,)), name)
    written = b"".join(export.pieces()).decode()
    notes = sorted(note.level for note in export.report.notes)
    snapshot(f"export_{name}{EXPORTERS[name].suffix}.txt", f"{_masked(written)}\n--- notes: {notes}\n")


def _masked(text: str) -> str:
    """The style sheet of the page and the blank lines of its template are left out."""
    text = UNFIXED_TIME.sub("<time>", UNFIXED_ID.sub("<id>", RANDOM.sub(r'\1…"', text)))
    return BLANK_LINES.sub("\n", STYLE.sub("", text)) if text.startswith("<!doctype") else text
