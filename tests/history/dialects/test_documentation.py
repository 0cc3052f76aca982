"""The pages about dialects and translation list every dialect, test and loss."""

import re
from pathlib import Path

import pytest

from history.dialects import DIALECTS, LossCode

pytestmark = pytest.mark.no_database

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "internals" / "dialects.md").read_text()
LOSSES = (ROOT / "docs" / "translation.md").read_text()


def defined_tests() -> dict[str, set[str]]:
    return {
        path.name: set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
        for path in Path(__file__).parent.glob("test_*.py")
    }


def test_every_test_that_the_page_names_exists() -> None:
    existing = set().union(*defined_tests().values())
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    assert named - existing == set()


def test_every_loss_is_on_the_page_and_has_a_sentence() -> None:
    for code in LossCode:
        assert f"`{code.value}`" in LOSSES
        assert code.sentence


def test_every_dialect_is_on_the_page() -> None:
    for name, dialect in DIALECTS.items():
        assert f"| `{name}` |" in PAGE
        assert f"| `{dialect.HTTP_API.vendor}` |" in PAGE
