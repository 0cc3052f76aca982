"""The `snapshot` fixture: compare a value with its recorded file, or record it with `--update-snapshots`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.relay.conftest import _a_channel_layer_of_its_own, scripted, talk
from tests.relay.gateway.conftest import key, relay

RECORDED = Path(__file__).parent / "recorded"
Snapshot = Callable[[str, Any], None]

__all__ = ["_a_channel_layer_of_its_own", "key", "relay", "scripted", "snapshot", "talk"]


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """`snapshot(file name, value)`: texts are recorded as they are, other values as sorted JSON."""

    def compare(name: str, value: Any) -> None:
        text = value if isinstance(value, str) else _as_json(value)
        path = RECORDED / name
        if request.config.getoption("--update-snapshots"):
            path.write_text(text, encoding="utf-8", newline="")
        recorded = path.read_bytes().decode() if path.exists() else ""
        if text != recorded:
            pytest.fail(_difference(name, recorded, text), pytrace=False)

    return compare


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _difference(name: str, recorded: str, found: str) -> str:
    lines = difflib.unified_diff(recorded.split("\n"), found.split("\n"), f"recorded/{name}", "found", lineterm="")
    told = "\n".join(lines)
    return f"{told}\nIf this change is intended: pytest tests/snapshots --update-snapshots, and read the diff."
