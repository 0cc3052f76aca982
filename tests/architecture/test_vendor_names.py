"""Vendors are named only where a vendor's facts belong: adding a dialect is one folder and one line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import modules

pytestmark = pytest.mark.any_database

VENDORS = re.compile(r"anthropic|openai|gemini|claude|codex|deepseek|mistral|ollama", re.IGNORECASE)
# Wire formats, the provider table, client recognition, file readers, linter rules, prices, detectors and settings.
ALLOWED = (
    "history.clients",
    "history.dialects",
    "history.formats",
    "history.linting",
    "history.redaction",
    "project.settings",
    "relay.providers.vendors",
    "relay.usage.prices",
)


def test_vendors_are_named_only_where_their_facts_belong() -> None:
    naming = {module for module, tree in modules().items() if any(map(VENDORS.search, _texts(tree)))}
    assert {module for module in naming if not module.startswith(ALLOWED)} == set()


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every name and string of a module, without its docstrings."""
    docstrings = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        for field in ("id", "attr", "name", "module", "arg"):
            if isinstance(text := getattr(node, field, None), str):
                yield text


def _docstrings(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield id(first.value)
