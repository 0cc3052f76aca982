"""Wrong settings stop the start with one clear line, whoever imports them; right ones have safe defaults."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
from django.conf import settings

from project.keyfiles import key_from
from tests.house.processes import ROOT, SERVERS, clean_environment, free_port, manage

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
def test_a_wrong_setting_is_one_clear_line_and_exit_code_2(name: str, tmp_path: Path) -> None:
    variables = {"PARLEY_DATA_DIR": str(tmp_path), name: WRONG[name]}
    done = manage("check", **variables)
    assert done.returncode == 2
    assert_one_clear_line(done.stderr, name)


@pytest.mark.parametrize("server", ["daphne", "uvicorn"])
def test_a_server_that_imports_wrong_settings_says_the_same(server: str, tmp_path: Path) -> None:
    words = [word.format(port=free_port(), application="project.asgi:application") for word in SERVERS[server]]
    environment = clean_environment(PARLEY_DATA_DIR=str(tmp_path), DEBUG="maybe")
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert_one_clear_line(done.stderr, "DEBUG")


def test_the_defaults_are_safe(tmp_path: Path) -> None:
    code = (
        "from django.conf import settings as s; import json;"
        "print(json.dumps([s.DEBUG, s.ALLOWED_HOSTS, len(s.SECRET_KEY) > 40, len(s.PARLEY_FINGERPRINT_KEY) > 40]))"
    )
    done = manage("shell", "--no-imports", "--command", code, PARLEY_DATA_DIR=str(tmp_path))
    assert done.stdout.strip() == '[false, ["localhost", "127.0.0.1", "[::1]"], true, true]', done.stderr
    for name in ("secret.key", "fingerprint.key"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_https_in_the_address_makes_cookies_secure(tmp_path: Path) -> None:
    code = (
        "from django.conf import settings as s;"
        "print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_HSTS_SECONDS > 0, s.CSRF_TRUSTED_ORIGINS,"
        " 'parley.example.org' in s.ALLOWED_HOSTS)"
    )
    done = manage(
        "shell",
        "--no-imports",
        "--command",
        code,
        PARLEY_DATA_DIR=str(tmp_path),
        PARLEY_URL="https://parley.example.org/",
    )
    assert done.stdout.strip() == "True True True ['https://parley.example.org'] True", done.stderr


def test_no_page_may_run_inline_scripts_or_styles() -> None:
    directives = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]
    assert not any("unsafe" in str(source) for sources in directives.values() for source in sources)


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with get_context("spawn").Pool(4) as pool:
        keys = pool.map(key_from, [tmp_path / f"{number // 8}.key" for number in range(64)], chunksize=1)
    for number in range(8):
        assert len(set(keys[number * 8 : number * 8 + 8])) == 1
    assert len(list(tmp_path.iterdir())) == 8


def test_a_damaged_key_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret.key").write_text("")
    done = manage("check", PARLEY_DATA_DIR=str(tmp_path))
    assert done.returncode == 2
    assert "secret.key" in done.stderr
    assert done.stderr.count("\n") == 1
