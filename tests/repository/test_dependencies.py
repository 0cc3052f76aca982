"""Declared, pinned and licensed dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata

import pytest

from scripts import audit
from tests.servers.processes import ROOT

OURS = {"project", "history", "relay", "tests", "bench", "faults", "scripts", "conftest"}
RUN, DEVELOP, DEMO = "requirements.in", "requirements-dev.in", "requirements-model.in"


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared_in(*names: str) -> set[str]:
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in names)
    return {normalize(name) for name in re.findall(r"^([a-zA-Z][\w.-]*)", text, re.MULTILINE)}


def imported_by(*folders: str) -> set[str]:
    found = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - OURS - set(sys.stdlib_module_names)


def undeclared(imports: set[str], declared: set[str]) -> set[str]:
    """Imports of packages that no requirements file names."""
    owners = metadata.packages_distributions()
    return {name for name in imports if not {normalize(owner) for owner in owners.get(name, [name])} & declared}


def test_every_package_that_parley_imports_is_declared() -> None:
    # polib is for `make messages` alone, a command for developers.
    declared = declared_in(RUN, DEMO) | {"polib"}
    assert undeclared(imported_by("parley", "project", "history", "relay"), declared) == set()


def test_every_package_that_tests_import_is_declared() -> None:
    assert undeclared(imported_by("tests", "bench", "faults", "scripts"), declared_in(RUN, DEVELOP, DEMO)) == set()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-model.txt"])
def test_every_pin_has_a_hash_and_no_address(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = re.split(r"^(?=[a-zA-Z])", text, flags=re.MULTILINE)[1:]
    assert pins
    assert [pin.split()[0] for pin in pins if "==" not in pin.split()[0] or "--hash=sha256:" not in pin] == []
    assert "://" not in text


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-model"])
def test_everything_declared_is_pinned(name: str) -> None:
    pinned = re.findall(r"^([a-zA-Z][\w.-]*)==", (ROOT / f"{name}.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert declared_in(f"{name}.in") <= {normalize(pin) for pin in pinned}


def test_licences_in_the_docs_are_those_that_packages_state() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    written = dict(re.findall(r"^\| ([\w.-]+) \| ([^|]+) \|", text, re.MULTILINE))
    wrong = {}
    for name, licence in written.items():
        stated = _stated_licence(name)
        if stated and _parts(stated) != _parts(licence):
            wrong[name] = (licence, stated)
    assert wrong == {}


def _stated_licence(name: str) -> str | None:
    try:
        stated = metadata.metadata(name).json.get("license_expression")
    except metadata.PackageNotFoundError:
        return None
    return str(stated) if stated else None


def _parts(licence: str) -> set[str]:
    return set(re.split(r"\s+(?:and|or)\s+", licence.strip().lower()))


def test_every_vendored_file_is_listed_with_version_and_licence() -> None:
    vendored = (ROOT / "static" / "vendor" / "README.md").read_text(encoding="utf-8")
    docs = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "static" / "vendor").rglob("*.js")):
        name = path.relative_to(ROOT / "static" / "vendor").as_posix()
        row = next((line for line in vendored.splitlines() if f"`{name}`" in line), "")
        version = re.search(r"\| (\d+\.\d+\.\d+) \|", row)
        assert version, f"{name} is not in static/vendor/README.md"
        assert version[1] in docs, f"{name} {version[1]} is not in docs/dependencies.md"


class TestAudit:
    def test_report_with_a_package_means_that_the_database_answers(self) -> None:
        assert audit.knows_packages('{"dependencies": [{"name": "django", "version": "5.2", "vulns": []}]}')

    @pytest.mark.parametrize(
        "report", ["", "not JSON", "[]", '{"dependencies": [{"name": "django", "skip_reason": "not found"}]}']
    )
    def test_report_without_a_package_means_not_audited(self, report: str) -> None:
        assert not audit.knows_packages(report)

    def test_a_finding_of_the_strict_run_is_the_exit_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit, "is_reachable", lambda _service: True)
        monkeypatch.setattr(audit, "run", lambda *_arguments: subprocess.CompletedProcess([], returncode=1))
        assert audit.main(["requirements.txt"]) == 1

    def test_no_database_is_said_and_is_no_failure(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(audit, "is_reachable", lambda _service: False)
        assert audit.main(["requirements.txt"]) == 0
        assert capsys.readouterr().out.startswith("not audited")
