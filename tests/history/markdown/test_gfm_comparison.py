"""`python -m bench.gfm`: examples are found, compared and counted; the exit code says whether enough are alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import gfm

FENCE = "`" * 32


def spec(folder: Path, *examples: tuple[str, str]) -> Path:
    pieces = [f"{FENCE} example\n{source}\n.\n{html}\n{FENCE}\n" for source, html in examples]
    (folder / "spec.txt").write_text("# A heading\n\n" + "\nWords in between.\n\n".join(pieces), encoding="utf-8")
    return folder


ALIKE = [
    ("# One", "<h1>One</h1>"),
    ("- [x] done", '<ul>\n<li><input checked="" disabled="" type="checkbox"> done</li>\n</ul>'),
    ("| a |\n| --- |\n| b |", "<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n"
     "<tbody>\n<tr>\n<td>b</td>\n</tr>\n</tbody>\n</table>"),
    ("[a](https://a.example)", '<p><a href="https://a.example">a</a></p>'),
]  # fmt: skip
WRONG = ("*a*", "<p><strong>a</strong></p>")
RAW = ("<video src=a>", "<video src=a>")


@pytest.mark.parametrize(
    ("examples", "percent"), [(ALIKE, 100), ([*ALIKE, RAW], 100), ([*ALIKE, WRONG], 80), ([WRONG], 0)]
)
def test_examples_that_are_alike_are_counted(
    tmp_path: Path, examples: list[tuple[str, str]], percent: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gfm.measure(spec(tmp_path, *examples), show=False) == percent
    assert f"{percent}.0 %" in capsys.readouterr().out


def test_a_folder_without_examples_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"should hold spec\.txt"):
        gfm.measure(tmp_path, show=False)


@pytest.mark.parametrize(("percent", "code"), [(96.9, 1), (97.0, 0)])
def test_less_than_97_percent_is_a_failure(monkeypatch: pytest.MonkeyPatch, percent: float, code: int) -> None:
    for name in ("PARLEY_DATA_DIR", "DJANGO_SETTINGS_MODULE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # what it sets for itself ends with the test
    monkeypatch.setattr(gfm, "measure", lambda *_, **__: percent)
    monkeypatch.setattr("sys.argv", ["bench.gfm", "."])
    assert gfm.main() == code
