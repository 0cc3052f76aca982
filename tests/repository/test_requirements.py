"""docs/requirements.md names every id, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
SEEDS, _, PART_1 = PAGE.partition("## Part 1, line by line")
HOW_MANY = {"S0.": 33, "S1.": 35, "S2.": 66, "S3.": 46, "S4.": 38, "X": 6}
IDS = [f"{seed}{number}" for seed, many in HOW_MANY.items() for number in range(1, many + 1)]
# A row is shown by a test, belongs to a later part, or says why it is no business of ours.
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
ANSWER = re.compile(rf"{TEST.pattern}|Part [2-5]|does not apply, because|\]\(decisions/")


def rows(text: str) -> list[list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return [row for row in cells if row[0] not in ("id", "promise", "---")]


@cache
def names_in(file: str) -> frozenset[str]:
    """`test_x`, and `TestX::test_y` for tests in classes: as pytest names them."""
    if not (ROOT / file).exists():
        return frozenset()
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    found = {node.name for node in tree.body if isinstance(node, functions)}
    for group in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found |= {f"{group.name}::{node.name}" for node in group.body if isinstance(node, functions)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def test_every_id_has_one_row_in_order() -> None:
    assert [row[0] for row in rows(SEEDS)] == IDS


def test_every_id_says_what_it_asks_for_where_it_lives_and_what_shows_it() -> None:
    unanswered = [row for row in rows(SEEDS) if len(row) != 4 or not all(row) or not ANSWER.search(row[3])]
    assert unanswered == []


def test_every_promise_of_part_1_says_what_shows_it() -> None:
    assert len(rows(PART_1)) > 80
    assert [row for row in rows(PART_1) if len(row) != 2 or not all(row)] == []


def test_every_test_that_is_named_exists() -> None:
    named = set(TEST.findall(PAGE))
    assert len(named) > 200
    assert [f"{file}::{name}" for file, name in sorted(named) if name not in names_in(file)] == []
