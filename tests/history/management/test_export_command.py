"""`manage.py history export`: to a pipe, a file or a folder, with a report of losses."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management.base import CommandError

from history.exporting import Selection, begin
from history.record import recorder
from project.accounts.models import User
from tests.clients import Terminal, run_history
from tests.factories import create_chat, model_input, model_output
from tests.servers.databases import copy_migrated_file

pytestmark = pytest.mark.django_db


def test_to_a_pipe_go_the_lines_and_beside_them_the_report(ada: User) -> None:
    session = create_chat(ada, "hello", "hi")
    out, err = run_history("export", str(session.pk)[:8])
    assert [json.loads(line)["type"] for line in out.splitlines()][:2] == ["header", "session"]
    assert "Sessions exported: 1" in err
    _, err = run_history("export", "--json", "--since", "start")
    assert json.loads(err)["cursor"].count("~") == 1


def test_a_file_has_its_name_only_when_it_is_whole(ada: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_chat(ada, "hello", "hi")
    file = tmp_path / "all.jsonl.gz"
    run_history("export", "--gzip", "-o", file)
    assert gzip.decompress(file.read_bytes()) == b"".join(begin(None, Selection(), "jsonl").pieces())
    file.unlink()

    def fails(*_: Any) -> Any:
        yield b"half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("history.exporting.exports.join_pieces", fails)
    with pytest.raises(CommandError, match="No space left"):
        run_history("export", "-o", file)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_gets_a_file_for_each_session_and_the_same_one_when_it_goes_on(ada: User, tmp_path: Path) -> None:
    session = recorder.start_session(owner=ada, workspace="/home/ada")
    create_chat(ada, "other", "yes")
    run_history("export", "--format", "gemini-cli", "-o", f"{tmp_path}/")
    files = sorted(tmp_path.rglob("*.json"))
    assert len(files) == 2
    recorder.append_many(session, [model_input("hello"), model_output("hi")], after=0)
    run_history("export", "--format", "gemini-cli", "-o", tmp_path)
    assert sorted(tmp_path.rglob("*.json")) == files
    ours = next(json.loads(file.read_text()) for file in files if str(session.pk)[:8] in file.name)
    assert (ours["sessionId"], len(ours["messages"])) == (str(session.pk), 2)
    assert all(file.parent.name == "chats" for file in files)


def test_a_folder_that_cannot_be_written_to_is_an_error_in_words(ada: User, tmp_path: Path) -> None:
    create_chat(ada, "hello")
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(CommandError, match="Cannot write to"):
        run_history("export", "--format", "gemini-cli", "-o", f"{tmp_path}/taken/")


def test_rights_and_wrong_usage_have_their_exit_codes(ada: User, bob: User) -> None:
    session = create_chat(ada, "hello", "hi")
    with pytest.raises(CommandError) as refused:
        run_history("export", session.pk, "--as", "bob")
    assert refused.value.returncode == 1
    with pytest.raises(CommandError) as wrong:
        run_history("export", "--mine")
    assert wrong.value.returncode == 2
    with pytest.raises(CommandError, match="Binary data"):
        run_history("export", "--format", "html", "--gzip", out=Terminal())
    out, _ = run_history("export", "--as", "ada", "--mine", "--format", "csv")
    assert out.count("\n") == 3


@pytest.mark.any_database
def test_bytes_reach_a_real_pipe(tmp_path: Path) -> None:
    """In a process of its own, because a test's stdout takes texts."""
    environment = {
        "DATABASE_URL": copy_migrated_file(tmp_path / "x.sqlite3"),
        "PARLEY_DATA_DIR": str(tmp_path),
        "PATH": "",
    }
    manage = [sys.executable, "manage.py"]
    done = subprocess.run(
        [*manage, "history", "export", "--gzip"],
        cwd=settings.BASE_DIR,
        env=environment,
        check=True,
        capture_output=True,
    )
    assert gzip.decompress(done.stdout).splitlines()[0] == b'{"format":"parley","type":"header","version":1}'
