"""Plain words in page texts, templates, docs and code; in tests the old ones only become fewer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest

from tests.architecture.source_tree import ROOT

pytestmark = pytest.mark.any_database

ACTORS = ("nobody", "somebody", "whoever", "everybody", "whatever")
METAPHORS = ("house", "door", "room", "bin", "crew", "rail", "wish", "footing", "wave", "errand", "lookout")
# Not paths: `rail/` and `.venv/bin` are addresses.
WORDS = re.compile(rf"(?<![/\w])(?:{'|'.join((*ACTORS, *METAPHORS))})s?\b(?!/)", re.IGNORECASE)
# Occurrences that are left. These numbers only shrink.
LEFT = {
    **dict.fromkeys(
        ("history", "project", "parley", "bench", "faults", "scripts", "static", "templates", "docs", "locale"), 0
    ),
    "relay": 0,
    "tests": 2,
}


@pytest.mark.parametrize("folder", LEFT)
def test_unclear_words_become_fewer(folder: str) -> None:
    assert sum(len(WORDS.findall(text)) for text in _texts(folder)) <= LEFT[folder]


def _texts(folder: str) -> Iterator[str]:
    if folder == "locale":
        for path in (ROOT / "locale").rglob("*.po"):
            yield from (entry.msgid for entry in polib.pofile(str(path)))
        return
    suffix = {"templates": "*.html", "docs": "*.md", "static": "*.js"}.get(folder, "*.py")
    for path in (ROOT / folder).rglob(suffix):
        if path != Path(__file__) and not {"migrations", "vendor"} & set(path.parts):
            yield path.read_text(encoding="utf-8")
