"""Audit of the pinned packages with `pip-audit --strict`, where an advisory database is reachable.

    python scripts/audit.py requirements.txt

pip-audit ends with the same code for a vulnerability and for a database that does not answer. So one package is
looked up first: only a database that knows it is asked about all of them. Without one, nothing is claimed:
"not audited" is printed and the exit code is 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SERVICES = ("pypi", "osv")
# A package that every advisory database knows.
PROBE = "django==5.2"
SECONDS = 300


def main(paths: list[str]) -> int:
    service = next((service for service in SERVICES if is_reachable(service)), None)
    if service is None:
        sys.stdout.write("not audited: no advisory database is reachable from here\n")
        return 0
    return max(run(service, "--strict", "--require-hashes", "-r", path).returncode for path in paths)


def is_reachable(service: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.txt"
        path.write_text(f"{PROBE}\n", encoding="utf-8")
        found = run(service, "--no-deps", "--format", "json", "-r", str(path), capture=True)
    return knows_packages(found.stdout)


def knows_packages(report: str) -> bool:
    """Whether pip-audit's JSON report has a package that was looked up, not skipped."""
    try:
        dependencies = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return False
    return any("vulns" in dependency for dependency in dependencies)


def run(service: str, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--disable-pip"]
    return subprocess.run(
        [*command, "--progress-spinner", "off", *arguments],
        capture_output=capture,
        text=True,
        timeout=SECONDS,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
