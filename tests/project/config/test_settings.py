"""Wrong settings stop the start with one clear line; missing ones have safe defaults."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
from django.conf import settings

from project.config import installation
from project.config.env import key_from
from tests.servers.processes import ROOT, SERVERS, clean_environment, free_port, load_settings

WRONG = {
    "DEBUG": "maybe",
    "PORT": "http",
    "DATABASE_URL": "nonsense",
    "REDIS_URL": "nonsense",
    "PARLEY_URL": "parley.example.org",
    "PARLEY_DATA_DIR": "/proc/parley",
    "PARLEY_TRASH_HOURS": "a day",
    "CHAT_HISTORY_ENABLED": "perhaps",
    "CHAT_HISTORY_TTL_DAYS": "-1",
    "PARLEY_REDACTION_HOOKS": "not a path",
    "PARLEY_TIME_ZONE": "Mars/Olympus",
    "PARLEY_LOG_LEVEL": "loud",
    "OPENAI_API_KEY": "sk-one sk-two",
    "OPENAI_BASE_URL": "https://user:password@api.example.org/v1",
    "ANTHROPIC_BASE_URL": "https://",
    "GOOGLE_GEMINI_BASE_URL": "https://example.org/?key=1",
    "PARLEY_PROVIDERS": "no-such-file.toml",
    "PARLEY_PRICES": "no-such-file.toml",
    "PARLEY_RELAY_ON_DISCONNECT": "wait",
    "PARLEY_DEMO_MODEL": "perhaps",
    "SECRET_KEY": "short",
    "PARLEY_FINGERPRINT_KEY": "short",
}


def assert_one_clear_line(stderr: str, name: str) -> None:
    assert stderr.count("\n") == 1, stderr
    assert name in stderr
    assert "write" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_one_clear_line_and_exit_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load_settings(**{"PARLEY_DATA_DIR": str(tmp_path), name: WRONG[name]})
    assert stopped.value.code == 2
    assert_one_clear_line(capsys.readouterr().err, name)


@pytest.mark.parametrize("program", ["manage.py", "daphne", "uvicorn"])
def test_wrong_settings_end_every_program_with_that_line_and_code(program: str, tmp_path: Path) -> None:
    environment = clean_environment(PARLEY_DATA_DIR=str(tmp_path), DEBUG="maybe")
    words = ["-m", *SERVERS[program]] if program in SERVERS else [program, "check"]
    filled = [word.format(port=free_port(), application="project.asgi:application") for word in words]
    command = [sys.executable, *filled]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert_one_clear_line(done.stderr, "DEBUG")


def test_the_defaults_are_safe(tmp_path: Path) -> None:
    found = load_settings(PARLEY_DATA_DIR=str(tmp_path))
    assert (found["DEBUG"], found["ALLOWED_HOSTS"]) == (False, ["localhost", "127.0.0.1", "[::1]"])
    assert min(len(found["SECRET_KEY"]), len(found["PARLEY_FINGERPRINT_KEY"])) > 40
    for name in ("secret.key", "fingerprint.key"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_https_in_the_address_makes_cookies_secure(tmp_path: Path) -> None:
    found = load_settings(PARLEY_DATA_DIR=str(tmp_path), PARLEY_URL="https://parley.example.org/")
    assert found["SESSION_COOKIE_SECURE"]
    assert found["CSRF_COOKIE_SECURE"]
    assert found["SECURE_HSTS_SECONDS"] > 0
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://parley.example.org"]
    assert "parley.example.org" in found["ALLOWED_HOSTS"]


def test_no_page_may_run_inline_scripts_or_styles() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    assert not any("unsafe" in str(source) for sources in directives.values() for source in sources)


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with get_context("spawn").Pool(4) as pool:
        keys = pool.map(key_from, [tmp_path / f"{number // 8}.key" for number in range(64)], chunksize=1)
    for number in range(8):
        assert len(set(keys[number * 8 : number * 8 + 8])) == 1
    assert len(list(tmp_path.iterdir())) == 8


def test_a_damaged_key_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret.key").write_text("")
    with pytest.raises(SystemExit) as stopped:
        load_settings(PARLEY_DATA_DIR=str(tmp_path))
    said = capsys.readouterr().err
    assert (stopped.value.code, said.count("\n"), "secret.key" in said) == (2, 1, True)


def test_a_postgresql_that_vanishes_without_a_word_is_noticed(tmp_path: Path) -> None:
    """Its connections are given up, and the URL has the last word."""
    folder = {"PARLEY_DATA_DIR": str(tmp_path)}
    found = load_settings(**folder, DATABASE_URL="postgres://ada@db.example/parley?connect_timeout=3&sslmode=require")
    options = found["DATABASES"]["default"]["OPTIONS"]
    assert 0 < options["tcp_user_timeout"] <= 30_000
    assert options["keepalives_idle"] + options["keepalives_interval"] * options["keepalives_count"] <= 30
    assert (int(options["connect_timeout"]), options["sslmode"]) == (3, "require")


@pytest.mark.parametrize("name", ["copies/parley.sqlite3", "/srv/parley.sqlite3", ":memory:"])
def test_a_relative_sqlite_file_is_in_the_folder_with_the_settings(name: str, tmp_path: Path) -> None:
    url = "sqlite://" if name == ":memory:" else f"sqlite:///{name}"
    found = load_settings(PARLEY_DATA_DIR=str(tmp_path), DATABASE_URL=url)
    expected = name if name == ":memory:" else str(ROOT / name)
    assert found["DATABASES"]["default"]["NAME"] == expected


@pytest.mark.parametrize("relative_or_empty", ["", "share"])
def test_settings_of_the_wheel_are_in_the_data_folder_of_the_user(
    relative_or_empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "IS_CLONE", False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", relative_or_empty)
    assert installation.home_folder() == tmp_path / ".local" / "share" / "parley"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert installation.home_folder() == tmp_path / "share" / "parley"
