"""Default settings, and the place of the history variables in `.env.example`."""

from __future__ import annotations

from pathlib import Path

from tests.servers.processes import ROOT, load_settings

HISTORY = {
    "CHAT_HISTORY_ENABLED": True,
    "CHAT_HISTORY_TTL_DAYS": 30,
    "CHAT_HISTORY_BODY_DAYS": 0,
    "CHAT_HISTORY_MAX_MESSAGES": 0,
    "CHAT_HISTORY_MAX_SESSIONS": 0,
    "CHAT_HISTORY_STICKY_TTL_SECONDS": 600,
    "PARLEY_TRASH_HOURS": 24,
}


def settings_under(folder: Path, **variables: str) -> dict[str, object]:
    found = load_settings(PARLEY_DATA_DIR=str(folder), **variables)
    return {name: found[name] for name in HISTORY}


def test_without_any_variable_every_setting_of_the_history_has_its_default(tmp_path: Path) -> None:
    assert settings_under(tmp_path) == HISTORY


def test_each_variable_of_the_history_is_read(tmp_path: Path) -> None:
    wanted = {name: False if value is True else 7 for name, value in HISTORY.items()}
    assert settings_under(tmp_path, **{name: str(value).lower() for name, value in wanted.items()}) == wanted


def test_the_example_file_has_a_section_of_its_own_for_the_history_with_the_defaults() -> None:
    general, history = (ROOT / ".env.example").read_text(encoding="utf-8").split("\n# History\n")
    assert "CHAT_HISTORY" not in general
    for name, value in HISTORY.items():
        assert f"#{name}={str(value).lower()}\n" in history
