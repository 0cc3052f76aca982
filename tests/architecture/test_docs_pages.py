"""The pages about the code name files that exist, and every word of the glossary is used."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source_tree import ROOT

pytestmark = pytest.mark.any_database

PATH = re.compile(r"`((?:project|relay|history|tests|docs|templates|static|scripts)/[\w./-]*)`")


INTERNALS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "internals").glob("*.md"))


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md", "README.md", *INTERNALS]
)
def test_files_that_a_page_names_exist(page: str) -> None:
    named = set(PATH.findall((ROOT / page).read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_architecture_lists_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    without_code = ("locale_formats", "management", "migrations", "templatetags")
    packages = {
        f"{path.parent.parent.name}/{path.parent.name}"
        for app in ("project", "relay", "history")
        for path in (ROOT / app).glob("*/__init__.py")
        if path.parent.name not in without_code and path.parent != ROOT / "project" / "models"
    }
    assert set(re.findall(r"^\| `(\w+/\w+)` \|", text, re.MULTILINE)) == packages


def test_words_of_the_glossary_are_used_in_the_docs() -> None:
    rows = re.findall(
        r"^\| ([a-z][a-z ]+) \| ", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md") if path.name != "glossary.md"]
    assert len(rows) > 15
    assert [word for word in rows if not any(word in page for page in pages)] == []
