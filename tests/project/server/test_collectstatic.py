"""Static files are collected on the first start and when they have changed, not on every start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from project.server.static_files import collect_when_changed


@pytest.fixture
def source(settings: Settings, tmp_path: Path) -> Path:
    """One style sheet in its own data directory."""
    for name in ("data", "source"):
        (tmp_path / name).mkdir()
    settings.PARLEY_DATA_DIR = tmp_path / "data"
    settings.STATIC_ROOT = tmp_path / "data" / "static"
    settings.STATICFILES_DIRS = [tmp_path / "source"]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    source = tmp_path / "source" / "a.css"
    source.write_text("a {}")
    return source


def collected(settings: Settings) -> set[str]:
    return {path.read_text() for path in Path(settings.STATIC_ROOT).glob("a.*.css")}


def test_files_are_collected_once_and_again_when_one_has_changed(source: Path, settings: Settings) -> None:
    assert collect_when_changed()
    assert not collect_when_changed()
    source.write_text("b {}")
    os.utime(source, ns=(0, 1))  # as long as before, changed at another time
    assert collect_when_changed()
    assert collected(settings) == {"a {}", "b {}"}
    (source.parent / "c.css").write_text("c {}")
    assert collect_when_changed()
    assert not collect_when_changed()


def test_removed_files_are_collected_again(source: Path, settings: Settings) -> None:
    collect_when_changed()
    for path in Path(settings.STATIC_ROOT).iterdir():
        path.unlink()
    assert collect_when_changed()
    assert collected(settings) == {"a {}"}
