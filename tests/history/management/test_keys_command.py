"""`manage.py keys`: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

from history.access import keys
from history.management.output import print_json, print_table
from history.models import ApiKey
from project.accounts.models import User
from tests.servers.databases import copy_migrated_file

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("keys", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.django_db
def test_create_prints_the_key_alone_so_that_a_script_can_take_it(staff: User) -> None:
    out, err = run("create", "laptop")
    assert keys.authenticate(out.strip(), scope="relay").name == "laptop"
    assert "only once" in err


@pytest.mark.django_db
def test_create_prints_an_object_with_the_key_as_json(ada: User) -> None:
    out, _ = run(
        "create", "ci", "--owner", "ada", "--scopes", "relay, read", "--recording", "full", "--owner-wide",
        "--expires-days", "30", "--requests-per-minute", "60", "--cost-per-day", "2.50", "--json",
    )  # fmt: skip
    shown = json.loads(out)
    api_key = keys.authenticate(shown["key"], scope="read")
    assert shown["prefix"] == api_key.prefix
    assert (api_key.owner, api_key.scopes, api_key.recording, api_key.owner_wide) == (
        ada,
        ["relay", "read"],
        "full",
        True,
    )
    assert api_key.expires_at is not None
    assert shown["limits"] == {"requests_per_minute": 60, "cost_per_day": "2.50"}


@pytest.mark.django_db
def test_list_never_shows_a_secret(ada: User) -> None:
    new = keys.create(name="laptop", owner=ada)
    for arguments in (["list"], ["list", "--json"], ["list", "--all"]):
        out, _ = run(*arguments)
        assert new.api_key.prefix in out
        assert new.secret.rsplit("_", 1)[1] not in out


@pytest.mark.django_db
def test_revoke_ends_the_key_and_a_second_time_says_so(ada: User) -> None:
    new = keys.create(name="laptop", owner=ada)
    assert "is revoked" in run("revoke", new.api_key.prefix)[0]
    assert "was already revoked" in run("revoke", new.api_key.prefix)[0]
    assert json.loads(run("revoke", new.api_key.prefix, "--json")[0])["state"] == "revoked"
    assert new.api_key.prefix not in run("list")[0]
    assert new.api_key.prefix in run("list", "--all")[0]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["revoke", "nothing"], 1, "no such key"),
        (["create", "x", "--owner", "unknown"], 1, "no user called 'unknown'"),
        (["create", "x", "--owner", "ada", "--scopes", "admin"], 1, "not staff"),
        (["create", "x"], 1, "no staff user"),
        (["create", "x", "--owner", "ada", "--scopes", "fly"], 2, "Unknown scope fly"),
        (["create", " ", "--owner", "ada"], 2, "needs a name"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    ada: User, arguments: list[str], code: int, says: str
) -> None:
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    assert (refused.value.returncode, says in str(refused.value)) == (code, True)
    assert "\n" not in str(refused.value)
    assert not ApiKey.objects.exists()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An installation of its own for real processes: an SQLite file and a data directory."""
    tmp_path = tmp_path_factory.mktemp("installation")
    return os.environ | {
        "PARLEY_DATA_DIR": str(tmp_path),
        "DATABASE_URL": copy_migrated_file(tmp_path / "keys.sqlite3"),
    }


def manage(installation: dict[str, str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", "keys", *arguments]
    return subprocess.run(command, cwd=ROOT, env=installation, capture_output=True, text=True, check=False, **options)


@pytest.mark.any_database
def test_a_real_process_ends_with_the_right_code_and_says_why_on_stderr(installation: dict[str, str]) -> None:
    refused = manage(installation, "create", "laptop")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert len(refused.stderr.splitlines()) == 1
    assert "staff user" in refused.stderr
    listed = manage(installation, "list", "--json")
    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])


def test_what_is_no_command_ends_with_the_code_for_wrong_usage() -> None:
    with pytest.raises(SystemExit) as ended:
        load_command_class("history", "keys").run_from_argv(["manage.py", "keys", "fly"])
    assert ended.value.code == 2


@pytest.mark.any_database
def test_a_terminal_gets_a_table(installation: dict[str, str]) -> None:
    screen = "".join(on_a_terminal([sys.executable, "manage.py", "keys", "list"], installation))
    assert "prefix" in screen
    assert "┃" in screen


def on_a_terminal(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=ROOT, env=environment | {"TERM": "xterm"}, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        while piece := os.read(ours, 4096):
            yield piece.decode(errors="replace")
    except OSError:
        pass  # how Linux says that the other side is closed
    finally:
        os.close(ours)
        process.wait(timeout=30)


# Printing.


def test_a_pipe_gets_plain_columns_that_line_up_in_any_script() -> None:
    out = StringIO()
    print_table(out, ["name", "n"], [["历史", 1], ["abcdef", 22], ["", None]])
    assert out.getvalue() == "name    n\n历史    1\nabcdef  22\n\n"


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_a_name_can_neither_colour_the_screen_nor_break_the_line(stream: type[StringIO]) -> None:
    out = stream()
    print_table(out, ["name"], [["\x1b[31mred\x07\nnext \ud800 [bold]b[/bold]"]])
    assert "\x1b[31m" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "[bold]b[/bold]" in out.getvalue()
    out.getvalue().encode()


def test_json_keeps_chinese_readable_and_survives_what_no_encoding_can_write() -> None:
    out = StringIO()
    print_json(out, {"title": "历史"})
    assert "历史" in out.getvalue()
    out = StringIO()
    print_json(out, {"title": "历史 \ud800"})
    assert json.loads(out.getvalue().encode()) == {"title": "历史 \ud800"}
