"""The repository looks as its documents say: a newcomer finds everything at its usual place."""

from __future__ import annotations

import os

import pytest

from tests.house.processes import ROOT

FOLDERS = ["project", "history", "relay", "templates", "static", "tests", "docs", "docs/decisions", "bench"]
FILES = [
    "manage.py",
    "requirements.txt",
    "README.md",
    "Makefile",
    "pyproject.toml",
    ".env.example",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    ".ci/run",
]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_folder_has_its_place(name: str) -> None:
    assert any((ROOT / name).iterdir())


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_its_place_and_says_something(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_licence_is_mit_and_ci_can_be_run() -> None:
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make check" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
