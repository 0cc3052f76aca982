"""`make run` on a machine that is not ready for it: one clear line, and nothing left behind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.processes import ROOT, clean_environment

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def make_run(folder: Path, *, python: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "requirements-model.txt"):
        (folder / name).touch()
    return subprocess.run(
        ["make", "run", f"PYTHON={python}"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def our_line(done: subprocess.CompletedProcess[str]) -> str:
    """What is said before make's own last word."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = script(tmp_path / "old-python", 'case "$1" in -c) exit 1;; *) echo Python 3.9.2;; esac')
    done = make_run(tmp_path, python=old)
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in our_line(done)
    assert "Python 3.9.2" in our_line(done)
    assert not (tmp_path / ".venv").exists()


def test_a_python_that_is_missing_is_named(tmp_path: Path) -> None:
    done = make_run(tmp_path, python=tmp_path / "no-python")
    assert done.returncode != 0
    assert "there is no" in our_line(done)


def test_a_python_without_venv_says_what_to_install(tmp_path: Path) -> None:
    done = make_run(tmp_path, python=script(tmp_path / "python", 'case "$1" in -m) exit 1;; esac'))
    assert done.returncode != 0
    assert "python3-venv" in our_line(done)
    assert not (tmp_path / ".venv").exists()
