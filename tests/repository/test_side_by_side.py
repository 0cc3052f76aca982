"""What `make check` does beside one another: a failure stops nothing, fails the whole, and is what one reads last."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.run_in_parallel import LAST_LINES, main


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("breaks").write_text("for n in $(seq 100); do echo line $n; done\necho 'FAILED test_x' >&2\nexit 3\n")
    Path("passes").write_text("echo all is well\n")


@pytest.mark.usefixtures("scripts")
def test_what_failed_stops_nothing_and_its_end_is_shown_after_everything_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main("sh", "breaks passes", "passes") == 1
    shown, _, last = capsys.readouterr().out.partition("The end of breaks:")
    assert shown.count("all is well") == 2
    assert "line 1\n" in shown
    lines = last.strip().splitlines()
    assert lines[0] == f"line {100 - LAST_LINES + 2}"
    assert lines[LAST_LINES - 1] == "FAILED test_x"
    assert [line.split(" after ")[0] for line in lines[-3:]] == ["breaks: FAILED", "passes: passed", "passes: passed"]


@pytest.mark.usefixtures("scripts")
def test_where_nothing_fails_all_of_it_passes() -> None:
    assert main("sh", "passes", "passes passes") == 0
