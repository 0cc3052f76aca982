"""`make faults` takes minutes and is no part of the check: that it runs at all, and tells what it found, is."""

import subprocess
import sys

from tests.servers.processes import clean_environment


def test_a_fault_of_the_long_runs_is_played_and_told() -> None:
    asked = [sys.executable, "-m", "faults", "--sqlite", "--rounds", "1", "crowd"]
    done = subprocess.run(asked, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "all there, all verified" in done.stdout
