"""The repository looks as its documents say: a newcomer finds everything at its usual place."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib

import pytest

from tests.servers.processes import ROOT

FOLDERS = [
    "project",
    "history",
    "relay",
    "templates",
    "static",
    "tests",
    "docs",
    "docs/decisions",
    "docs/internals",
    "bench",
]
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


@pytest.fixture(scope="module")
def steps_of_a_check() -> str:
    """Every command that `make check` would run: it starts itself many times to say so."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    return subprocess.run(["make", "--dry-run", "check"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "step",
    [
        r"ruff format --check \.$",
        r"ruff check \.$",
        "djade --check",
        r"mypy \.$",
        "lint-imports",
        "manage.py makemigrations --check",
        r"^\.venv/bin/pytest(?!.* -m )",
        r"-m tests\.servers\.on_postgres \.venv/bin/pytest(?!.* -m )",
        r"-m tests\.servers\.on_postgres \.venv/bin/pytest.* -m browser",
    ],
)
def test_a_check_leaves_out_no_step(steps_of_a_check: str, step: str) -> None:
    assert re.search(step, steps_of_a_check, re.MULTILINE)


def test_types_are_strict_and_imports_go_one_way() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert settings["mypy"]["strict"]
    contracts = {contract["name"]: contract for contract in settings["importlinter"]["contracts"]}
    assert contracts["Imports go one way: project, relay, history"]["layers"] == ["project", "relay", "history"]
    pure = contracts["Values import neither Django nor a package that does"]
    for name in ("answers", "context", "dialects", "entries", "text"):
        assert f"history.{name}" in pure["source_modules"]
    assert "django" in pure["forbidden_modules"]
    assert contracts["Providers only call models: they import no tables"]["source_modules"] == ["relay.providers"]


def test_the_environment_is_read_in_one_place() -> None:
    """`setdefault` of DJANGO_SETTINGS_MODULE names the settings; everything else asks `project.config.env`."""
    readers = set()
    for path in [
        ROOT / "manage.py",
        *(file for app in ("parley", "project", "history", "relay") for file in (ROOT / app).rglob("*.py")),
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv"):
                readers.add(path.relative_to(ROOT).as_posix())
    # The digester is a process of its own: it names its settings, and gets the environment that its server has.
    digester = {"relay/digest/__main__.py", "relay/digest/process.py"}
    assert readers == {"project/config/env.py", "project/asgi.py", "manage.py", "parley/__main__.py"} | digester


_MOVES = re.compile(r"(?<![\w-])(?:transition|animation|scroll-behavior)(?:-\w+)*\s*:(?!\s*none\b)|@keyframes")
_IF_WANTED = re.compile(
    r"@media \(prefers-reduced-motion: no-preference\) \{(?:[^{}]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})*[^{}]*\}"
)


def test_nothing_moves_for_those_who_asked_for_less_motion() -> None:
    styles = {style.name: style.read_text() for style in (ROOT / "static/css").rglob("*.css")}
    assert [name for name, text in styles.items() if _MOVES.search(_IF_WANTED.sub("", text))] == []
    assert any(_MOVES.search(text) for text in styles.values()), "something does move for the others"
